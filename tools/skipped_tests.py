"""Print the tests that were skipped, with their reasons, from the JUnit reports of several pytest processes."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(folder: Path) -> None:
    reasons: Counter[str] = Counter()
    tests = 0
    for report in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            tests += 1
            skipped = case.find("skipped")
            if skipped is not None:
                reasons[f"{case.get('classname')}: {skipped.get('message')}"] += 1
    print(f"{tests:,} tests ran in {folder}; {sum(reasons.values())} were skipped.")
    for reason, times in sorted(reasons.items()):
        print(f"  {times} x {reason}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
