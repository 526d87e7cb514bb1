"""A case from its seed alone: data, the spec of one process with one thread, and other ways to train the same.

{"seed", "data": {...}, "spec": {...}, "isa", "runs": [{"workers", "servers", "changes": {...}, "against": [...], "twice"}]}

`changes` are merged into the spec. `against`: "first", the bits of runs[0]; "oracle". `twice`: how it trains a second time,
to the same bits."""
import copy
import random

PARTICIPANTS = 8  # up to so many give the same bits
# Without AVX-512 zen4 is as None, which is what the machine has; the others are there wherever AVX2 is.
ISAS = [None, None, "zen4", "avx2", "baseline"]


def case(seed):
    draw = random.Random(f"differential {seed}")
    kind = draw.choice(["mlp", "mlp", "lenet", "gpt"])
    data, model = {"mlp": mlp, "lenet": lenet, "gpt": gpt}[kind](draw)
    made = {"seed": seed, "data": data, "spec": spec(draw, data, model, kind), "isa": draw.choice(ISAS)}
    base = {"workers": 1, "servers": 0, "changes": {}, "against": ["oracle"], "twice": twice(draw, "killed", "from")}
    made["runs"] = [base] + [same_bits(draw, made) for _ in range(3)] + [rounded(draw, made, kind)]
    if draw.random() < 0.5:
        made["runs"].append(in_pieces(draw, made))
    made["runs"] = [run for run in made["runs"] if run]
    return made


def images(draw, channels, least, most):
    form = draw.choice(["flat", "planes", "channels", "idx"] if channels == 1 else ["channels"])
    kind = "uint8" if form == "idx" else draw.choice(["uint8", "float32", "float64", "int32"])
    return {"kind": "images", "seed": draw.randrange(1 << 30), "train": draw.choice([draw.randint(9, 40), draw.randint(40, 180)]),
            "test": draw.choice([0, draw.randint(1, 60)]), "shape": [channels, draw.randint(least, most), draw.randint(least, most)],
            "classes": draw.choice([2, 3, draw.randint(4, 12), 10, draw.randint(17, 40)]), "type": kind, "form": form,
            "background": draw.choice([0, 0, 0.4, 0.8])}


def mlp(draw):
    data = images(draw, draw.choice([1, 1, 3]), 3, 15)
    hidden = draw.choice([[], [draw.randint(1, 70)], [draw.choice([8, 24, 48, 64, 96]), draw.choice([12, 24, 36])],
                          [draw.randint(2, 40) for _ in range(3)], [128]])
    if draw.random() < 0.12:  # large enough for a crew
        data["shape"], hidden, data["train"] = [1, 23, 24], [draw.choice([480, 512, 513, 600])], draw.randint(20, 60)
    elif draw.random() < 0.2:  # wide enough to leave out what is zero or background
        data["shape"] = [1, draw.choice([8, 12, 16]), 16]
        hidden, data["train"] = draw.choice([[128], [144, 176], [208, 128, 144]]), draw.randint(64, 400)
        data["background"] = draw.choice([0, 0.4, 0.6, 0.9])
    if data["form"] == "flat":  # whose shape is not told
        data["shape"] = [1, 1, data["shape"][1] * data["shape"][2]]
    return data, {"mlp": {"hidden": hidden}}


def lenet(draw):
    data = images(draw, draw.choice([1, 2, 3]), 4, 20)
    if data["form"] == "flat":
        data["form"] = "planes"
    kernel = draw.choice([1, 2, 3, 3, 3, 4, 5])
    pool = [draw.choice([1, 2]), draw.choice([1, 2])]
    padding = draw.random() < 0.6
    data["shape"][1:] = [large_enough(side, kernel, padding, pool) for side in data["shape"][1:]]
    channels = draw.choice([[draw.randint(1, 9), draw.randint(1, 17)], [6, 16], [16, draw.choice([16, 17, 24])]])
    data["train"] = min(data["train"], 90)
    return data, {"lenet": {"kernel": kernel, "channels": channels, "padding": padding,
                            "hidden": draw.choice([[], [draw.randint(3, 50)], [48, 24], [draw.choice([8, 12, 36])]]),
                            "pool": pool}}


