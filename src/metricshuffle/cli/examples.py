"""Two examples at the end of the help of every command, in the order in which they can be run.

Commands that need no server run one after the other in a folder with `kcal.csv`, which has a
column `kcal`; a test does that.
"""

from __future__ import annotations

_QUERY = "--query mean --low 0 --high 1000 --unit kcal --epsilon 1 --distance 100 --delta 1e-6"
_SERVER = "http://127.0.0.1:8460"

EXAMPLES: dict[str, tuple[str, str]] = {
    "new": ("", "--output survey.json"),
    "plan": (
        f"{_QUERY} --users 1000 --honest 90% --save plan.json --task task.json",
        "--query histogram --labels tea,coffee,water --epsilon 1 --delta 1e-6 --users 1000",
    ),
    "explain": ("task.json", "task.json --language de --format html --output consent.html"),
    "verify": ("task.json", "plan.json --json"),
    "randomize": (
        "task.json kcal.csv --column kcal --output reports.bin",
        "task.json kcal.csv --column kcal --clamp --output clamped.bin",
    ),
    "shuffle": (
        "task.json reports.bin --output shuffled.bin",
        "task.json clamped.bin --output others.bin --json",
    ),
    "estimate": (
        "plan.json shuffled.bin --output release.json",
        "plan.json shuffled.bin --json",
    ),
    "run": (
        "plan.json kcal.csv --column kcal --ledger run.ledger --output run.json",
        "plan.json kcal.csv --column kcal --ledger other.ledger --clamp --json",
    ),
    "report": ("plan.json release.json", "plan.json --output plan.html"),
    "map": ("release.json --output answer.svg", "release.json --output answer.html"),
    "budget": ("plan.json", '--outbox my.outbox --limit "3 at 100 kcal in 30d"'),
    "simulate": ("plan.json --runs 100", "plan.json --runs 100 --seed 1 --json"),
    "audit": ("plan.json --batches 200", "plan.json --batches 200 --first 0 --second 100 --json"),
    "profile": (
        "--noise geometric --rate 0.1 --users 1000 --distance 10 --delta 1e-6",
        "--noise polya --rate 0.1 --users 1000 --distance 10 --epsilon 1",
    ),
    "amplify": (
        "--randomizer krr --options 10 --local-epsilon 2 --users 10000 --delta 1e-6",
        "--randomizer krr --options 10 --target-epsilon 1 --users 10000 --delta 1e-6",
    ),
    "solve": (
        "--epsilon 1 --distance 2 --delta 1e-6 --users 1000 --low 0 --high 9",
        "--epsilon 1 --distance 2 --delta 1e-6 --users 1000 --low 0 --high 9 --json",
    ),
    "demo": ("", "--json"),
    "doctor": ("", "--json"),
    "web": ("", "--port 8123 --no-browser"),
    "users calibrate": (
        "--rate 1 --delta 1e-6 --users 1000 --items 10 --model central",
        "--rate 1 --delta 1e-6 --users 1000 --items 10 --model local --diameter 1 --json",
    ),
    "analyst key": (
        "--output analyst.key",
        "--output second.key --json",
    ),
    "serve": (
        "--store sqlite:///shuffler.db --keys shuffler-keys --listen 127.0.0.1:8460",
        "--store postgresql://shuffler@localhost/shuffler --keys shuffler-keys",
    ),
    "collection open": (
        f"plan.json --server {_SERVER} --keys shuffler-keys --analyst KEY --closes 1h "
        "--colluders 10 --output collection.json",
        f"plan.json --server {_SERVER} --keys shuffler-keys --analyst KEY --closes 2h "
        "--extends 3h --colluders 0 --output second.json",
    ),
    "collection status": (
        "collection.json --keys shuffler-keys",
        "collection.json --keys shuffler-keys --json",
    ),
    "collection abort": (
        "collection.json --keys shuffler-keys",
        "collection.json --keys shuffler-keys --json",
    ),
    "collection purge": (
        "collection.json --keys shuffler-keys",
        "collection.json --keys shuffler-keys --json",
    ),
    "collection clock": (
        f"show --server {_SERVER} --keys shuffler-keys",
        f"confirm --server {_SERVER} --keys shuffler-keys",
    ),
    "collection database": (
        f"show --server {_SERVER} --keys shuffler-keys",
        f"accept --server {_SERVER} --keys shuffler-keys --json",
    ),
    "collection lease": (
        f"confirm LEASE --server {_SERVER} --keys shuffler-keys",
        f"confirm LEASE --server {_SERVER} --keys shuffler-keys --json",
    ),
    "issuer new": (
        "issuer --url http://127.0.0.1:8461/token-request --tickets 100 --tickets-file tickets.txt",
        "issuer-2 --url https://issuer.example/token-request --tickets 1e3 --tickets-file "
        "tickets-2.txt --json",
    ),
    "issuer serve": ("issuer", "issuer --listen 127.0.0.1:8462 --json"),
    "migrate": (
        "--store postgresql://shuffler@localhost/shuffler",
        "--store postgresql://shuffler@localhost/shuffler --edge-role edge --json",
    ),
    "mix": (
        "--store postgresql://shuffler@localhost/shuffler --objects file:///srv/spill "
        "--keys shuffler-keys",
        "--store postgresql://shuffler@localhost/shuffler --objects s3://spill/mixers "
        "--keys shuffler-keys --log json",
    ),
    "conform vectors": ("docs/spec/vectors", "docs/spec/vectors --json"),
    "conform server": (
        f"{_SERVER}/v1/collections/DIGEST",
        f"{_SERVER}/v1/collections/DIGEST --send",
    ),
    "conform client": (
        "-- metricshuffle submit {address} --digest {digest} --outbox {outbox} --value {value}",
        "--json -- node take-part.mjs {address} {digest} {value}",
    ),
    "submit": ("collection.json --value -", "collection.json kcal.csv --column kcal"),
    "collect": (
        "collection.json --analyst-key analyst.key --output release.json",
        "collection.json --analyst-key analyst.key --output release.json --json",
    ),
    "join-page": (
        "collection.json --output page",
        "collection.json --output page --origin https://survey.example",
    ),
}
"""Arguments of two examples for each command, by its full name."""
NEEDS_SERVER = frozenset(
    {"new", "migrate", "mix", "serve", "web", "submit", "collect", "join-page"}
    | {"conform server", "conform client", "issuer serve"}
    | {
        f"collection {verb}"
        for verb in ("open", "status", "abort", "purge", "clock", "database", "lease")
    }
)
"""Commands that ask, serve, or need a served shuffler and a collection."""


def examples_text(name: str) -> str:
    """Examples of a command as they are typed, one paragraph each; empty if it has none."""
    lines = [f"metricshuffle {name} {words}".rstrip() for words in EXAMPLES.get(name, ())]
    return "\n\n".join(["Examples:", *lines]) if lines else ""
