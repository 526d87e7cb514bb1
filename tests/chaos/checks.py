"""The promises, looked at after each round when everything has ended. Each look is a check."""
import json
import re

import leftovers
import outcome
import witness
from replica import line_of

TERMINAL = ("FINISHED", "FAILED", "KILLED")


class Checks:
    def __init__(self):
        self.count = 0
        self.broken = []

    def that(self, holds, promise, *facts):
        self.count += 1
        if not holds:
            self.broken.append(": ".join([promise] + [str(fact) for fact in facts]))
        return holds


def known(checks, cluster, entries):
    """What was accepted is known, once. Sets entry.id where a CLI was killed before it said so."""
    listed = cluster.facts("status", "-a", "-n", "0")["experiments"]
    by_name = {}
    for experiment in listed:
        by_name.setdefault(experiment["name"], []).append(experiment["id"])
    for entry in entries:
        ids = by_name.get(entry.submission.key, [])
        checks.that(len(ids) <= 1, "one submission is one experiment", entry.submission.key, ids)
        if entry.id is not None:
            checks.that(ids == [entry.id], "what was accepted is known", entry.id, ids)
        elif ids:
            entry.id = ids[0]


def members_of(entry):
    """[(experiment id, key of its plan)]"""
    members = entry.submission.members
    if list(members) == ["0"]:
        return [(entry.id, "0")]
    return [(f"{entry.id}.{member}", member) for member in members]


def ends(checks, cluster, entry, harm, told):
    """State, exit code and number of starts follow from what was done to it."""
    for experiment, member in members_of(entry):
        shown = cluster.facts("status", experiment)
        end = (shown["state"], shown["exit_code"])
        may = outcome.allowed(entry.submission, member, experiment, harm)
        checks.that(end in may, "the end has its cause", experiment, end, shown["reason"],
                    f"may be {may}")
        if end == ("FAILED", 137):
            words = ["keeper"] if experiment in harm.keepers else []
            words += ["SIGKILL"] if experiment in harm.struck else []
            checks.that(any(word in shown["reason"] for word in words), "the cause is named",
                        experiment, shown["reason"])
        states(checks, experiment, shown)
        untouched = not harm.kill_tried and experiment not in harm.keepers | harm.struck
        plan = outcome.planned(entry.submission, member)
        mine = [each for each in told if each.experiment == experiment]
        for each in mine:
            checks.that(each.starts <= 1, "an attempt starts once", each.name, each.starts)
            checks.that(each.beside == 0, "one live copy at most", each.name)
        if untouched and plan is not None:
            starts = [each for each in mine if each.seat == entry.submission.ender]
            checks.that(len(starts) == plan[2], "as many starts as its policy says", experiment,
                        len(starts), plan[2])
            for seat in entry.submission.members[member]:
                count = sum(each.seat == seat for each in mine)
                checks.that(count <= plan[2], "no start without a cause", experiment, seat, count)


def states(checks, experiment, shown):
    """One end, and nothing after it."""
    events = [event for event in shown["events"] if event["id"] == experiment]
    terminal = [event["state"] for event in events if event["state"] in TERMINAL]
    checks.that(terminal == [shown["state"]] and events[-1]["state"] == shown["state"],
                "one end, and it is the last event", experiment,
                [event["state"] for event in events])
    for replica in shown["replicas"]:
        own = [event["state"] for event in shown["events"] if event["id"] == replica["id"]]
        never_seated = replica["state"] == "CREATED" and own in ([], ["CREATED"])
        checks.that(never_seated or own and own[-1] == replica["state"] and
                    replica["state"] in TERMINAL + ("LOST",),
                    "every replica has ended", replica["id"], replica["state"], own)


def output(checks, cluster, entry, harm, told, seed):
    """What a replica wrote is what `logs --raw` has, byte by byte, up to where it was cut off."""
    for each in told:
        mine = dict(members_of(entry))
        if each.experiment not in mine:
            continue
        plan = entry.submission.members[mine[each.experiment]][each.seat]
        attempt = ("--attempt", str(each.attempt))
        raw = cluster.must("logs", "--raw", each.replica, *attempt)
        lines = [line_of(seed, each.replica, each.order, n, plan["kind"])
                 for n in range(each.begun)]
        begun = b"".join(lines)
        written = sum(len(line) for line in lines[:each.written])
        # The pipe dies with its keeper, and what was in it.
        least = 0 if each.experiment in harm.keepers else written
        if may_lose_output(cluster, harm, each.replica):
            lost = lost_bytes(cluster.must("logs", "--json", each.replica, *attempt))
            if lost > 0:
                rest = iter(begun)
                checks.that(all(byte in rest for byte in raw), "nothing but holes in the output",
                            each.name)
                checks.that(least <= len(raw) + lost <= len(begun), "a loss is said, to the byte",
                            each.name, f"{len(raw)} and {lost} lost of {written}")
                continue
        checks.that(begun.startswith(raw), "no byte is doubled, changed or out of order",
                    each.name, first_difference(begun, raw))
        checks.that(len(raw) >= least, "no byte is lost", each.name, f"{len(raw)} of {written}")


