"""Training as TensorFlow 1 programs do it, through tf.compat.v1, in one of two ways.

between-graph: every worker builds its own graph, with the variables on the parameter server
    (replica_device_setter), and SyncReplicasOptimizer makes one step of all their gradients.
in-graph: worker 0 alone builds one graph, with a tower on each worker; the others only serve.
"""

import argparse
import json
import os
import threading

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow.compat.v1 as tf

tf.logging.set_verbosity(tf.logging.ERROR)
tf.disable_v2_behavior()

FEATURES, BATCH, RATE = 8, 32, 0.1
WEIGHTS = np.arange(1, FEATURES + 1, dtype=np.float32)[:, None]


def batch_of(worker):
    """A batch of a linear relation, other examples on each worker, drawn within the graph."""
    points = tf.random.normal((BATCH, FEATURES), seed=worker + 1)
    noise = tf.random.normal((BATCH, 1), stddev=0.01, seed=worker + 101)
    return points, points @ tf.constant(WEIGHTS) + noise


def loss_of(worker, weights):
    points, values = batch_of(worker)
    return tf.reduce_mean(tf.square(points @ weights - values))


def train_until_stopped(session, loss, step):
    shown = None
    while not session.should_stop():
        value, count = session.run([loss, step])
        if shown is None or count >= shown + 50:
            print(f"step={count} loss={value:.5f}")
            shown = count
    print(f"last-loss={value:.5f}")


def between_graph(server, cluster, index, options, folder):
    workers = cluster.num_tasks("worker")
    device = tf.train.replica_device_setter(
        worker_device=f"/job:worker/task:{index}", cluster=cluster
    )
    with tf.device(device):
        step = tf.train.get_or_create_global_step()
        weights = tf.get_variable("weights", (FEATURES, 1), initializer=tf.zeros_initializer())
        loss = loss_of(index, weights)
        optimizer = tf.train.SyncReplicasOptimizer(
            tf.train.GradientDescentOptimizer(RATE),
            replicas_to_aggregate=workers,
            total_num_replicas=workers,
        )
        train = optimizer.minimize(loss, global_step=step)
        with tf.control_dependencies([train]):
            loss = tf.identity(loss)
    print(f"weights-on={weights.device}")
    threading.excepthook = lambda _: None  # that thread, when its session is gone
    hooks = [
        optimizer.make_session_run_hook(is_chief=index == 0, num_tokens=0),
        tf.train.StopAtStepHook(last_step=options.steps),
    ]
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=index == 0,
        checkpoint_dir=folder,
        hooks=hooks,
        stop_grace_period_secs=1,  # for the thread that hands out tokens, which waits for ever
    ) as session:
        train_until_stopped(session, loss, step)


def in_graph(server, cluster, index, options, folder):
    if index > 0:
        server.join()
    with tf.device("/job:ps/task:0"):
        step = tf.train.get_or_create_global_step()
        weights = tf.get_variable("weights", (FEATURES, 1), initializer=tf.zeros_initializer())
    losses = []
    for worker in range(cluster.num_tasks("worker")):
        with tf.device(f"/job:worker/task:{worker}"):
            losses.append(loss_of(worker, weights))
            print(f"tower={worker} on={losses[-1].device}")
    with tf.device("/job:worker/task:0"):
        loss = tf.add_n(losses) / len(losses)
        train = tf.train.GradientDescentOptimizer(RATE).minimize(loss, global_step=step)
        with tf.control_dependencies([train]):
            loss = tf.identity(loss)
    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=True,
        checkpoint_dir=folder,
        hooks=[tf.train.StopAtStepHook(last_step=options.steps)],
    ) as session:
        train_until_stopped(session, loss, step)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=["between-graph", "in-graph"], default="between-graph")
    parser.add_argument("--steps", type=int, default=200)
    options = parser.parse_args()

    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    cluster = tf.train.ClusterSpec(config["cluster"])
    server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
    served = server.server_def
    sizes = " ".join(f"{job}={cluster.num_tasks(job)}" for job in sorted(cluster.jobs))
    print(f"tensorflow={tf.__version__} task={served.job_name}:{served.task_index} {sizes}")
    if task["type"] == "ps":
        server.join()
    train = between_graph if options.mode == "between-graph" else in_graph
    folder = os.path.join(os.environ["OUTPUT_DIR"], "checkpoints")
    train(server, cluster, task["index"], options, folder)
    if task["index"] == 0:
        print(f"saved={tf.train.latest_checkpoint(folder)}")


if __name__ == "__main__":
    main()
