#!/usr/bin/env python3
"""Breaks a running dtrain in seeded rounds, and looks from outside whether its promises hold.

    tests/chaos/chaos.py [--dtrain PATH] [--seed N] [--rounds N] [--seconds N]
                         [--first N] [--hosts N] [--verbose]

Ends with "N checks in N rounds, N broken". When any is broken it exits non-zero and keeps the home.
The same seed is the same sequence of actions; when they fall is the machine's affair.
"""
import argparse
import pathlib
import signal
import sys
import time

import leftovers
import plan
import processes
from checks import Checks
from cluster import Broken, Cluster
from group import Group
from growth import Growth
from network import Network
from world import World

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUND_MS = 2500


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dtrain", type=pathlib.Path, default=ROOT / "build/release/bin/dtrain")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="the number of the first round")
    parser.add_argument("--seconds", type=int, default=0, help="no new round after so long")
    parser.add_argument("--hosts", type=int, default=2, help="network namespaces with a runner")
    parser.add_argument("--verbose", action="store_true", help="say what is done")
    return parser.parse_args()


def without_hiding_place(round_, group):
    """A process that gave up everything it is told by is found by its control group only."""
    if group.path:
        return
    for submission in round_.submissions:
        for member in submission.members.values():
            for replica in member.values():
                replica["leaves"] = [how for how in replica["leaves"] if how != "bare"]


def play(options, cluster, group, network, checks):
    begin = time.monotonic()
    growth = Growth(cluster)
    cluster.must("daemon", "start")
    cluster.join()
    command = f"exec python3 -S -E replica.py {cluster.folder}/witness"
    rounds = 0
    for number in range(options.first, options.first + options.rounds):
        if options.seconds and time.monotonic() - begin > options.seconds:
            break
        rounds += 1
        said = []

        def say(words):
            said.append(words)
            if options.verbose:
                print(f"  {words}", flush=True)

        round_ = plan.make_round(options.seed, number, network.hosts, ROUND_MS, command)
        without_hiding_place(round_, group)
        try:
            World(cluster, round_, checks, say).play()
            growth.look(checks)
        except Broken as broken:
            checks.that(False, "every command answers", broken)
        if checks.broken:
            print(f"seed {options.seed}, round {number}: broken", flush=True)
            if not options.verbose:
                print("\n".join(f"  {words}" for words in said))
            break
        if sys.stdout.isatty() or options.verbose:
            print(f"round {number}: {checks.count} checks", flush=True)
    return rounds


def end(cluster, checks):
    """`daemon stop --kill` and TERM to the other runners leave nothing."""
    cluster.must("daemon", "stop", "--kill")
    for runner in cluster.joined.values():
        runner.process.terminate()
    for runner in cluster.joined.values():
        runner.wait()
    left = leftovers.wait_for_none(leftovers.of_cluster, cluster)
    checks.that(not left, "nothing is left at the end", *left)


def end_processes(cluster):
    """What a run that broke or was ended may have left."""
    for runner in cluster.joined.values():
        runner.kill()
    for _ in range(3):  # a runner may just have started a daemon, and the other way round
        for pid in leftovers.pids_of(cluster):
            processes.send(pid, signal.SIGKILL, lambda pid: pid in leftovers.pids_of(cluster))


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by TERM"))
    processes.come_with_few_descriptors()
    if not options.dtrain.exists():
        sys.exit(f"{options.dtrain} is not there: build it, or name another with --dtrain")
    group, network, checks = Group(), Network(options.hosts), Checks()
    for what in (group, network):
        if what.unavailable and not (what is group and group.path):
            print(f"left out: {what.unavailable}")
    dtrain = options.dtrain.resolve()
    cluster = Cluster(dtrain, group, network, dtrain.parents[1] / "jumping_clock/jumping_clock.so")
    for why in {disk.unavailable for disk in cluster.disks.values()} - {""}:
        print(f"left out: filling disks: {why}")
    if cluster.clock.unavailable:
        print(f"left out: setting the clock: {cluster.clock.unavailable}")
    rounds = 0
    try:
        rounds = play(options, cluster, group, network, checks)
        if not checks.broken:
            end(cluster, checks)
    except Broken as broken:
        checks.that(False, "every command answers", broken)
    finally:
        if checks.broken:
            print("\n".join(checks.broken))
            print(f"kept: {cluster.folder}")
        end_processes(cluster)
        if not checks.broken:
            cluster.close()
        group.close()
        network.close()
    print(f"{checks.count} checks in {rounds} rounds, {len(checks.broken)} broken")
    sys.exit(1 if checks.broken else 0)


if __name__ == "__main__":
    main()
