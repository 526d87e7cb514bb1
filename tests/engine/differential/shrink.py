"""A smaller case that still differs: one thing less at a time, as long as what is left differs too."""
import copy
import time

import checks
import draw


def smallest(engine, case, number, seconds):
    """Of the run that differs; within so many seconds."""
    case = copy.deepcopy(case)
    runs = case["runs"]
    case["runs"] = [runs[0]] if number == 0 else [{**runs[0], "against": [], "twice": None}, runs[number]]
    end = time.monotonic() + seconds
    if not differs(engine, case):
        return case, False
    gained = True
    while gained:
        gained = False
        for change in CHANGES:
            smaller = copy.deepcopy(case)
            try:
                change(smaller, smaller["runs"][-1])
            except KeyError:
                continue
            if smaller == case or time.monotonic() > end or not differs(engine, smaller):
                continue
            case, gained = smaller, True
    return case, True


def differs(engine, case):
    try:
        played = checks.Played(engine, case)
    except (KeyError, ValueError, IndexError):
        return False
    try:
        # Not what is refused: a smaller case may be one that nobody may ask for.
        return any("ended with 2;" not in text for number, text in played.play() if number == len(case["runs"]) - 1)
    finally:
        played.close()


def set_in(path, value):
    def change(case, run):
        at = case["spec"]
        for key in path[:-1]:
            at = at[key]
        if path[-1] not in run["changes"]:
            at[path[-1]] = value
    return change


def in_run(key, value):
    def change(_, run):
        if key in run["changes"]:
            run["changes"][key] = value
    return change


def in_strategy(key, value):
    def change(_, run):
        run["changes"]["strategy"][key]
        run["changes"]["strategy"][key] = value
    return change


def strong(case, run):
    run["changes"].pop("scaling")
    run["changes"].pop("batch")


def halves(key, where):
    def change(case, run):
        at = where(case)
        at[key] = max(1, at[key] // 2)
    return change


def one_layer(case, run):
    (kind, options), = case["spec"]["model"].items()
    if kind == "gpt":
        options["layers"] = 1
    else:
        options["hidden"] = options["hidden"][:1]


def fewer_workers(most):
    def change(_, run):
        if run["changes"]["strategy"]["kind"] != "mesh":  # whose sides say how many there are
            run["workers"] = min(most, run["workers"])
    return change


def no_test(case, run):
    case["data"]["test"] = 0


def once(case, run):
    if run["against"]:
        run["twice"] = None


def alone(case, run):
    if run["twice"]:
        run["against"] = []


CHANGES = [
    once, alone, no_test, strong, set_in(["clip"], 0), set_in(["micro-batch"], 0), in_run("micro-batch", 0),
    set_in(["schedule", "kind"], "constant"), set_in(["schedule", "warm-up-steps"], 0), set_in(["schedule", "warm-up-epochs"], 0),
    set_in(["schedule", "scale-with-batch"], 0), set_in(["optimizer", "weight-decay"], 0),
    set_in(["optimizer", "nesterov"], False), set_in(["optimizer", "momentum"], 0.0), set_in(["optimizer", "kind"], "sgd"),
    set_in(["epoch-samples"], 0), set_in(["steps"], 1), set_in(["steps"], 2), set_in(["steps"], 3), set_in(["epochs"], 1),
    set_in(["checkpoint", "steps"], 0), set_in(["checkpoint", "epochs"], 1), set_in(["checkpoint", "keep"], 3),
    in_run("threads", 1), in_run("threads", 2), in_strategy("data-path", "raw"), in_strategy("bucket-mb", 0), in_strategy("apply-every", 1),
    lambda case, run: run.update(servers=min(1, run["servers"])), fewer_workers(1), fewer_workers(2),
    one_layer, halves("train", lambda case: case["data"]), halves("batch", lambda case: case["spec"]),
    set_in(["seed"], 42), lambda case, run: case.update(isa=None),
]
