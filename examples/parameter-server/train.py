"""Asynchronous training with parameter servers, in nothing but Python's standard library.

Who this process is comes from TF_CONFIG, exactly as TensorFlow reads it: a `ps` serves parameters until
it is told to stop, a `worker` learns from its part of the digits, and worker 0 (the master) also tests
the model after each epoch and writes it to OUTPUT_DIR. Without TF_CONFIG it does everything alone.
"""
import argparse
import csv
import json
import os
import random
import signal
import sys
import time

import digits
from model import Model
from parameters import LocalParameters, RemoteParameters, Server, split_address

HIDDEN = 32
BATCH = 16


def say(**facts):
    print(" ".join("%s=%s" % fact for fact in facts.items()), flush=True)


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learning-rate", type=float,
                        default=float(os.environ.get("LEARNING_RATE", 0.1)))
    parser.add_argument("--epochs", type=int, default=int(os.environ.get("EPOCHS", 12)))
    parser.add_argument("--data", default="digits", help="folder of IDX files; drawn when missing")
    return parser.parse_args()


def cluster():
    """(type of this process, its index, addresses of the servers, number of workers)"""
    config = json.loads(os.environ.get("TF_CONFIG") or "{}")
    if not config:
        return "worker", 0, [], 1, None
    members, task = config["cluster"], config["task"]
    own = members[task["type"]][task["index"]]
    return task["type"], task["index"], members.get("ps", []), len(members["worker"]), own


def serve(index, address):
    server = Server(split_address(address))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    say(role="ps", index=index, listening=address)
    try:
        server.serve_forever(poll_interval=60)
    except SystemExit:
        say(role="ps", index=index, updates=server.updates, ended="asked")
        raise


def learn(args, index, servers, workers):
    model = Model(digits.PIXELS, HIDDEN, 10)
    master = index == 0
    samples = digits.load(args.data, "train")[index::workers]
    test = digits.load(args.data, "test") if master else []
    parameters = RemoteParameters(servers, model.size) if servers else LocalParameters(model.size)
    say(role="master" if master else "worker", index=index, workers=workers, servers=len(servers),
        samples=len(samples), parameters=model.size)
    if master:
        parameters.initialise(model.initial(seed=7))

    rng = random.Random(100 + index)
    values = parameters.pull()
    started = time.monotonic()
    history = []
    for epoch in range(1, args.epochs + 1):
        rng.shuffle(samples)
        losses = []
        for start in range(0, len(samples), BATCH):
            gradient, loss = model.gradient(values, samples[start:start + BATCH])
            values = parameters.push(gradient, args.learning_rate)
            losses.append(loss)
        train_loss = sum(losses) / len(losses)
        if master:
            loss, accuracy = model.evaluate(values, test)
            history.append((epoch, train_loss, loss, accuracy))
            say(epoch=epoch, updates=parameters.updates, train_loss="%.4f" % train_loss,
                loss="%.4f" % loss, accuracy="%.4f" % accuracy,
                seconds="%.1f" % (time.monotonic() - started))
        else:
            say(epoch=epoch, train_loss="%.4f" % train_loss)
    if master:
        save(args, model, parameters.pull(), test, history)


def save(args, model, values, test, history):
    """The model as JSON and the course of the training as CSV, each whole or not at all."""
    loss, accuracy = model.evaluate(values, test)
    directory = os.environ.get("OUTPUT_DIR", ".")
    path = os.path.join(directory, "model.json")
    with open(path + ".part", "w") as file:
        json.dump({"inputs": model.inputs, "hidden": model.hidden, "outputs": model.outputs,
                   "learning_rate": args.learning_rate, "accuracy": accuracy,
                   "parameters": [round(value, 6) for value in values]}, file)
    os.replace(path + ".part", path)
    with open(os.path.join(directory, "metrics.csv"), "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("epoch", "train_loss", "loss", "accuracy"))
        rows.writerows(history)
    say(test_loss="%.4f" % loss, test_accuracy="%.4f" % accuracy, model=path)


def main():
    args = options()
    kind, index, servers, workers, address = cluster()
    if kind == "ps":
        serve(index, address)
    elif workers > 1 and not servers:
        sys.exit("several workers need at least one ps: set `ps: 1` under `distributed`")
    else:
        learn(args, index, servers, workers)


if __name__ == "__main__":
    main()
