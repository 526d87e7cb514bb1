"""Trains ten steps beside PyTorch from the same weights and compares losses, gradients and weights; and
reads what the engine writes with the real safetensors and tensorboard packages.

    with_pytorch.py ENGINE      with a python that has torch, safetensors and tensorboard
"""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

ENGINE = os.path.abspath(sys.argv[1])
STEPS = 10
checked = 0


def check(what, difference, most):
    global checked
    checked += 1
    print(f"  {what}: {difference:.2e} (at most {most:.0e})")
    if not difference <= most:
        sys.exit(f"{what} differs by {difference}, more than {most}")


def difference(a, b):
    """The norm of the difference, of the norm of b."""
    return ((a - b).norm() / (b.norm() + 1e-12)).item()


def train(folder, spec):
    """One step is one epoch on all samples: their order means nothing. Returns the losses by step."""
    # Unless said otherwise, the checkpoint after step 1 is where both begin.
    spec = {"steps": STEPS + 1, "checkpoint": {"steps": 1, "keep": STEPS + 1}, **spec, "threads": 1}
    env = {**os.environ, "DTRAIN_ENGINE": json.dumps(spec), "OUTPUT_DIR": str(folder / "out")}
    env.pop("TF_CONFIG", None)
    run = subprocess.run([ENGINE, "train"], cwd=folder, env=env, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(run.stderr)
    lines = [line for line in run.stdout.splitlines() if line.startswith("epoch=")]
    return [float(dict(pair.split("=") for pair in line.split())["loss"]) for line in lines]


def weights(folder, step):
    return load_file(folder / f"out/checkpoints/step-{step:08}/model.safetensors")


def compare(name, spec, folder, model, inputs, labels, most=1e-5):
    """most: of the difference of the weights after ten steps."""
    print(name)
    losses = train(folder, spec)
    state = weights(folder, 1)
    model.load_state_dict(state)
    rate = spec["optimizer"]["learning-rate"]
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range(2, STEPS + 2):
        optimizer.zero_grad()
        logits = model(inputs)
        loss = F.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))
        loss.backward()
        if step == 2:
            # Without momentum the difference of two checkpoints is the gradient.
            after = weights(folder, 2)
            worst = 0
            for key, before in weights(folder, 1).items():
                gradient = (before - after[key]) / rate
                wanted = dict(model.named_parameters())[key].grad
                # What subtracting floats as large as the weights leaves of it.
                rounding = 1.2e-7 * before.norm() / rate
                error = ((gradient - wanted).norm() - rounding).clamp(min=0)
                worst = max(worst, (error / wanted.norm()).item())
            check("gradients", worst, 1e-4)
        optimizer.step()
        check(f"loss of step {step}", abs(loss.item() - losses[step - 1]), 1e-4)
    after = weights(folder, STEPS + 1)
    own = dict(model.named_parameters())
    check("weights after ten steps", max(difference(value, own[key].detach()) for key, value in after.items()), most)
    final = load_file(folder / "out/model.safetensors")
    assert all(torch.equal(final[key], after[key]) for key in after) and final.keys() == after.keys()
    events = EventAccumulator(str(folder / "out"))
    events.Reload()
    drawn = [event.value for event in events.Scalars("loss")]
    assert len(drawn) == STEPS + 1 and max(abs(a - b) for a, b in zip(drawn, losses)) < 1e-4, drawn


def compare_optimizer(name, optimizer, clip, make, most, folder, images, labels):
    """Both from the weights of one file, by `make` of PyTorch's: an optimizer remembers what came before."""
    print(name)
    shutil.rmtree(folder / "out", ignore_errors=True)
    torch.manual_seed(3)
    model = Mlp([784, 64, 32, 10])
    before = {key: value.clone() for key, value in model.state_dict().items()}
    save_file(before, folder / "start.safetensors")
    losses = train(folder, {"model": {"mlp": {"hidden": [64, 32]}}, "data": {"train": "data"}, "batch": len(labels),
                            "optimizer": optimizer, "clip": clip, "steps": STEPS,
                            "checkpoint": {"from": str(folder / "start.safetensors")}})
    theirs = make(model.parameters())
    for step in range(STEPS):
        theirs.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        theirs.step()
        check(f"loss of step {step + 1}", abs(loss.item() - losses[step]), 2e-4)
    after, own = load_file(folder / "out/model.safetensors"), dict(model.named_parameters())
    # Of how far the weights went.
    check("steps of the weights", max(((after[key] - own[key].detach()).norm() / (own[key].detach() - start).norm()).item()
                                      for key, start in before.items()), most)


def write_images(folder, count, generator):
    """IDX files; returns the images as the engine standardises them, and the labels."""
    pixels = torch.randint(0, 256, (count, 28, 28), dtype=torch.uint8, generator=generator)
    labels = torch.randint(0, 10, (count,), dtype=torch.uint8, generator=generator)
    labels[:10] = torch.arange(10)
    train = folder / "data"
    train.mkdir()
    (train / "train-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, 28, 28) + bytes(pixels.flatten().tolist()))
    (train / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, count) + bytes(labels.tolist()))
    values = pixels.double() / 255
    values = (values - values.mean()) / values.std(unbiased=False)
    return values.float(), labels.long()


