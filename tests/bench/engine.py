#!/usr/bin/env python3
"""Training by dtrain-engine beside PyTorch: real trainings of both, interleaved, the peer at the best of
its thread counts; medians, and their ratio. Run it with a python that has torch:

    tests/bench/engine.py [--engine build/release/bin/dtrain-engine] [--rounds 5] [--seconds 4] [NAME...]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.pop(0)  # this folder's platform.py is not the one that torch wants
CORES = len(os.sched_getaffinity(0))
WORKLOADS = {
    "mlp 784-128-10, batch 64": ({"mlp": {"hidden": [128]}}, 64),
    "mlp 784-512-512-10, batch 128": ({"mlp": {"hidden": [512, 512]}}, 128),
    "lenet, batch 64": ({"lenet": {}}, 64),
    "gpt 0.81M (V65 T64 C128 H4 L4), batch 12": (
        {"gpt": {"layers": 4, "heads": 4, "width": 128, "context": 64, "vocabulary": 65}}, 12),
    "gpt 4.84M (V256 T128 C256 H8 L6), batch 8": (
        {"gpt": {"layers": 6, "heads": 8, "width": 256, "context": 128, "vocabulary": 256}}, 8),
}


def engine(program, data, model, batch, threads, steps):
    """Samples a second, as its last line says."""
    spec = {"model": model, "data": {"train": str(data)}, "batch": batch, "threads": threads, "steps": steps,
            "optimizer": {"kind": "sgd", "learning-rate": 0.01}, "checkpoint": {"steps": steps}}
    with tempfile.TemporaryDirectory() as out:
        env = {**os.environ, "DTRAIN_ENGINE": json.dumps(spec), "OUTPUT_DIR": out}
        env.pop("TF_CONFIG", None)
        lines = subprocess.run([program, "train"], env=env, check=True, capture_output=True, text=True).stdout
    rates = [float(part.split("=")[1]) for part in lines.split() if part.startswith("samples_per_second=")]
    return statistics.median(rates)


def torch_training(data, model, batch, threads, seconds):
    """The same in PyTorch, in this process: samples a second."""
    import numpy
    import torch
    import torch.nn as nn
    import torch.nn.functional as F

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    kind, spec = next(iter(model.items()))
    if kind == "gpt":
        context, width, heads = spec["context"], spec["width"], spec["heads"]

        class Block(nn.Module):
            def __init__(self):
                super().__init__()
                self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
                self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
                self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

            def forward(self, x):
                shape = (x.shape[0], context, heads, width // heads)
                q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, 2))
                attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
                return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))

        class Gpt(nn.Module):
            def __init__(self):
                super().__init__()
                self.tokens, self.positions = nn.Embedding(spec["vocabulary"], width), nn.Embedding(context, width)
                self.blocks = nn.Sequential(*(Block() for _ in range(spec["layers"])))
                self.norm = nn.LayerNorm(width)
                for module in self.modules():
                    if isinstance(module, (nn.Linear, nn.Embedding)):
                        nn.init.normal_(module.weight, std=0.02)

            def forward(self, ids):
                x = self.tokens(ids) + self.positions.weight
                return F.linear(self.norm(self.blocks(x)), self.tokens.weight)

        net = Gpt()
        text = torch.from_numpy(numpy.fromfile(data, dtype=numpy.uint8)).long()
        windows = (len(text) - 1) // context
        inputs, labels = text[: windows * context].view(-1, context), text[1 : windows * context + 1].view(-1, context)
    else:
        pixels = numpy.fromfile(data / "train-images-idx3-ubyte", dtype=numpy.uint8)[16:]
        inputs = torch.from_numpy(pixels).view(-1, 784).float() / 255
        inputs = (inputs - inputs.mean()) / inputs.std()
        labels = torch.from_numpy(numpy.fromfile(data / "train-labels-idx1-ubyte", dtype=numpy.uint8)[8:]).long()
        if kind == "mlp":
            widths = [784, *spec["hidden"], 10]
            layers = []
            for a, b in zip(widths, widths[1:]):
                layers += [nn.Linear(a, b), nn.ReLU()]
            net = nn.Sequential(*layers[:-1])
        else:
            inputs = inputs.view(-1, 1, 28, 28)
            net = nn.Sequential(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                                nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
                                nn.ReLU(), nn.Linear(84, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    order = torch.randperm(len(labels))

    def step(i):
        ids = order[torch.arange(i * batch, (i + 1) * batch) % len(order)]
        optimizer.zero_grad(set_to_none=True)
        logits = net(inputs[ids])
        F.cross_entropy(logits.view(-1, logits.shape[-1]), labels[ids].view(-1)).backward()
        optimizer.step()

    for i in range(5):
        step(i)
    began, steps = time.perf_counter(), 0
    while time.perf_counter() - began < seconds:
        step(steps)
        steps += 1
    return steps * batch / (time.perf_counter() - began)


def peer(data, model, batch, threads, seconds):
    work = json.dumps([str(data), model, batch, threads, seconds])
    # Threads that wait shall not spin: it costs the peer most of its second core.
    env = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": str(threads)}
    run = subprocess.run([sys.executable, __file__, "--peer", work], env=env, check=True, capture_output=True, text=True)
    return float(run.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", default="build/release/bin/dtrain-engine")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4, help="of each training")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    parser.add_argument("names", nargs="*", help="workloads that begin so")
    options = parser.parse_args()
    if options.peer:
        data, model, batch, threads, seconds = json.loads(options.peer)
        print(torch_training(Path(data), model, batch, threads, seconds))
        return
    import torch

    program = os.path.abspath(options.engine)
    print(f"{CORES} cores, torch {torch.__version__}, medians of {options.rounds} interleaved rounds; samples a second\n")
    counts = sorted({1, CORES})
    heads = [f"engine {n}T" for n in counts] + [f"torch {n}T" for n in counts]
    print(f"{'':44}" + "".join(f"{head:>11}" for head in heads) + "   best / best")
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([program, "data", "digits", "--out", scratch], check=True)
        text = Path(scratch) / "text.txt"
        text.write_bytes(bytes(b % 65 for b in os.urandom(1_000_000)))
        for name, (model, batch) in WORKLOADS.items():
            if options.names and not any(name.startswith(each) for each in options.names):
                continue
            data = text if "gpt" in model else Path(scratch) / "train"
            # As many steps as take about as long.
            steps = 20
            began = time.perf_counter()
            engine(program, data, model, batch, 1, steps)
            steps = max(20, int(steps * options.seconds / (time.perf_counter() - began)))
            figures = {head: [] for head in heads}
            for _ in range(options.rounds):
                for n in counts:
                    figures[f"engine {n}T"].append(engine(program, data, model, batch, n, steps))
                    figures[f"torch {n}T"].append(peer(data, model, batch, n, options.seconds))
            medians = {head: statistics.median(values) for head, values in figures.items()}
            best = [max(value for head, value in medians.items() if head.startswith(who)) for who in ("engine", "torch")]
            print(f"{name:44}" + "".join(f"{medians[head]:>11.0f}" for head in heads) + f"   {best[0] / best[1]:.2f}x", flush=True)


main()
