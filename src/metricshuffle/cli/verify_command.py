"""`metricshuffle verify`: recompute the guarantees of a plan or a task from its mechanism."""

from __future__ import annotations

from metricshuffle.cli.shared_options import Json, PlanFile, load_task


def verify(plan_file: PlanFile, as_json: Json = False) -> None:
    """Recompute guarantees and damage from the mechanism; exit code 2 if the file claims more.

    Everybody who receives a task can check it: clients before they take part, and a shuffler before
    it collects reports.
    """
    import json
    from dataclasses import asdict

    from metricshuffle.cli.console import say, screen, show_progress
    from metricshuffle.tasks.wording import NO_QUESTION, wording_lines

    task = load_task(plan_file, verified=False)
    with show_progress("Verifying"):
        task.verify()
    if as_json:
        guarantees = {
            "guarantee": task.guarantee,
            "if_shuffler_colludes": task.if_shuffler_colludes,
        }
        stored = {name: guarantee.model_dump(mode="json") for name, guarantee in guarantees.items()}
        if task.damage is not None:
            stored["damage"] = asdict(task.damage)
        document = {
            "verified": True,
            "plan": task.digest,
            "minimum": task.minimum,
            "rounds": task.rounds,
            **stored,
        }
        print(
            json.dumps(
                document | {"not_verified": {"title": task.title, "question": task.question}}
            )
        )
        return
    written = wording_lines(task.title, task.question)
    computed = str(task).splitlines()[len(written) :]  # title and question come first, a line each
    say(
        screen(),
        *computed,
        f"Verified: computed again from the mechanism. Task {task.digest[:16]}.",
    )
    if written:
        say(
            screen(),
            "Written by the planner, and not verified by anything:",
            *(f"  {line}" for line in written),
        )
    if task.question is None:
        say(screen(), NO_QUESTION)
