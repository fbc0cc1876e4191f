"""Counts the results of scripts/test.sh: gtest's XML reports and checks.tsv in the given folder.

Names what failed; the last line is "N passed, N failed" (and ", N skipped"). Exit status 0 only when
nothing failed and something passed.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def count_report(path):
    """(passed, names of failed cases, skipped) of one gtest report."""
    passed, failed, skipped = 0, [], 0
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.find("failure") is not None:
            failed.append(f"{path.stem}: {case.get('classname')}.{case.get('name')}")
        elif case.get("status") == "notrun" or case.get("result") in ("skipped", "suppressed"):
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def main(folder):
    passed, failed, skipped = 0, [], 0
    for path in sorted(folder.glob("*.xml")):
        counts = count_report(path)
        passed, failed, skipped = passed + counts[0], failed + counts[1], skipped + counts[2]
    checks = folder / "checks.tsv"
    for line in checks.read_text().splitlines() if checks.exists() else []:
        outcome, name = line.split("\t")
        if outcome == "pass":
            passed += 1
        else:
            failed.append(name)
    for name in failed:
        print(f"failed: {name}")
    print(f"{passed} passed, {len(failed)} failed" + (f", {skipped} skipped" if skipped else ""))
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
