"""Compute the figures of the papers and write them beside the published ones.

python -m benchmarks.papers                         # all papers
python -m benchmarks.papers stepwise --figure 13    # one figure; the page keeps the other ones
python -m benchmarks.papers stepwise --again        # also figures whose sources have not changed
"""

from __future__ import annotations

import argparse
import sys

from benchmarks.papers import drs, joker, model_driven, mst, stepwise
from benchmarks.papers.results import ROOT, Figure, computed, page, published
from penstock.dataflow.errors import PenstockError

# Name of the paper -> its figures, the title of its page, and a sentence about them.
PARTS: dict[str, tuple[dict[str, Figure], str, str]] = {
    "drs": (drs.FIGURES, drs.TITLE, drs.INTRODUCTION),
    "joker": (joker.FIGURES, joker.TITLE, joker.INTRODUCTION),
    "model-driven": (model_driven.FIGURES, model_driven.TITLE, model_driven.INTRODUCTION),
    "mst": (mst.FIGURES, mst.TITLE, mst.INTRODUCTION),
    "stepwise": (stepwise.FIGURES, stepwise.TITLE, stepwise.INTRODUCTION),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.papers", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="*", help=f"papers to reproduce: {', '.join(PARTS)}; default: all")
    parser.add_argument("--figure", action="append", default=[], help="compute only this figure")
    parser.add_argument("--again", action="store_true", help="compute figures again that have not changed")
    options = parser.parse_args()
    for part in options.part:
        if part not in PARTS:
            parser.error(f"there is no part '{part}'; the parts are {', '.join(PARTS)}.")
    missing = []
    for part in options.part or PARTS:
        figures, title, introduction = PARTS[part]
        unknown = [name for name in options.figure if name not in figures]
        if unknown:
            parser.error(f"'{part}' has no figure {', '.join(unknown)}; its figures are {', '.join(figures)}.")
        file = ROOT / "docs" / "papers" / f"{part}-results.md"
        earlier = published(file.read_text()) if file.exists() else {}
        try:
            rows = computed(part, figures, options.figure, again=options.again, published=earlier)
        except PenstockError as error:
            missing.append(part)
            print(f"{part}: {error}", file=sys.stderr)
            continue
        file.write_text(page(title, introduction, rows, f"make reproduce PART={part}"))
        print(f"{file.relative_to(ROOT)}: {len(rows)} rows")
    sys.exit(bool(missing))


if __name__ == "__main__":
    main()
