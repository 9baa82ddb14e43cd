"""A model of dbt-duckdb: the private mean of the column kcal of the table people.

`metricshuffle plan --query mean --low 0 --high 1000 ... --save plan.json` makes the plan, and
`private_mean.yml` names it. Building the model twice is a second release, which the ledger beside
the plan refuses unless another round was planned.
"""

import metricshuffle as ms


def model(dbt, session):  # type: ignore[no-untyped-def]
    """Run the plan on the column, and return the answer as a table."""
    dbt.config(materialized="table")
    plan_file = dbt.config.get("plan")
    plan = ms.Plan.load(plan_file)
    people = dbt.ref("people")
    release = plan.run(people, column="kcal", budget=ms.Budget.beside(plan_file, plan.task))
    return release.to_frame("pyarrow")
