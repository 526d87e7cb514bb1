"""Reads what ctest wrote (PRESET=LastTest.log ...) and prints failures, skips and one line of totals.

A doctest binary counts by its cases; any other test counts as one. A case that can't run on this
machine says "skipped: <why>" and counts as skipped instead of passed; "left out: <why>" names a part of
a case and is listed only. A test that crashed, timed out or left no log is a failure.
"""
import re
import sys

CASES = re.compile(r"^\[doctest\] test cases:\s*\d+ \|\s*(\d+) passed \|\s*(\d+) failed", re.M)
FAILED_CASE = re.compile(r"^TEST CASE:\s+(.*)$", re.M)
SKIPPED = re.compile(r"^skipped: (.*)$", re.M)
LEFT_OUT = re.compile(r"^left out: (.*)$", re.M)


def tests_of(text):
    """[(name, what ctest wrote about it)], one each although ctest heads a test with two lines."""
    heads = list(re.finditer(r"^\d+/\d+ Testing: (\S+)$", text, re.M))
    for head, following in zip(heads, heads[1:] + [None]):
        yield head.group(1), text[head.end():following.start() if following else len(text)]


def count(name, text):
    """(passed, [failures], [skips])"""
    colours = re.compile(r"\x1b\[[0-9;]*m")
    text = colours.sub("", text)
    skips = list(dict.fromkeys(SKIPPED.findall(text)))
    good_end = re.search(r"^Test Passed\.$", text, re.M)
    cases = CASES.search(text)
    if not cases and not good_end:
        return 0, ["crashed or ran too long"], skips
    if not cases:
        return (0 if skips else 1), [], skips
    passed, failed = int(cases.group(1)), int(cases.group(2))
    failures = list(dict.fromkeys(FAILED_CASE.findall(text)))[:failed] if failed else []
    failures += ["a case"] * (failed - len(failures))
    if not good_end and not failures:
        failures = ["ended badly after its last case"]
    return max(0, passed - len(skips)), failures, skips


def main():
    passed, failures, skips, left_out = 0, [], [], []
    for argument in sys.argv[1:]:
        preset, _, path = argument.partition("=")
        try:
            with open(path, errors="replace") as file:
                text = file.read()
        except OSError as error:
            failures.append("%s: no results: %s" % (preset, error))
            continue
        found = list(tests_of(text))
        if not found:
            failures.append("%s: no tests ran" % preset)
        for name, part in found:
            good, bad, skipped = count(name, part)
            passed += good
            failures += ["%s %s: %s (%s)" % (preset, name, why, path) for why in bad]
            skips += ["%s %s: %s" % (preset, name, why) for why in skipped]
            left_out += ["%s %s: %s" % (preset, name, why)
                         for why in dict.fromkeys(LEFT_OUT.findall(part))]
    for line in left_out:
        print("left out " + line)
    for line in skips:
        print("skipped  " + line)
    for line in failures:
        print("failed   " + line)
    print("%d passed, %d failed, %d skipped" % (passed, len(failures), len(skips)))
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