class Lenet(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)])
        self.layers = nn.ModuleList([nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)])

    def forward(self, x):
        x = x.unsqueeze(1)
        for convolution in self.convolutions:
            x = F.max_pool2d(F.relu(convolution(x)), 2)
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Cnn(nn.Module):
    def __init__(self, channels):
        super().__init__()
        first, second = channels
        self.convolutions = nn.ModuleList([nn.Conv2d(1, first, 3), nn.Conv2d(first, second, 3)])
        self.layers = nn.ModuleList([nn.Linear(second * 12 * 12, 32), nn.Linear(32, 10)])

    def forward(self, x):
        first, second = self.convolutions
        x = F.max_pool2d(F.relu(second(F.relu(first(x.unsqueeze(1))))), 2)
        return self.layers[1](F.relu(self.layers[0](x.flatten(1))))


def cnn(channels):
    return {"lenet": {"kernel": 3, "channels": channels, "hidden": [32], "padding": False, "pool": [1, 2]}}


class Mlp(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        x = x.flatten(1)
        for layer in self.layers[:-1]:
            x = F.relu(layer(x))
        return self.layers[-1](x)


class Conv1D(nn.Module):
    """GPT-2's: the weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x):
        return x @ self.weight + self.bias


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": Conv1D(width, 3 * width), "c_proj": Conv1D(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": Conv1D(width, 4 * width), "c_proj": Conv1D(4 * width, width)})

    def forward(self, x):
        batch, context, width = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(width, 2)
        q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2) for part in parts)
        # In words that PyTorch 1.13 has too.
        later = torch.full((context, context), -torch.inf).triu(1)
        attended = (q @ k.transpose(2, 3) / k.shape[3] ** 0.5 + later).softmax(3) @ v
        x = x + self.attn["c_proj"](attended.transpose(1, 2).reshape(batch, context, width))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, width, heads, layers):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.wte(ids) + self.wpe.weight
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def main():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(5)
    sgd = {"kind": "sgd", "learning-rate": 0.05}
    with tempfile.TemporaryDirectory() as scratch:
        for name, spec, model in (
            ("mlp", {"mlp": {"hidden": [64, 32]}}, Mlp([784, 64, 32, 10])),
            ("lenet", {"lenet": {}}, Lenet()),
            ("cnn", cnn([8, 12]), Cnn([8, 12])),
        ):
            folder = Path(scratch) / name
            folder.mkdir()
            images, labels = write_images(folder, 60, generator)
            spec = {"model": spec, "data": {"train": "data"}, "batch": 60, "optimizer": sgd}
            compare(name, spec, folder, model, images, labels)
        folder = Path(scratch) / "optimizers"
        folder.mkdir()
        images, labels = write_images(folder, 60, generator)
        for name, optimizer, clip, make, most in (
            ("momentum, clipped", {"kind": "sgd", "learning-rate": 0.1, "momentum": 0.9}, 0.7,
             lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), 1e-3),
            ("Nesterov's, with weight decay",
             {"kind": "sgd", "learning-rate": 0.05, "momentum": 0.9, "nesterov": True, "weight-decay": 0.01}, 0,
             lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, weight_decay=0.01), 1e-3),
            # Where a gradient is next to nothing its sign is rounding, and Adam goes as far by it as by any other.
            ("Adam, with weight decay", {"kind": "adam", "learning-rate": 0.003, "weight-decay": 0.01}, 0,
             lambda p: torch.optim.Adam(p, lr=0.003, weight_decay=0.01), 5e-3),
            ("AdamW", {"kind": "adamw", "learning-rate": 0.003, "weight-decay": 1}, 0,
             lambda p: torch.optim.AdamW(p, lr=0.003, weight_decay=1), 5e-3),
        ):
            compare_optimizer(name, optimizer, clip, make, most, folder, images, labels)
        # Of few images: the more are pooled the likelier is one whose largest two are the same but for rounding, of
        # which each takes another. Ten steps may still meet one.
        folder = Path(scratch) / "cnn of many channels"
        folder.mkdir()
        images, labels = write_images(folder, 10, generator)
        spec = {"model": cnn([16, 17]), "data": {"train": "data"}, "batch": 10, "optimizer": sgd}
        compare(folder.name, spec, folder, Cnn([16, 17]), images, labels, most=1e-3)
        folder = Path(scratch) / "gpt"
        folder.mkdir()
        context, count = 64, 12
        text = bytes(torch.randint(32, 127, (context * count + 1,), generator=generator).tolist())
        (folder / "text.txt").write_bytes(text)
        ids = torch.tensor(list(text))
        inputs, targets = ids[:-1].view(count, context), ids[1:].view(count, context)
        spec = {"model": {"gpt": {"layers": 2, "heads": 4, "width": 64, "context": context, "vocabulary": 256}},
                "data": {"train": "text.txt"}, "batch": count, "optimizer": sgd}
        compare("gpt", spec, folder, Gpt(256, context, 64, 4, 2), inputs, targets)
    print(f"{checked} comparisons with torch {torch.__version__}")


main()
