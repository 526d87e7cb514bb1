"""Plays a case and says where trainings differ that should not."""
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch

import draw
import files
import oracle
import samples
from gang import Failed, Gang

# Of how far a tensor went from its first values; of the tensor; and of what floats by PyTorch are off.
OF_THE_WAY, OF_THE_VALUES, OF_FLOATS = 3e-5, 3e-7, 10
LOSS = 2e-6
# Winograd's sums are rounded by the size of the tensor, and Adam goes by the size of each element.
OF_THE_WAY_BY_WINOGRAD = 1e-3


class Difference(Exception):
    def __init__(self, run, text):
        super().__init__(text)
        self.run = run


class Played:
    """What was done in a case. Owner: whoever plays it; ends with its folder."""

    def __init__(self, engine, case):
        self.engine, self.case, self.trainings, self.broken, self.widest = engine, case, 0, 0, 0.0
        self.folder = Path(tempfile.mkdtemp(prefix="dtrain-differential-"))
        self.sets = samples.write(self.folder, case["data"])
        self.oracles, self.first = {}, None

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def play(self):
        """All runs; what differs, in order."""
        found = []
        for number, run in enumerate(self.case["runs"]):
            try:
                self.check(number, run)
            except (Failed, Difference) as problem:
                found.append((number, str(problem)))
        return found

    def check(self, number, run):
        output = self.folder / f"out{number}"
        self.train(run, output)
        result = contents(output)
        if number == 0:
            self.first = result
        if "first" in run["against"]:
            if self.first is None:
                raise Difference(run, "the first training has ended badly")
            same(result, self.first, run, "one process with one thread")
        if "oracle" in run["against"]:
            self.beside_oracle(run, output, result)
        if run["twice"]:
            second = self.folder / f"out{number}-again"
            self.train_again(run, output, second)
            same(contents(second), result, run, f"itself ({run['twice']})")

    def gang(self, run, output, more=None):
        spec = draw.merged(self.case["spec"], run["changes"])
        spec["data"] = samples.paths(self.case["data"])
        self.trainings += 1
        return Gang(self.engine, self.folder, draw.merged(spec, more or {}), run, output, self.case["isa"])

    def train(self, run, output, more=None):
        with self.gang(run, output, more) as gang:
            gang.start()
            gang.finish()

    def train_again(self, run, output, second):
        way = run["twice"]
        if way == "again":
            return self.train(run, second)
        if way == "from":
            found = sorted((output / "checkpoints").glob("step-*"))
            if len(found) < 2:  # nothing would be left to train
                return self.train(run, second)
            return self.train(run, second, {"checkpoint": {"from": str(found[0])}})
        who, moment = way.split(" at ")
        with self.gang(run, second) as gang:
            gang.start()
            gang.run_until_checkpoint() if moment == "checkpoint" else gang.run_until(moment)
            self.broken += gang.trains()
            if who == "killed":
                gang.kill()
                gang.start("2")
            else:
                gang.kill("ps")
                for i in range(gang.servers):
                    gang.start_one("ps", i, "2")
            gang.finish()

    def trained(self, apply_every, dtype, turned=False):
        key = apply_every, dtype, turned
        if key not in self.oracles:
            self.oracles[key] = oracle.train(self.case["spec"], self.case["data"], *self.sets, apply_every, dtype, turned)
        return self.oracles[key]

    def beside_oracle(self, run, output, result):
        apply_every = run["changes"].get("strategy", {}).get("apply-every", 1)
        exact, floats = (self.trained(apply_every, dtype) for dtype in (torch.float64, torch.float32))
        try:
            self.compare(run, output, result, exact, floats)
        except Difference:
            # Rounding may have decided on which side of a ReLU's corner something is: how much that changes, a training
            # tells that takes all of these for the other side.
            self.compare(run, output, result, exact, self.trained(apply_every, torch.float64, turned=True))

    def compare(self, run, output, result, exact, floats):
        """`floats`: whose distance from `exact` is how sensitive the training is."""
        model = result["model"]
        if model.keys() != exact.last.keys():
            raise Difference(run, f"tensors {sorted(model.keys() ^ exact.last.keys())} are of one side only")
        of_the_way = OF_THE_WAY_BY_WINOGRAD if by_winograd_and_adam(self.case["spec"]) else OF_THE_WAY
        worst = []
        for name, value in model.items():
            wanted, start, by_floats = exact.last[name], exact.first[name].astype(np.float64), floats.last[name]
            if value.shape != wanted.shape:
                raise Difference(run, f"{name} has the shape {value.shape}, the oracle's {wanted.shape}")
            value, wanted, start, by_floats = (without_moot(self.case["spec"], name, each) for each in (value, wanted, start, by_floats))
            norm = np.linalg.norm
            allowed = of_the_way * norm(wanted - start) + OF_THE_VALUES * norm(wanted) + OF_FLOATS * norm(by_floats - wanted)
            worst.append((norm(value - wanted) / max(allowed, 1e-9), name, norm(value - wanted), norm(wanted - start),
                          norm(by_floats - wanted)))
        ratio, name, off, way, by_floats = max(worst)
        if not ratio <= 1:
            raise Difference(run, f"{name} is off by {off:.3g} of a way of {way:.3g} from the oracle "
                                  f"(by rounding: {by_floats:.3g}), {ratio:.3g} times what is allowed")
        self.widest = max(self.widest, ratio)
        self.losses_beside(run, output, exact, floats)

    def losses_beside(self, run, output, exact, floats):
        begin = 0
        for tag, step, value in files.scalars(output):
            if tag == "loss":
                wanted, by_floats = exact.loss(begin, step), floats.loss(begin, step)
                begin = step
            elif tag == "test_loss":
                wanted, by_floats = exact.tests[step][0], floats.tests[step][0]
            elif tag == "accuracy":  # two guesses may be as likely but for rounding
                rows = np.size(self.sets[1][1])
                if not abs(value - exact.tests[step][1]) <= 2.01 / rows:
                    raise Difference(run, f"accuracy after step {step} is {value:.6g}, the oracle's {exact.tests[step][1]:.6g}")
                continue
            else:
                continue
            if not abs(value - wanted) <= LOSS * max(1, abs(wanted)) + OF_FLOATS * abs(by_floats - wanted):
                raise Difference(run, f"{tag} after step {step} is {value:.7g}, the oracle's {wanted:.7g}")
        if begin != len(exact.losses):
            raise Difference(run, f"the last loss is of step {begin}, and there are {len(exact.losses)}")


