"""`metricshuffle verify`: what a plan or a task really promises, recomputed from its mechanism."""

from __future__ import annotations

from metricshuffle.cli.shared_options import Json, PlanFile, load_task


def verify(plan_file: PlanFile, as_json: Json = False) -> None:
    """Recompute both guarantees from the mechanism; exit code 2 and a sentence if the file claims more than is true.

    Whoever receives a task need not believe it: clients before they take part, a shuffler before it collects.
    """
    import json

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.tasks.wording import NO_QUESTION, wording_lines

    task = load_task(plan_file, verified=False)
    with show_progress("Verifying"):
        task.verify()
    if as_json:
        guarantees = {"guarantee": task.guarantee, "if_shuffler_colludes": task.if_shuffler_colludes}
        stored = {name: guarantee.model_dump(mode="json") for name, guarantee in guarantees.items()}
        document = {"verified": True, "plan": task.digest, "minimum": task.minimum, "rounds": task.rounds, **stored}
        print(json.dumps(document | {"not_verified": {"title": task.title, "question": task.question}}))
        return
    written = wording_lines(task.title, task.question)
    computed = str(task).splitlines()[len(written) :]  # the words stand before what is computed, a line each
    say(screen(), *computed, f"Verified: computed again from the mechanism. Task {task.digest[:16]}.")
    if written:
        say(screen(), "Written by the planner, and not verified by anything:", *(f"  {line}" for line in written))
    if task.question is None:
        say(screen(), NO_QUESTION)
