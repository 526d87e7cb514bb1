"""Digits, drawn rather than downloaded: 12x12 grey images in the file format of MNIST (IDX).

Each digit is a few strokes. Every image gets its own shift, size, slant, turn, wobble and pen, some
pixels are lost and all get noise, so that a straight line between two classes is not enough. The same
seed draws the same images on every machine.

    python3 digits.py digits            writes the four IDX files into digits/
"""
import array
import gzip
import math
import os
import random
import struct
import sys

SIDE = 12
PIXELS = SIDE * SIDE
TRAIN_COUNT = 6000
TEST_COUNT = 1000
FILES = {
    "train-images": "train-images-idx3-ubyte.gz",
    "train-labels": "train-labels-idx1-ubyte.gz",
    "test-images": "t10k-images-idx3-ubyte.gz",
    "test-labels": "t10k-labels-idx1-ubyte.gz",
}


def arc(cx, cy, rx, ry, start, end, steps=10):
    """Points on an ellipse, angles in degrees, y grows downwards."""
    for step in range(steps + 1):
        angle = math.radians(start + (end - start) * step / steps)
        yield (cx + rx * math.cos(angle), cy + ry * math.sin(angle))


# Strokes in a box from (-1, -1) to (1, 1).
STROKES = {
    0: [list(arc(0, 0, 0.55, 0.9, 0, 360, 16))],
    1: [[(-0.35, -0.55), (0.05, -0.9), (0.05, 0.9)]],
    2: [list(arc(0, -0.45, 0.5, 0.45, -180, 30)) + [(-0.5, 0.9), (0.55, 0.9)]],
    3: [list(arc(-0.05, -0.45, 0.5, 0.45, -150, 90)), list(arc(-0.05, 0.45, 0.55, 0.45, -90, 150))],
    4: [[(0.3, 0.9), (0.3, -0.9), (-0.55, 0.35), (0.6, 0.35)]],
    5: [[(0.5, -0.9), (-0.4, -0.9), (-0.45, -0.1)], list(arc(-0.05, 0.35, 0.52, 0.53, -140, 140))],
    6: [list(arc(0.35, 0.1, 0.85, 1.0, -90, -180)), list(arc(0, 0.45, 0.5, 0.45, 0, 360, 14))],
    7: [[(-0.55, -0.9), (0.55, -0.9), (-0.15, 0.9)]],
    8: [list(arc(0, -0.45, 0.42, 0.43, 0, 360, 13)), list(arc(0, 0.45, 0.52, 0.45, 0, 360, 14))],
    9: [list(arc(0, -0.45, 0.5, 0.45, 0, 360, 14)), list(arc(-0.35, -0.1, 0.85, 1.0, 0, 90))],
}


def draw(digit, rng):
    """One image as bytes, row after row."""
    size = rng.uniform(3.7, 4.9)
    turn = rng.uniform(-0.2, 0.2)
    slant = rng.uniform(-0.2, 0.4)
    width = rng.uniform(0.85, 1.15)
    centre_x = SIDE / 2 - 0.5 + rng.uniform(-0.95, 0.95)
    centre_y = SIDE / 2 - 0.5 + rng.uniform(-0.95, 0.95)
    pen = rng.uniform(0.5, 0.9)
    cos_turn, sin_turn = math.cos(turn), math.sin(turn)

    ink = [0.0] * PIXELS
    for stroke in STROKES[digit]:
        bent = []
        for x, y in stroke:
            x, y = x * width + rng.gauss(0, 0.05), y + rng.gauss(0, 0.05)
            x -= slant * y
            bent.append((centre_x + size * (x * cos_turn - y * sin_turn),
                         centre_y + size * (x * sin_turn + y * cos_turn)))
        for (x0, y0), (x1, y1) in zip(bent, bent[1:]):
            dots = max(1, int(2.5 * math.hypot(x1 - x0, y1 - y0)))
            for dot in range(dots):
                drop_ink(ink, x0 + (x1 - x0) * dot / dots, y0 + (y1 - y0) * dot / dots, pen)
    gauss, lost = rng.gauss, rng.random
    return bytes(
        0 if lost() < 0.04 else max(0, min(255, int(255 * min(1.0, value) + gauss(0, 34))))
        for value in ink)


def drop_ink(ink, x, y, pen):
    """Spreads one dot over the four pixels around it."""
    left, top = math.floor(x), math.floor(y)
    part_x, part_y = x - left, y - top
    for row, row_part in ((top, 1 - part_y), (top + 1, part_y)):
        if 0 <= row < SIDE:
            for column, column_part in ((left, 1 - part_x), (left + 1, part_x)):
                if 0 <= column < SIDE:
                    ink[row * SIDE + column] += pen * row_part * column_part


def generate(count, seed):
    """(images, labels), in an order without pattern."""
    rng = random.Random(seed)
    labels = [index % 10 for index in range(count)]
    rng.shuffle(labels)
    return [draw(label, rng) for label in labels], labels


def write(directory):
    os.makedirs(directory, exist_ok=True)
    for part, count, seed in (("train", TRAIN_COUNT, 1), ("test", TEST_COUNT, 2)):
        images, labels = generate(count, seed)
        save(os.path.join(directory, FILES[part + "-images"]),
             struct.pack(">IIII", 0x803, count, SIDE, SIDE) + b"".join(images))
        save(os.path.join(directory, FILES[part + "-labels"]),
             struct.pack(">II", 0x801, count) + bytes(labels))


def save(path, data):
    """Whole or not at all: a half-written file never bears the final name."""
    with open(path + ".part", "wb") as file:
        # No time stamp inside, so that the same digits are the same bytes.
        with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
            packed.write(data)
    os.replace(path + ".part", path)


def read_images(path):
    with gzip.open(path) as file:
        magic, count, rows, columns = struct.unpack(">IIII", file.read(16))
        if magic != 0x803 or rows * columns != PIXELS:
            raise ValueError("%s: not an IDX file of %dx%d images" % (path, SIDE, SIDE))
        data = file.read()
    return [data[start:start + PIXELS] for start in range(0, count * PIXELS, PIXELS)]


def read_labels(path):
    with gzip.open(path) as file:
        magic, count = struct.unpack(">II", file.read(8))
        if magic != 0x801:
            raise ValueError("%s: not an IDX file of labels" % path)
        return list(file.read(count))


def load(directory, part):
    """[(pixels as floats from 0 to 1, label)] of "train" or "test"; drawn when there are no files."""
    try:
        images = read_images(os.path.join(directory, FILES[part + "-images"]))
        labels = read_labels(os.path.join(directory, FILES[part + "-labels"]))
    except FileNotFoundError:
        count, seed = (TRAIN_COUNT, 1) if part == "train" else (TEST_COUNT, 2)
        images, labels = generate(count, seed)
    return [(array.array("d", [pixel / 255 for pixel in image]), label)
            for image, label in zip(images, labels)]


if __name__ == "__main__":
    target = sys.argv[1] if len(sys.argv) > 1 else "digits"
    write(target)
    print("%s: %d images to learn from, %d to test with" % (target, TRAIN_COUNT, TEST_COUNT))