def by_winograd_and_adam(spec):
    lenet = spec["model"].get("lenet")
    return spec["optimizer"]["kind"] != "sgd" and lenet is not None and lenet["kernel"] == 3 and min(lenet["channels"]) >= 16


def without_moot(spec, name, value):
    """Where a gradient is nothing but rounding Adam goes as far by it as by any other: the bias of keys, which adds the
    same to all that a softmax is over."""
    if spec["optimizer"]["kind"] == "sgd" or not name.endswith("attn.c_attn.bias"):
        return value
    width = value.shape[0] // 3
    return np.concatenate([value[:width], value[2 * width:]])


def contents(output):
    """What a training ended with: the model, and what its last checkpoint keeps."""
    last = sorted((output / "checkpoints").glob("step-*"))[-1]
    optimizer = last / "optimizer.safetensors"
    return {"model": files.tensors(output / "model.safetensors"), "saved": files.tensors(last / "model.safetensors"),
            "optimizer": files.tensors(optimizer) if optimizer.exists() else {}, "step": last.name}


def same(got, wanted, run, whose):
    if got["step"] != wanted["step"]:
        raise Difference(run, f"the last checkpoint is {got['step']}, of {whose} {wanted['step']}")
    for part in ("model", "saved", "optimizer"):
        if got[part].keys() != wanted[part].keys():
            raise Difference(run, f"{part} has other tensors than {whose}")
        for name, value in got[part].items():
            other = wanted[part][name]
            if value.tobytes() == other.tobytes():
                continue
            count = int((value.view(np.uint32) != other.view(np.uint32)).sum())
            raise Difference(run, f"{part} {name}: {count} of {value.size} values have other bits than {whose}, "
                                  f"the largest difference is {np.abs(value - other).max():.3g}")