def may_lose_output(cluster, harm, replica):
    """The disk of its host was full for a while; of a host that has not come back yet, any was."""
    shown = cluster.facts("status", witness.experiment_of(replica))
    names = [each["host"] for each in shown["replicas"] if each["id"] == replica]
    if not names or not names[0]:
        return bool(harm.filled)
    return (names[0] if names[0] in cluster.disks else "") in harm.filled


def lost_bytes(lines):
    facts = [json.loads(line) for line in lines.splitlines()]
    return sum(fact["bytes"] for fact in facts if fact["type"] == "lost")


def first_difference(expected, found):
    for at, (a, b) in enumerate(zip(expected, found)):
        if a != b:
            return f"at {at}: expected {expected[at:at + 40]!r}, found {found[at:at + 40]!r}"
    return f"{len(found)} bytes, {len(expected)} expected"


def with_holes_joined(lines):
    """What was lost in a row comes in one piece or in several, as it is read: it is one here."""
    joined = []
    for line in lines:
        fact = json.loads(line)
        last = json.loads(joined[-1]) if joined else {}
        if fact["type"] == "lost" and all(last.get(key) == fact[key] for key in ("type", "id", "attempt")):
            fact["bytes"] += last["bytes"]
            joined[-1] = json.dumps(fact)
        else:
            joined.append(json.dumps(fact))
    return joined


def stream(checks, cluster, entry, harm, followers):
    """`logs --json` in one order for all: what a follower saw live is what is kept."""
    kept = cluster.must("logs", "--json", entry.id)
    kinds = {f"{experiment}.{seat}": plan["kind"]
             for experiment, member in members_of(entry)
             for seat, plan in entry.submission.members[member].items()}
    numbers, holes = {}, set()
    for line in kept.splitlines():
        fact = json.loads(line)
        if fact["type"] == "lost":
            checks.that(may_lose_output(cluster, harm, fact["id"]), "nothing is marked lost",
                        entry.id, line)
            holes.add((fact["id"], fact["attempt"]))
        number = re.match(r"\S+#\d+ (\d+) ", fact.get("text", ""))
        # Of garbage with carriage returns a line shows its last version only.
        if number is None or kinds[fact["id"]] == "garbage":
            continue
        key = (fact["id"], fact["attempt"])
        following = numbers.get(key, 0)
        checks.that(int(number[1]) == following or key in holes and int(number[1]) > following,
                    "lines in their order", fact["id"],
                    number[1], following)
        numbers[key] = int(number[1]) + 1
    all_kept = with_holes_joined(kept.splitlines())
    for command in followers:
        seen = [line for line in command.out().splitlines() if b'"type":"end"' not in line]
        if not seen and command.process.returncode != 0 and '"error"' in command.err():
            continue  # it was refused: no daemon, stopped by hand or killed while it came up
        if command.killed:
            whole = command.out().endswith(b"\n")
            seen = with_holes_joined(seen if whole else seen[:-1])
            # Of a hole at its end there may be more.
            if seen and json.loads(seen[-1])["type"] == "lost":
                seen.pop()
            checks.that(all_kept[:len(seen)] == seen, "a follower sees what is kept",
                        entry.id, command.out_path)
        else:
            seen = with_holes_joined(seen)
            checks.that(all_kept == seen, "a follower sees all that is kept", entry.id,
                        command.out_path, f"{len(seen)} of {len(all_kept)} lines")


def codes(checks, cluster, entry):
    """`wait` and `train` end as the experiment did."""
    shown = cluster.facts("status", entry.id)
    checks.that(entry.waited == shown["exit_code"], "wait's code is the experiment's", entry.id,
                entry.waited, shown["exit_code"])
    train = entry.command
    if train in entry.followers and not train.killed and train.out():
        code = train.process.returncode
        checks.that(code == shown["exit_code"], "train's code is the experiment's", entry.id, code,
                    shown["exit_code"])


def resources(checks, cluster):
    """Everything is free again, on every host."""
    def away(cluster):
        hosts = cluster.facts("hosts")["hosts"]
        found = [host["name"] for host in hosts if not host["connected"]]
        return found + ["one that never was there"] * (len(hosts) < len(cluster.runner_homes()))

    missing = leftovers.wait_for_none(away, cluster)  # a runner may just be coming back
    checks.that(not missing, "every host is there", *missing)
    for host in cluster.facts("hosts")["hosts"]:
        checks.that(host["replicas_count"] == 0 and host["cpus_free"] == host["cpus"] and
                    host["memory_free_bytes"] == host["memory_bytes"], "resources return", host)


def starts_seen(checks, told):
    """Between any two starts of a replica the first has ended: files alone tell, not dtrain."""
    for each in told:
        checks.that(each.ends <= 1, "a replica ends once", each.name)
        checks.that(witness.alive(each) == [], "nothing of an ended replica lives", each.name,
                    witness.alive(each))
