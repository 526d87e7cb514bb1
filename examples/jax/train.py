"""Several processes fit one network with JAX, each on its part of every batch; who is who, dtrain's variables say."""
import argparse
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BATCH = 240
CHECKPOINT = "checkpoint.npz"


def spirals(seed, count):
    """Points on three spirals that wind about each other, and which of them each is on."""
    random = np.random.default_rng(seed)
    arm = random.integers(0, 3, count)
    radius = random.uniform(0.1, 1, count)
    angle = 5 * radius + arm * 2 * np.pi / 3 + random.normal(0, 0.4, count)
    points = np.stack([radius * np.cos(angle), radius * np.sin(angle)], 1)
    return points.astype(np.float32), arm.astype(np.int32)


def initial(sizes=(2, 64, 64, 3)):
    random = np.random.default_rng(7)
    return [{"weights": random.normal(0, (2 / rows) ** 0.5, (rows, columns)).astype(np.float32),
             "bias": np.zeros(columns, np.float32)} for rows, columns in zip(sizes, sizes[1:])]


def scores(layers, points):
    for layer in layers[:-1]:
        points = jax.nn.relu(points @ layer["weights"] + layer["bias"])
    return points @ layers[-1]["weights"] + layers[-1]["bias"]


def loss_of(layers, points, arms):
    chances = jax.nn.log_softmax(scores(layers, points))
    return -jnp.take_along_axis(chances, arms[:, None], 1).mean()


@jax.jit
def step(layers, velocity, points, arms, rate):
    """The batch lies in parts on all processes, the network on each: XLA sums the gradients between them."""
    loss, gradient = jax.value_and_grad(loss_of)(layers, points, arms)
    velocity = jax.tree.map(lambda v, g: 0.9 * v + g, velocity, gradient)
    return jax.tree.map(lambda p, v: p - rate * v, layers, velocity), velocity, loss


def save(path, epoch, state):
    """Whole or not at all, whenever the process ends."""
    with open(path + ".part", "wb") as file:
        np.savez(file, *jax.tree.leaves(jax.device_get(state)), epoch=epoch)
    os.replace(path + ".part", path)


def load(folders, state):
    """(epochs that are done, state) of the first checkpoint there is, or 0 and the state as given."""
    for folder in folders:
        path = os.path.join(folder, CHECKPOINT)
        if os.path.exists(path):
            with np.load(path) as saved:
                leaves = [saved[f"arr_{index}"] for index in range(len(saved.files) - 1)]
                print(f"goes on after epoch {saved['epoch']}")
                return int(saved["epoch"]), jax.tree.unflatten(jax.tree.structure(state), leaves)
    return 0, state


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--learning-rate", type=float, default=0.1)
    options.add_argument("--epochs", type=int, default=20)
    options = options.parse_args()

    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # on CPUs; GPUs use NCCL by themselves
    jax.config.update("jax_enable_preemption_service", False)  # or TERM would only be noted, and KILL end it
    jax.distributed.initialize(os.environ["JAX_COORDINATOR_ADDRESS"],
                               int(os.environ["JAX_NUM_PROCESSES"]), int(os.environ["JAX_PROCESS_ID"]))
    process, processes = jax.process_index(), jax.process_count()
    mesh = Mesh(jax.devices(), ("data",))
    everywhere, in_parts = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
    points, arms = spirals(1, 50 * BATCH)
    test_points, test_arms = spirals(2, 2_000)

    layers = initial()
    done, state = 0, (layers, jax.tree.map(np.zeros_like, layers))
    output = os.environ["OUTPUT_DIR"]
    if process == 0:  # who wrote it sees it; the hosts of others need share no directory with its own
        done, state = load([output, os.environ.get("RESUME_DIR", output)], state)
    done, state = multihost_utils.broadcast_one_to_all((done, state))
    layers, velocity = jax.device_put(state, everywhere)

    for epoch in range(int(done) + 1, options.epochs + 1):
        started = time.monotonic()
        order = np.random.default_rng(epoch).permutation(len(points))  # the same on each
        losses = []
        for batch in order.reshape(-1, BATCH):
            mine = np.array_split(batch, processes)[process]
            layers, velocity, loss = step(layers, velocity,
                                          jax.make_array_from_process_local_data(in_parts, points[mine]),
                                          jax.make_array_from_process_local_data(in_parts, arms[mine]),
                                          options.learning_rate)
            losses.append(loss)
        if process == 0:
            network = jax.device_get(layers)
            accuracy = (np.argmax(scores(network, test_points), 1) == test_arms).mean()
            print(f"epoch={epoch} loss={np.mean(jax.device_get(losses)):.4f} accuracy={accuracy:.4f} "
                  f"processes={processes} seconds={time.monotonic() - started:.1f}")
            save(os.path.join(output, CHECKPOINT), epoch, (layers, velocity))
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
