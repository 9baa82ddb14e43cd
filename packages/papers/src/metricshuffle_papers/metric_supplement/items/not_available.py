"""Parts of the metric shuffle paper that are not in our sources, and their replacements."""

from __future__ import annotations

from metricshuffle_papers.reproduction import Item, Reproduction, Row, Settings

INSTEAD = {
    "Figures 1 to 12": "not in the supplement; nothing here stands for them",
    "Theorem 1 (Equation 1)": (
        "its exact form is inferred from the proof in Supplement A; see supplement-theorem-1"
    ),
    "Corollaries 1 and 2 (Equations 2 and 3)": (
        "from Step 3 and Step 4 of the same proof; see supplement-theorem-1"
    ),
    "Algorithm 1": (
        "lines 7 to 16 from the proof of optimality in Supplement C, the rest from Algorithm "
        "3; see supplement-algorithms-1-3"
    ),
    "WitchHat, its definition and the choice of F_m": (
        "from the proofs in Supplements D and E; see supplement-witch-hat"
    ),
    "Section IV-D, the lower bounds": (
        "Table I and Algorithm 2 in Supplement B; see supplement-table-1 and supplement-figure-13"
    ),
}


def _run(settings: Settings) -> Reproduction:
    words = (
        "The main text of this paper and its Figures 1 to 12 are not in our sources, so "
        "nothing of them is reproduced or judged here.",
        "Only the supplement (parts A to F, with Table I, Figure 13 and Algorithms 2 and "
        "3) was at hand, in two transcriptions of which "
        "one often has what the other garbles. Figure 13 has come down without its curves.",
        "Each line below names what is missing and what took its place.",
    )
    return Reproduction(words, tuple(Row(label, note=note) for label, note in INSTEAD.items()))


ITEMS = (
    Item(
        "supplement-not-available",
        "WitchHat",
        "Main text, Figures 1-12",
        "What is not in our sources",
        _run,
    ),
)
