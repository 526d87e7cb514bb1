"""Ray computes gradients on all nodes, each task on its part of the batch; this program sums them and takes steps."""
import argparse
import os
import time

import numpy as np
import ray

PARTS = 4
BATCH = 240
CHECKPOINT = "checkpoint.npz"


def spirals(seed, count):
    """Points on three spirals that wind about each other, and which of them each is on."""
    random = np.random.default_rng(seed)
    arm = random.integers(0, 3, count)
    radius = random.uniform(0.1, 1, count)
    angle = 5 * radius + arm * 2 * np.pi / 3 + random.normal(0, 0.4, count)
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1), arm


def initial(sizes=(2, 64, 64, 3)):
    random = np.random.default_rng(7)
    weights = [random.normal(0, (2 / rows) ** 0.5, (rows, columns)) for rows, columns in zip(sizes, sizes[1:])]
    return weights + [np.zeros(columns) for columns in sizes[1:]]


def forward(parameters, points):
    """What goes into each layer, and the scores that come out of the last."""
    inputs = [points]
    for weights, bias in zip(parameters[:3], parameters[3:]):
        inputs.append(inputs[-1] @ weights + bias)
        if len(inputs) < 4:
            np.maximum(inputs[-1], 0, out=inputs[-1])
    return inputs[:3], inputs[3]


@ray.remote(max_retries=-1)  # as often as nodes are lost
def gradient(parameters, data, chosen):
    """Of the mean loss over the chosen points; and that loss."""
    points, arms = (column[chosen] for column in data)
    inputs, scores = forward(parameters, points)
    chances = np.exp(scores - scores.max(1, keepdims=True))
    chances /= chances.sum(1, keepdims=True)
    loss = -np.log(chances[np.arange(len(arms)), arms]).mean()
    error = (chances - np.eye(3)[arms]) / len(arms)
    slopes = [None] * 6
    for layer in (2, 1, 0):
        slopes[layer], slopes[3 + layer] = inputs[layer].T @ error, error.sum(0)
        error = (error @ parameters[layer].T) * (inputs[layer] > 0)
    return slopes, loss


def save(path, epoch, parameters, velocity):
    """Whole or not at all, whenever the process ends."""
    with open(path + ".part", "wb") as file:
        np.savez(file, *parameters, *velocity, epoch=epoch)
    os.replace(path + ".part", path)


def load(folders):
    """(epochs that are done, parameters, velocity) of the first checkpoint there is, or of the beginning."""
    for folder in folders:
        path = os.path.join(folder, CHECKPOINT)
        if os.path.exists(path):
            with np.load(path) as saved:
                arrays = [saved[f"arr_{index}"] for index in range(12)]
                print(f"goes on after epoch {saved['epoch']}")
                return int(saved["epoch"]), arrays[:6], arrays[6:]
    return 0, initial(), [np.zeros_like(array) for array in initial()]


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--learning-rate", type=float, default=0.1)
    options.add_argument("--epochs", type=int, default=20)
    options = options.parse_args()

    ray.init(address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}", log_to_driver=False)
    output = os.environ["OUTPUT_DIR"]
    done, parameters, velocity = load([output, os.environ.get("RESUME_DIR", output)])
    data = ray.put(spirals(1, 50 * BATCH))  # once for all; each node has a copy of its own then
    test_points, test_arms = spirals(2, 2_000)
    for epoch in range(done + 1, options.epochs + 1):
        started = time.monotonic()
        losses = []
        for batch in np.random.default_rng(epoch).permutation(50 * BATCH).reshape(-1, BATCH):
            known = ray.put(parameters)
            found = ray.get([gradient.remote(known, data, part) for part in np.split(batch, PARTS)])
            for index in range(6):
                velocity[index] = 0.9 * velocity[index] + sum(slopes[index] for slopes, _ in found) / PARTS
                parameters[index] = parameters[index] - options.learning_rate * velocity[index]
            losses += [loss for _, loss in found]
        accuracy = (forward(parameters, test_points)[1].argmax(1) == test_arms).mean()
        nodes = sum(node["Alive"] and "CPU" in node["Resources"] for node in ray.nodes())
        print(f"epoch={epoch} loss={np.mean(losses):.4f} accuracy={accuracy:.4f} nodes={nodes} "
              f"seconds={time.monotonic() - started:.1f}")
        save(os.path.join(output, CHECKPOINT), epoch, parameters, velocity)


if __name__ == "__main__":
    main()
