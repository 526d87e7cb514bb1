"""Writes the event files of this folder with the packages that people use: see README.md."""
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter
from tensorboard.util import tensor_util


def rename(folder, name):
    """Names hold the time and the host; the same names each time make a small diff."""
    found = [f for f in os.listdir(folder) if f.startswith("events.out.tfevents.") and f != name]
    os.rename(os.path.join(folder, found[0]), os.path.join(folder, name))


def tensorflow2(folder):
    """What Keras' TensorBoard callback leaves: a folder each for training and validation."""
    for which, offset in [("train", 0.0), ("validation", 0.5)]:
        path = os.path.join(folder, which)
        writer = tf.summary.create_file_writer(path)
        with writer.as_default():
            for step in range(5):
                tf.summary.scalar("epoch_loss", 2.0 / (step + 1) + offset, step=step)
                tf.summary.scalar("epoch_accuracy", 0.125 * step, step=step)
            tf.summary.text("note", "no number", step=0)
            tf.summary.histogram("weights", np.arange(10.0), step=0)
            tf.summary.image("picture", np.zeros([1, 4, 4, 3]), step=0)
        writer.close()
        rename(path, f"events.out.tfevents.1700000000.host.1.0.v2")


def tensorboard(folder):
    """simple_value as PyTorch's SummaryWriter has it, and tensors of each type."""
    writer = EventFileWriter(folder)
    step = 0

    def add(**value):
        nonlocal step
        step += 1
        writer.add_event(Event(step=step, wall_time=1.7e9 + step,
                               summary=Summary(value=[Summary.Value(**value)])))

    for value in [4.0, 1.0, 2.5]:
        add(tag="Loss/train", simple_value=value)
    types = {"half": np.float16, "float": np.float32, "double": np.float64, "int8": np.int8,
             "uint8": np.uint8, "int16": np.int16, "uint16": np.uint16, "int32": np.int32,
             "int64": np.int64, "uint32": np.uint32, "uint64": np.uint64, "bool": np.bool_}
    for name, dtype in types.items():
        value = True if name == "bool" else 7 if name.startswith("u") else -7
        add(tag=f"values/{name}", tensor=tensor_util.make_tensor_proto(value, dtype=dtype))
        content = tensor_util.make_tensor_proto([value], dtype=dtype, shape=[1])
        content.tensor_shape.ClearField("dim")
        for field in ["half_val", "float_val", "double_val", "int_val", "int64_val", "uint32_val",
                      "uint64_val", "bool_val"]:
            content.ClearField(field)
        content.tensor_content = np.array(value, dtype=dtype).tobytes()
        add(tag=f"content/{name}", tensor=content)
    add(tag="vector", tensor=tensor_util.make_tensor_proto([1.0, 2.0], dtype=np.float32))
    add(tag="text", tensor=tensor_util.make_tensor_proto("words", dtype="string"))
    add(tag="not/a number", simple_value=float("nan"))
    writer.close()
    rename(folder, "events.out.tfevents.1700000001.host.1.0")


root = sys.argv[1]
tensorflow2(os.path.join(root, "tensorflow2"))
tensorboard(os.path.join(root, "tensorboard"))
