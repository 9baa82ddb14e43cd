"""Travel times in a rail network as the metric: where people go, hidden by minutes of travel.

The distance of two stations is the length of the shortest path between them. A journey log whose
stations move by few minutes on average is hard to tell from the true one; one that moves across the
network is easier to tell. The network has a circle line, so that no tree has its distances.
Run:  python examples/station_graph.py --output minutes.csv
Then: metricshuffle plan --query user-histogram --labels ... --distances minutes.csv ...
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import shortest_path

import metricshuffle as ms
from metricshuffle.amplification.amplify import amplify
from metricshuffle.randomizers import PaddedExponential

MINUTES = {
    ("Airport", "North"): 9,
    ("North", "Market"): 4,
    ("Market", "Museum"): 3,
    ("Museum", "Harbour"): 4,
    ("Harbour", "South"): 3,
    ("South", "Museum"): 5,
    ("Market", "West"): 6,
    ("West", "South"): 7,
    ("Harbour", "Beach"): 8,
}
"""Minutes of travel between neighbouring stations, the same in both directions."""
STATIONS = sorted({station for link in MINUTES for station in link})


def travel_times() -> NDArray[np.float64]:
    """Minutes between all stations by the shortest path."""
    places = {station: place for place, station in enumerate(STATIONS)}
    starts, ends = zip(*((places[a], places[b]) for a, b in MINUTES), strict=True)
    links = coo_array((list(MINUTES.values()), (starts, ends)), shape=(len(places),) * 2)
    times: NDArray[np.float64] = shortest_path(links.tocsr(), directed=False)
    if not np.isfinite(times).all():
        raise ValueError("the network is not connected: some stations have no distance.")
    return times


def journeys(users: int, randomness: ms.Randomness) -> list[list[str]]:
    """Simulated stations of each person: five, half of them at one end of the circle line."""
    drawn = randomness.uniform_residues(5 * users, 2 * len(STATIONS)).astype(int)
    names = [*STATIONS, *["Museum", "Market"] * (len(STATIONS) // 2)]
    stations = [names[place] for place in drawn]
    return [stations[5 * user : 5 * user + 5] for user in range(users)]


def main(typed: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--users", type=int, default=2_000)
    parser.add_argument("--output", type=Path, help="write the table of distances to this CSV file")
    options = parser.parse_args(typed)
    times = travel_times()
    if options.output is not None:
        options.output.write_text(
            "".join(",".join(f"{minutes:g}" for minutes in row) + "\n" for row in times)
        )
        print(f"Wrote {options.output}: a row and a column for each of {','.join(STATIONS)}.")
    metric = ms.Matrix(times)
    people = ms.users_of(ms.Space(ms.Categories(STATIONS), metric), items=5)
    target = ms.Target(epsilon=1.0, delta=1e-6, distance=5.0)
    plan = ms.plan(ms.UserHistogram(people), target, users=options.users)
    print(plan.guarantee)
    randomness = ms.Randomness.seeded("stations")
    release = plan.run(journeys(options.users, randomness), randomness=randomness)
    for row in release.value:
        print(f"{row['label']:8} {100.0 * row['share']:5.1f} %")
    # One station of each person, through a single report of any length of travel.
    answer = amplify(PaddedExponential(metric, 0.1), options.users)
    print(answer.explain(1e-6, 5.0))


if __name__ == "__main__":
    main()
