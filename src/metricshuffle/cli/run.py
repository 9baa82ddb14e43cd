"""`metricshuffle run`: all roles on one machine."""

from __future__ import annotations

from metricshuffle.cli.estimate import ReleaseFile, publish
from metricshuffle.cli.options import Clamp, Columns, Coordinates, Delimiter, Json, PlanFile, ValuesFile, planned, writable


def run(
    plan_file: PlanFile,
    values: ValuesFile,
    column: Columns,
    output: ReleaseFile = None,
    clamp: Clamp = False,
    coordinates: Coordinates = "cells",
    delimiter: Delimiter = ",",
    as_json: Json = False,
) -> None:
    """Randomize, shuffle and estimate on one machine; the release says that raw values were seen there."""
    writable(output, plan_file, values)
    from metricshuffle.cli.columns import open_columns
    from metricshuffle.cli.screen import working
    from metricshuffle.cli.values import reports_of

    plan = planned(plan_file)
    source = open_columns(values, column, delimiter)
    with working("Running") as tell:
        shuffled = plan.shuffle(reports_of(plan, source, clamp=clamp, coordinates=coordinates, tell=tell))
        release = plan.estimate(shuffled, raw_values_seen=True)
    publish(release, output, as_json)
