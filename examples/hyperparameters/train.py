"""Learns to tell two interleaved half moons apart: how well depends on the two hyperparameters."""
import argparse
import json
import math
import os
import random


def moons(count, rng):
    """[(x, y, which moon)]"""
    points = []
    for index in range(count):
        angle, moon = rng.uniform(0, math.pi), index % 2
        x, y = (math.cos(angle), math.sin(angle)) if moon else (1 - math.cos(angle),
                                                                0.5 - math.sin(angle))
        points.append((x + rng.gauss(0, 0.12), y + rng.gauss(0, 0.12), moon))
    return points


class Network:
    """Two inputs, one hidden layer, one probability."""

    def __init__(self, hidden, rng):
        self.units = [[rng.gauss(0, 1), rng.gauss(0, 1), 0.0, rng.gauss(0, 0.5)]
                      for _ in range(hidden)]
        self.bias = 0.0

    def probability(self, x, y):
        score = self.bias
        for weight_x, weight_y, bias, out in self.units:
            score += out * math.tanh(weight_x * x + weight_y * y + bias)
        return 1 / (1 + math.exp(-max(-30.0, min(30.0, score))))

    def learn(self, x, y, moon, rate):
        error = self.probability(x, y) - moon
        for unit in self.units:
            active = math.tanh(unit[0] * x + unit[1] * y + unit[2])
            back = error * unit[3] * (1 - active * active)
            unit[3] -= rate * error * active
            unit[0] -= rate * back * x
            unit[1] -= rate * back * y
            unit[2] -= rate * back
        self.bias -= rate * error


def evaluate(network, points):
    loss, right = 0.0, 0
    for x, y, moon in points:
        probability = network.probability(x, y)
        loss -= math.log(max(1e-12, probability if moon else 1 - probability))
        right += (probability > 0.5) == bool(moon)
    return loss / len(points), right / len(points)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learning-rate", type=float, required=True)
    parser.add_argument("--hidden", type=int, required=True)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    rng = random.Random(1)
    train, test = moons(2000, rng), moons(500, rng)
    network = Network(args.hidden, rng)
    for epoch in range(1, args.epochs + 1):
        rng.shuffle(train)
        for x, y, moon in train:
            network.learn(x, y, moon, args.learning_rate)
        loss, accuracy = evaluate(network, test)
        print("epoch=%d loss=%.4f accuracy=%.4f" % (epoch, loss, accuracy), flush=True)

    path = os.path.join(os.environ.get("OUTPUT_DIR", "."), "result.json")
    with open(path, "w") as file:
        json.dump({"learning_rate": args.learning_rate, "hidden": args.hidden, "loss": loss,
                   "accuracy": accuracy}, file)
    print("result=%s" % path)


if __name__ == "__main__":
    main()
