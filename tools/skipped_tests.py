"""Print the tests that were skipped, with their reasons, from the JUnit reports of several pytest processes."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree


def main(folder: Path) -> None:
    skipped_tests: Counter[str] = Counter()
    tests = 0
    for report in sorted(folder.glob("*.xml")):
        for case in ElementTree.parse(report).getroot().iter("testcase"):
            tests += 1
            skipped = case.find("skipped")
            if skipped is not None and skipped.get("type") != "pytest.xfail":  # an expected failure did run
                # One line for all parameters of a test.
                name = ".".join(filter(None, [case.get("classname"), case.get("name", "").partition("[")[0]]))
                skipped_tests[f"{name}: {_reason(skipped)}"] += 1
    count = sum(skipped_tests.values())
    print(f"{folder} contains the results of {tests:,} tests; {count:,} were skipped.")
    for test, times in sorted(skipped_tests.items()):
        print(f"  {times} x {test}")


def _reason(skipped: ElementTree.Element) -> str:
    message = skipped.get("message", "")
    # A module that was skipped as a whole has its reason in the text: ('<path>', <line>, 'Skipped: <reason>').
    if message == "collection skipped" and skipped.text:
        return skipped.text.partition("Skipped: ")[2].rstrip("\"')") or skipped.text
    return message


if __name__ == "__main__":
    main(Path(sys.argv[1]))
