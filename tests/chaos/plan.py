"""A round, from its seed alone: what is submitted and what is done to dtrain, and when.

Nothing in here looks at the world, so that a seed is the same sequence of actions everywhere.
"""
import dataclasses
import random

HIDINGS = ("child", "deaf", "daemon", "bare")
# (fault, weight). Numbers that an action needs are drawn with it; the world takes them modulo.
FAULTS = (("kill daemon", 4), ("kill runner", 4), ("kill daemon+runner", 2), ("kill nursery", 2),
          ("kill keeper", 2), ("kill everything", 1), ("kill replica", 1), ("pause daemon", 2),
          ("pause runner", 2), ("pause keeper", 1), ("kill cli", 2), ("dtrain kill", 3),
          ("stop daemon", 1), ("starve daemon", 2), ("starve runner", 2), ("fill disk", 3),
          ("set clock", 2))


@dataclasses.dataclass
class Action:
    at_ms: int
    name: str
    number: int = 0
    for_ms: int = 0


@dataclasses.dataclass
class Submission:
    key: str           # also its --name: unique among all rounds
    yaml: str
    members: dict      # "0", or "1"... of a set -> replica -> what it does
    restarts: int      # what its policy allows
    ender: str         # the replica that decides by its exit; "": only a kill ends it
    follow: bool       # train in the foreground instead of -d


def replica(dice, holds=False, code=0):
    heavy = dice.random() < 0.15
    kind = dice.choice(("plain", "plain", "long", "garbage"))
    return {
        "kind": kind,
        "lines": dice.randrange((300 if kind == "long" else 3000) if heavy else 40),
        "burst": 500 if heavy else dice.choice((1, 5, 20)),
        "pause_ms": dice.choice((0, 10, 50, 150)),
        "leaves": dice.sample(HIDINGS, dice.choice((0, 0, 0, 1, 2))),
        "deaf": dice.random() < 0.15,
        "shuts": dice.random() < 0.1,
        "holds": holds,
        "codes": [code],
    }


def gang(dice):
    """(framework's YAML, restarts, ender, replicas): one replica's exit is what ends it."""
    workers, servers = dice.choice((1, 2, 3)), dice.choice((0, 1, 2))
    names = ["master"] + [f"worker.{k}" for k in range(1, workers)]
    ender = dice.choice(names)
    code = 0 if ender == "master" and dice.random() < 0.6 else dice.choice((1, 3, 77))
    does = {name: replica(dice, holds=name != ender and (name == "master" or dice.random() < 0.5))
            for name in names}
    does[ender]["codes"] = [code]
    for k in range(servers):
        does[f"ps.{k + 1}"] = replica(dice, holds=True)
    yaml = "  framework: tensorflow\n"
    restarts = 0
    if code != 0 and dice.random() < 0.4:
        restarts = dice.choice((1, 2))
        does[ender]["codes"] = [code] * dice.choice((1, 2)) + ([0] if ender == "master" else [code])
        yaml += f"  restart: {{limit: {restarts}, backoff: {dice.choice(('0s', '100ms'))}}}\n"
    yaml += f"  tensorflow:\n    distributed: {{worker: {workers}, ps: {servers}}}\n"
    return yaml, restarts, ender, {"0": does}


def single(dice):
    restarts = dice.choice((0, 0, 0, 2))
    does = replica(dice)
    codes = ([0], [0], [5], [42]) if restarts == 0 else ([9, 0], [9, 9, 9])
    does["codes"] = dice.choice(codes)
    if restarts == 0 and dice.random() < 0.2:
        does["holds"] = True
    yaml = f"  restart: {{limit: {restarts}, backoff: 50ms}}\n" if restarts else ""
    return yaml, restarts, "" if does["holds"] else "train", {"0": {"train": does}}


def many(dice):
    count = dice.choice((2, 3, 6))
    members = {}
    for k in range(count):
        members[str(k + 1)] = {"train": dict(replica(dice), codes=[dice.choice((0, 0, 4))])}
    yaml = f"  parameters: {{which: {list(range(count))}}}\n"
    if dice.random() < 0.5:
        yaml += "  concurrency: 2\n"
    return yaml, 0, "train", members


def submission(dice, key, hosts, command):
    kind = dice.choice((single, single, gang, gang, many))
    yaml, restarts, ender, members = kind(dice)
    away = hosts > 0 and dice.random() < 0.5
    # No real machine has so much memory: see Cluster.join. One replica a host, never the daemon's.
    resources = "{cpus: 0.05, mem: 10TiB}" if away else "{cpus: 0.05, mem: 16}"
    text = (f"project: chaos\ntrain:\n  resources: {resources}\n  stop-grace: 300ms\n"
            f"  finish-grace: 300ms\n{yaml}  run: {command} {key}.json\n")
    return Submission(key, text, members, restarts, ender, dice.random() < 0.3)


@dataclasses.dataclass
class Round:
    seed: str
    submissions: list
    actions: list      # in the order of time; "submit" and "follow" are among them


def make_round(seed, number, hosts, length_ms, command):
    name = f"{seed}.{number}"
    dice = random.Random(f"dtrain chaos {name} {hosts}")
    count = dice.randrange(3, 8)
    submissions = [submission(dice, f"r{name}.{k}", hosts, command) for k in range(count)]
    actions = [Action(dice.randrange(length_ms // 2), "submit", k) for k in range(count)]
    actions += [Action(dice.randrange(length_ms), "follow", dice.randrange(count))
                for _ in range(2)]
    names, weights = zip(*FAULTS)
    weather = dice.random()
    faults = 0 if weather < 0.1 else dice.randrange(1, 9) if weather < 0.85 else 25
    for _ in range(faults):
        fault = dice.choices(names, weights)[0]
        # Half of them while something is on its way from one state to the next.
        at_ms = dice.choice((dice.randrange(length_ms),
                             dice.choice(actions).at_ms + dice.randrange(5, 150)))
        for again in range(dice.choice((1, 1, 1, 1, 4)) if fault.startswith("kill d") else 1):
            actions.append(Action(at_ms + again * 70, fault, dice.randrange(1 << 16),
                                  dice.choice((20, 100, 400, 1200))))
    actions.sort(key=lambda action: action.at_ms)
    return Round(name, submissions, actions)