def large_enough(side, kernel, padding, pool):
    """That the convolutions leave something of."""
    left = side + 2 * (kernel // 2 if padding else 0)
    for each in pool:
        left = (left - kernel + 1) // each
    return side if left >= 1 else large_enough(side + 1, kernel, padding, pool)


def gpt(draw):
    form = draw.choice(["text", "u16", "header"])
    heads = draw.choice([1, 2, 3, 4, 4, 6])
    context = draw.choice([2, 5, 7, 16, 31, 33, 40, 64])
    data = {"kind": "tokens", "seed": draw.randrange(1 << 30), "train": draw.randint(5, 30), "test": draw.choice([0, draw.randint(1, 12)]),
            "vocabulary": draw.choice([draw.randint(5, 60), 64, draw.randint(65, 250)]), "context": context,
            "rest": draw.randrange(context), "form": form}
    width = heads * draw.choice([1, 3, 4, 5, 8, 8, 16])
    told = draw.choice([0, data["vocabulary"], data["vocabulary"] + 7])
    return data, {"gpt": {"layers": draw.randint(1, 3), "heads": heads, "width": max(width, 2), "context": context, "vocabulary": told}}


def spec(draw, data, model, kind):
    epoch_samples = draw.choice([0, 0, 0, draw.randint(4, 2 * data["train"])])
    samples = epoch_samples or data["train"]
    batch = draw.choice([draw.randint(1, samples), draw.randint(max(1, samples // 5), max(1, samples // 2)), max(1, samples // 3)])
    steps_per_epoch = -(-samples // batch)
    most = 25 if kind == "mlp" else 14
    epochs = draw.choice([1, 2, 3, draw.choice([0.5, 1.5, 2.3])])
    if epochs * steps_per_epoch > most:
        batch = max(batch, -(-samples * 3 // most))
        steps_per_epoch = -(-samples // batch)
    checkpoint = {"steps": draw.choice([0, 1, 2, 3, 5]), "epochs": draw.choice([1, 0.5, 2]), "keep": draw.choice([1, 3, 100]), "from": ""}
    return {
        "model": model, "data": None,
        "strategy": {"kind": "single"}, "batch": batch, "scaling": "strong",
        "micro-batch": draw.choice([0, 0, 0, draw.randint(1, max(1, batch))]), "precision": draw.choice(["auto", "fp32"]),
        "epochs": epochs, "steps": draw.choice([0, 0, draw.randint(1, most)]), "epoch-samples": epoch_samples,
        "optimizer": optimizer(draw, kind), "schedule": schedule(draw, batch, steps_per_epoch),
        "clip": draw.choice([0, 0, 10 ** draw.uniform(-1.5, 0.7)]),
        "checkpoint": checkpoint, "seed": draw.choice([42, draw.randrange(1 << 32), draw.randrange(1 << 64)]),
        "threads": 1, "deadline": 30.0}


def optimizer(draw, kind):
    made = {"kind": draw.choice(["sgd", "sgd", "adam", "adamw"]), "learning-rate": 0.0, "momentum": 0.0, "nesterov": False,
            "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight-decay": draw.choice([0, 0, 10 ** draw.uniform(-4, -1)])}
    if made["kind"] == "sgd":
        made["momentum"] = draw.choice([0.0, 0.0, 0.9, round(draw.uniform(0.1, 0.95), 3)])
        made["nesterov"] = made["momentum"] > 0 and draw.random() < 0.5
        made["learning-rate"] = 10 ** draw.uniform(-2.5, -0.9 if made["momentum"] < 0.5 else -1.6)
        return made
    made["learning-rate"] = 10 ** draw.uniform(-4, -2.2)
    made["beta1"] = draw.choice([0.9, 0.0, round(draw.uniform(0.3, 0.95), 3)])
    made["beta2"] = draw.choice([0.999, 0.99, round(draw.uniform(0.5, 0.9999), 4)])
    made["epsilon"] = draw.choice([1e-8, 1e-6, 1e-3])
    return made


def schedule(draw, batch, steps_per_epoch):
    return {"kind": draw.choice(["constant", "step", "cosine", "linear"]),
            "warm-up-epochs": draw.choice([0, 0, round(draw.uniform(0.1, 1.5), 2)]),
            "warm-up-steps": draw.choice([0, 0, draw.randint(1, 6)]),
            "every-epochs": draw.choice([1, round(draw.uniform(0.1, 1.2), 1)]),
            "every-steps": draw.choice([0, draw.randint(1, 2 * steps_per_epoch)]), "factor": draw.choice([0.1, 0.5, 0.9]),
            "final": draw.choice([0, 0.1, 0.5]), "scale-with-batch": draw.choice([0, 0, batch, max(1, batch // 2), 2 * batch])}


def twice(draw, *ways):
    """Who is killed, is so at a line of the master's or at a checkpoint."""
    way = draw.choice([None, *ways])
    return f"{way} at {draw.choice(['memory', 'epoch=', 'checkpoint', 'checkpoint'])}" if way and "killed" in way else way


def same_bits(draw, made):
    """Threads, devices, workers and servers that promise the bits of one thread."""
    kind = draw.choice(["single", "mirrored", "central-storage", "multi-worker-mirrored", "multi-worker-mirrored",
                        "parameter-server", "parameter-server", "pipeline"])
    workers = draw.randint(1, busy(made, 4))
    threads = draw.randint(1, PARTICIPANTS // workers) if draw.random() < 0.6 else 1
    run = {"workers": 1, "servers": 0, "changes": {"threads": threads, "strategy": {"kind": kind}}, "against": ["first"],
           "twice": twice(draw, "killed", "from")}
    changes, strategy = run["changes"], run["changes"]["strategy"]
    if kind == "single":
        changes["threads"] = draw.randint(2, PARTICIPANTS)
    elif kind in ("mirrored", "central-storage"):
        strategy["devices"] = draw.randint(1, PARTICIPANTS)
    elif kind == "pipeline":
        return pipeline(draw, made, PARTICIPANTS)
    else:
        run["workers"] = workers
        if kind == "parameter-server":
            run["servers"] = draw.randint(1, 3)
            strategy.update({"mode": "sync", "data-path": draw.choice(["raw", "raw", "grpc"])})
            run["twice"] = twice(draw, "killed", "servers killed", "from")
        else:
            strategy["bucket-mb"] = draw.choice([0, 0.001, 0.01, 1])
        changes.update(spread(draw, made["spec"], workers))
    return run


def busy(made, most):
    """How many workers a batch has something for: more are refused."""
    return min(most, made["spec"]["batch"])


def spread(draw, spec, copies):
    """The same batch, said as that of each worker."""
    if copies > 1 and spec["batch"] % copies == 0 and draw.random() < 0.5:
        return {"scaling": "weak", "batch": spec["batch"] // copies}
    return {}


def stages(model):
    (kind, options), = model.items()
    return options["layers"] if kind == "gpt" else len(options["hidden"]) + 1 + (2 if kind == "lenet" else 0)


def pipeline(draw, made, pieces):
    """Up to so many pieces of a batch. Up to PARTICIPANTS of them have the bits of one process."""
    batch = made["spec"]["batch"]
    workers = draw.randint(1, min(4, stages(made["spec"]["model"])))
    threads = draw.choice([1, 1, 2])
    micro_batches = draw.choice([each for each in (1, 2, 3, 4, 5, 8) if each * threads <= pieces and each <= batch
                                 and (1 << (each - 1).bit_length()) * threads <= pieces] or [1])
    exact = ("gpt" not in made["spec"]["model"] and not made["spec"]["clip"] and not made["spec"]["micro-batch"]
             and (1 << (micro_batches - 1).bit_length()) * threads <= PARTICIPANTS)
    return {"workers": workers, "servers": 0, "against": ["first"] if exact else ["oracle"],
            "changes": {"threads": threads, "micro-batch": 0, "strategy": {"kind": "pipeline", "micro-batches": micro_batches}},
            "twice": twice(draw, "again", "killed", "from")}


def parts_of(made, most):
    """Into how many the layers of the model can be sliced."""
    (kind, options), = made["spec"]["model"].items()
    widths = [options["heads"], options["width"]] if kind == "gpt" else options["hidden"]
    return [n for n in range(1, most + 1) if all(width % n == 0 for width in widths)]


def rounded(draw, made, kind):
    """What is equal to rounding, and the same every time."""
    strategy = draw.choice(["tensor", "mesh", "mesh", "pipeline", "async", "ssp"])
    again = twice(draw, "again", "killed", "from")
    run = {"workers": 1, "servers": 0, "changes": {"threads": draw.choice([1, 1, 2, 3])}, "against": ["oracle"], "twice": again}
    if strategy == "tensor":
        run["workers"] = max(parts_of(made, 4)) if draw.random() < 0.7 else draw.choice(parts_of(made, 4))
        run["changes"]["strategy"] = {"kind": "tensor"}
    elif strategy == "mesh":
        model = draw.choice(parts_of(made, 3))
        rows = draw.randint(1, busy(made, 2 if model > 1 else 4))
        run["workers"] = rows * model
        run["changes"]["strategy"] = {"kind": "mesh", "mesh-data": rows, "mesh-model": model}
        run["changes"].update(spread(draw, made["spec"], rows))
    elif strategy == "pipeline":
        return pipeline(draw, made, 16)
    else:  # of one worker, which meets its own updates alone
        apply_every = draw.choice([1, 2, 3, 5])
        run["servers"] = draw.randint(1, 3)
        run["changes"]["strategy"] = {"kind": "parameter-server", "mode": strategy, "staleness": draw.randint(0, 4),
                                      "apply-every": apply_every, "data-path": draw.choice(["raw", "grpc"])}
        # A checkpoint may lack what was not pushed yet.
        run["twice"] = twice(draw, "again", "killed", "servers killed", "from") if apply_every == 1 else twice(draw, "again")
    return run


def in_pieces(draw, made):
    """Another micro-batch sums in another order."""
    batch = made["spec"]["batch"]
    return {"workers": draw.randint(1, busy(made, 3)), "servers": 0, "against": ["oracle"], "twice": twice(draw, "again", "killed"),
            "changes": {"threads": draw.choice([1, 2, 9, 16]), "micro-batch": draw.randint(1, batch),
                        "strategy": {"kind": "multi-worker-mirrored", "bucket-mb": draw.choice([0, 0.001])}}}


def merged(spec, changes):
    made = copy.deepcopy(spec)
    for key, value in changes.items():
        made[key] = {**made[key], **value} if isinstance(value, dict) and key != "strategy" else copy.deepcopy(value)
    return made
