"""`metricshuffle verify`: what a plan or a task really promises, recomputed from its mechanism."""

from __future__ import annotations

from metricshuffle.cli.options import Json, PlanFile, task_of


def verify(plan_file: PlanFile, as_json: Json = False) -> None:
    """Recompute both guarantees from the mechanism; exit code 2 and a sentence if the file claims more than is true.

    Whoever receives a task need not believe it: clients before they take part, a shuffler before it collects.
    """
    import json

    from metricshuffle.cli.screen import say, screen, working

    task = task_of(plan_file)
    with working("Verifying"):
        task.verify()
    if as_json:
        guarantees = {"guarantee": task.guarantee, "if_shuffler_colludes": task.if_shuffler_colludes}
        stored = {name: guarantee.model_dump(mode="json") for name, guarantee in guarantees.items()}
        print(json.dumps({"verified": True, "plan": task.digest, "minimum": task.minimum, "rounds": task.rounds, **stored}))
        return
    say(screen(), str(task), f"Verified: computed again from the mechanism. Task {task.digest[:16]}.")
