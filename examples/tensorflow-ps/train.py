"""A classifier trained by TensorFlow's ParameterServerStrategy: one program for every role.

Which role a process has, and where the others are, TensorFlow reads from TF_CONFIG. Workers and
parameter servers serve until they are ended; the chief gives out the work and saves the model to
OUTPUT_DIR; the evaluator scores what the chief saves on the way.
"""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

CLASSES, FEATURES = 4, 16
BATCH, STEPS = 64, 40


def examples(seed, count):
    """Four clouds of points, a class each."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(0, 1.0, (CLASSES, FEATURES))
    labels = random.integers(0, CLASSES, count)
    points = centres[labels] + random.normal(0, 0.8, (count, FEATURES))
    return points.astype(np.float32), labels.astype(np.int64)


def make_model(learning_rate):
    model = tf.keras.Sequential(
        [
            tf.keras.Input((FEATURES,)),
            tf.keras.layers.Dense(32, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.SGD(learning_rate),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=10,
    )
    return model


class Report(tf.keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        print(f"epoch={epoch + 1} loss={logs['loss']:.4f} accuracy={logs['accuracy']:.4f}")


def train(resolver, options, output):
    strategy = tf.distribute.ParameterServerStrategy(
        resolver,
        variable_partitioner=tf.distribute.experimental.partitioners.FixedShardsPartitioner(2),
    )
    with strategy.scope():
        model = make_model(options.learning_rate)

    def batches(context):
        seed = 1 + context.input_pipeline_id
        data = tf.data.Dataset.from_tensor_slices(examples(seed, BATCH * STEPS))
        return data.shuffle(BATCH * STEPS, seed=seed).repeat().batch(BATCH)

    model.fit(
        tf.keras.utils.experimental.DatasetCreator(batches),
        epochs=options.epochs,
        steps_per_epoch=STEPS,
        callbacks=[
            Report(),
            tf.keras.callbacks.ModelCheckpoint(
                os.path.join(output, "checkpoints", "{epoch:03d}"), save_weights_only=True
            ),
        ],
        verbose=0,
    )
    model.save(os.path.join(output, "model"))
    print(f"saved={os.path.join(output, 'model')}")


def evaluate(options, output):
    model = make_model(options.learning_rate)
    points, labels = examples(999, 2_000)
    folder = os.path.join(output, "checkpoints")
    for checkpoint in tf.train.checkpoints_iterator(folder, min_interval_secs=0, timeout=300):
        try:
            model.load_weights(checkpoint).expect_partial()
        except tf.errors.OpError:
            continue  # replaced while it was read
        loss, accuracy = model.evaluate(points, labels, batch_size=500, verbose=0)
        step = os.path.basename(checkpoint)
        print(f"checkpoint={step} test-loss={loss:.4f} test-accuracy={accuracy:.4f}")
        if step == f"{options.epochs:03d}":
            return


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    options = parser.parse_args()
    output = os.environ["OUTPUT_DIR"]

    resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    cluster = resolver.cluster_spec().as_dict()
    sizes = " ".join(f"{job}={len(tasks)}" for job, tasks in sorted(cluster.items()))
    print(f"tensorflow={tf.__version__} task={resolver.task_type}:{resolver.task_id} {sizes}")
    sys.stdout.flush()

    if resolver.task_type in ("worker", "ps"):
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol="grpc",
            start=True,
        )
        server.join()
    elif resolver.task_type == "evaluator":
        evaluate(options, output)
    else:
        train(resolver, options, output)


if __name__ == "__main__":
    main()
