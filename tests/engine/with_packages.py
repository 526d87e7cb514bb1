"""Reads with the safetensors and tensorboard packages what formats/packages_test.cc has written.

    with_packages.py FOLDER
"""
import os
import shutil
import sys
from pathlib import Path

import numpy
from safetensors import safe_open
from safetensors.numpy import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

folder = Path(sys.argv[1])


def curve(logs):
    events = EventAccumulator(str(logs))
    events.Reload()
    if "loss" not in events.Tags()["scalars"]:
        return []
    return [(event.step, event.value) for event in events.Scalars("loss")]


def check_tensors(path):
    tensors = load_file(path)
    assert sorted(tensors) == ["a.bias", "a.weight", "none"], tensors
    assert numpy.array_equal(tensors["a.weight"], numpy.arange(6, dtype=numpy.float32).reshape(2, 3) / 8)
    assert tensors["a.bias"].tolist() == [-1] and tensors["none"].shape == (0, 4)


check_tensors(folder / "model.safetensors")
with safe_open(folder / "model.safetensors", "np") as file:
    assert file.metadata() == {"format": "pt", "input_mean": "0.5"}, file.metadata()
check_tensors(folder / "checkpoints/step-00000004/model.safetensors")
assert load_file(folder / "checkpoints/step-00000004/optimizer.safetensors")["state0.a.bias"].tolist() == [-1]

assert load_file(folder / "none.safetensors") == {}

# Steps 5 and 6 of the training that was lost are not there, and none is twice.
wanted = [(step, numpy.float32(1 / step)) for step in range(1, 5)]
wanted += [(step, numpy.float32(2 / step)) for step in range(5, 9)]
assert curve(folder / "logs") == wanted, curve(folder / "logs")

# A file that ends anywhere shows what was whole.
first = sorted((folder / "logs").iterdir())[0]
whole = first.read_bytes()
torn = folder / "torn"
seen = set()
for length in range(len(whole)):
    shutil.rmtree(torn, ignore_errors=True)
    torn.mkdir()
    (torn / first.name).write_bytes(whole[:length])
    points = curve(torn)
    assert points == [(step, numpy.float32(1 / step)) for step in range(1, len(points) + 1)], points
    seen.add(len(points))
assert seen == set(range(6)), seen
print(f"{len(whole)} cuts, {os.path.getsize(folder / 'model.safetensors')} bytes of tensors")
