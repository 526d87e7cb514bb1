"""What a training leaves: tensors and event files, read by their formats alone."""
import json
import struct
from pathlib import Path

import numpy as np


def tensors(path):
    content = Path(path).read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(content[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]],
                                np.float32).reshape(entry["shape"]) for name, entry in header.items()}


def scalars(folder):
    """[(tag, step, value)] of all event files, in order."""
    found = []
    for path in sorted(Path(folder).glob("events.out.tfevents.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            size = struct.unpack("<Q", content[at:at + 8])[0]
            found += scalar(content[at + 12:at + 12 + size])
            at += 12 + size + 4
    return found


def scalar(event):
    fields = dict(protobuf(event))
    if 5 not in fields:
        return []
    value = dict(protobuf(dict(protobuf(fields[5]))[1]))
    return [(value[1].decode(), fields.get(2, 0), struct.unpack("<f", value[2])[0])]


def protobuf(message):
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + size]
        at += size
