"""What a case trains on: writes the files, and gives the same samples as the engine should see them."""
import random
import struct
from pathlib import Path

import numpy as np


def write(folder, data):
    """`data` of a case into a folder. Returns (train, test): inputs and labels of each; no test: None."""
    made = images if data["kind"] == "images" else tokens
    return made(Path(folder), data)


def images(folder, data):
    generator = np.random.default_rng(data["seed"])
    channels, height, width = data["shape"]
    # Classes that can be told apart, and noise.
    centres = generator.normal(size=(data["classes"], channels, height, width))
    sets = []
    for part in ("train", "test"):
        count = data[part]
        if count == 0:
            sets.append(None)
            continue
        labels = generator.integers(0, data["classes"], count)
        labels[0] = data["classes"] - 1 if part == "train" else 0
        values = centres[labels] + 1.5 * generator.normal(size=(count, channels, height, width))
        values[generator.random(values.shape) < data.get("background", 0)] = -5  # black, and less than all others
        if data["type"] == "uint8":
            values = np.clip(values * 40 + 110, 0, 255).astype(np.uint8)
        elif data["type"] == "int32":
            values = (values * 1000).astype(np.int32)
        else:
            values = values.astype(data["type"])
        save_images(folder / part, data["form"], values, labels)
        scale = 255.0 if data["type"] == "uint8" else 1.0
        sets.append([values.astype(np.float32).astype(np.float64) / scale, labels])
    mean, deviation = sets[0][0].mean(), sets[0][0].std()
    return [None if each is None else ((each[0] - mean) / deviation, each[1]) for each in sets]


def save_images(folder, form, values, labels):
    folder.mkdir(parents=True)
    count, channels, height, width = values.shape
    if form == "idx":
        begin = "train" if folder.name == "train" else "t10k"
        (folder / f"{begin}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, count, height, width) + values.tobytes())
        (folder / f"{begin}-labels-idx1-ubyte").write_bytes(
            struct.pack(">II", 0x801, count) + labels.astype(np.uint8).tobytes())
        return
    shape = {"flat": (count, -1), "planes": (count, height, width), "channels": values.shape}[form]
    np.save(folder / "images.npy", values.reshape(shape))
    np.save(folder / "labels.npy", labels.astype(np.int64))


def tokens(folder, data):
    """Inputs and labels are windows of the row of tokens."""
    draw = random.Random(data["seed"])
    sets = []
    for part in ("train", "test"):
        count = data[part]
        if count == 0:
            sets.append(None)
            continue
        # Some follow others more often, so that there is something to learn.
        row = [draw.randrange(data["vocabulary"])]
        while len(row) < count * data["context"] + 1 + data["rest"]:
            row.append((3 * row[-1] + 1) % data["vocabulary"] if draw.random() < 0.6 else draw.randrange(data["vocabulary"]))
        row[0] = data["vocabulary"] - 1
        row = np.array(row)
        path = folder / token_file(data, part)
        path.parent.mkdir(parents=True, exist_ok=True)
        if data["form"] == "text":
            path.write_bytes(row.astype(np.uint8).tobytes())
        else:
            header = np.zeros(256, np.int32)
            header[:3] = 20240520, 1, len(row)
            path.write_bytes((header.tobytes() if data["form"] == "header" else b"") + row.astype("<u2").tobytes())
        cut = lambda begin: row[begin:begin + count * data["context"]].reshape(count, data["context"])
        sets.append((cut(0), cut(1)))
    return sets


def token_file(data, part):
    return part + {"text": ".txt", "u16": ".u16.bin", "header": ".bin"}[data["form"]]


def paths(data):
    """What the spec names."""
    name = (lambda part: part) if data["kind"] == "images" else (lambda part: token_file(data, part))
    return {"train": name("train"), "test": name("test") if data["test"] else ""}
