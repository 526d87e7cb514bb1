#!/usr/bin/env python3
"""Random trainings by the engine beside trainings of the same in doubles, and beside other ways to train the same.

    differential.py --seed 1 --count 50          # cases of the seeds 1 to 50
    differential.py --seed 1 --seconds 3600      # as many as fit
    differential.py --case FILE                  # one that was printed

The last line is `N trainings, N differ`; 1 is returned if any does. README.md says what is held to what."""
import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch

import checks
import draw
import shrink

ENGINE = Path(__file__).resolve().parents[3] / "build/release/bin/dtrain-engine"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of the first case")
    parser.add_argument("--count", type=int, help="cases; 20 without --seconds")
    parser.add_argument("--seconds", type=float, help="no case begins later")
    parser.add_argument("--engine", type=Path, default=ENGINE)
    parser.add_argument("--case", type=Path, help="a file with one case as JSON, instead of drawn ones")
    parser.add_argument("--shrink-seconds", type=float, default=60, help="to look for a smaller case that differs")
    parser.add_argument("--verbose", action="store_true", help="a line for each case")
    options = parser.parse_args()
    if not os.access(options.engine, os.X_OK):
        sys.exit(f"{options.engine}: no such program; build it, or name one by --engine")
    options.engine = options.engine.resolve()
    torch.set_num_threads(1)
    trainings = differ = 0
    for case in cases(options):
        played = checks.Played(options.engine, case)
        began = time.monotonic()
        try:
            found = played.play()
        finally:
            played.close()
        trainings += played.trainings
        differ += len(found)
        for number, text in found:
            say(options, case, number, text)
        if options.verbose:
            print(f"seed {case['seed']}: {next(iter(case['spec']['model']))}, {played.trainings} trainings, "
                  f"{played.broken} killed, {len(found)} differ, "
                  f"{played.widest:.2f} of the tolerance, {time.monotonic() - began:.1f} s", flush=True)
    print(f"{trainings} trainings, {differ} differ")
    return 1 if differ else 0


def cases(options):
    if options.case:
        yield json.loads(options.case.read_text())
        return
    count = options.count if options.count is not None else None if options.seconds else 20
    began, seed = time.monotonic(), options.seed
    while (count is None or seed < options.seed + count) and (
            options.seconds is None or time.monotonic() - began < options.seconds):
        yield draw.case(seed)
        seed += 1


def say(options, case, number, text):
    run = case["runs"][number]
    print(f"seed {case['seed']}, run {number} ({run['workers']} workers, {run['servers']} servers, {run['changes']}): {text}", flush=True)
    if options.shrink_seconds <= 0:
        return
    smaller, again = shrink.smallest(options.engine, case, number, options.shrink_seconds)
    print("  the smallest that differs:" if again else "  it did not differ again:")
    print("  " + json.dumps(smaller), flush=True)


if __name__ == "__main__":
    sys.exit(main())
