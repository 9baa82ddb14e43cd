"""`metricshuffle run`: all roles on one machine."""

from __future__ import annotations

from metricshuffle.cli.estimate import ReleaseFile, publish
from metricshuffle.cli.options import (
    Clamp,
    Columns,
    Coordinates,
    Delimiter,
    Json,
    PerUser,
    PlanFile,
    RoundOption,
    UserColumn,
    ValuesFile,
    planned,
    writable,
)


def run(
    plan_file: PlanFile,
    values: ValuesFile,
    column: Columns,
    output: ReleaseFile = None,
    user_column: UserColumn = None,
    per_user: PerUser = None,
    clamp: Clamp = False,
    coordinates: Coordinates = None,
    delimiter: Delimiter = ",",
    round: RoundOption = 1,
    as_json: Json = False,
) -> None:
    """Randomize, shuffle and estimate on one machine; the release says that raw values were seen there."""
    writable(output, plan_file, values)
    from metricshuffle.cli.screen import rows_are_people, working
    from metricshuffle.cli.values import Rows
    from metricshuffle.planning import Plan

    plan = planned(plan_file)
    task = plan.task if isinstance(plan, Plan) else plan
    rows = Rows.of(
        values, task.query, column, coordinates=coordinates, clamp=clamp, delimiter=delimiter, user_column=user_column, per_user=per_user
    )
    with working("Running") as tell:
        tally = task.counted(rows.parts(tell), round=round)
        release = plan.estimate(task.publish(tally), raw_values_seen=True)
    publish(release, output, as_json)
    if not as_json:
        rows_are_people(rows.user_column)
