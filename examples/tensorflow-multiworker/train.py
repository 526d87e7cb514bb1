"""Synchronous training on all workers with TensorFlow's MultiWorkerMirroredStrategy.

Every worker runs this same program and holds all variables; after each step the gradients are summed
over the workers by TensorFlow's collectives. Who the workers are it reads from TF_CONFIG. Worker 0, which
dtrain calls the master, saves the model to OUTPUT_DIR.
"""

import argparse
import os
import tempfile

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf

tf.get_logger().setLevel("ERROR")

CLASSES, FEATURES = 4, 16
GLOBAL_BATCH = 96


def examples(seed, count):
    """Four clouds of points, a class each."""
    random = np.random.default_rng(seed)
    centres = np.random.default_rng(0).normal(0, 1.0, (CLASSES, FEATURES))
    labels = random.integers(0, CLASSES, count)
    points = centres[labels] + random.normal(0, 0.8, (count, FEATURES))
    return points.astype(np.float32), labels.astype(np.int32)


class Classifier(tf.Module):
    def __init__(self):
        super().__init__()
        scale = 1 / np.sqrt(FEATURES)
        self.hidden = tf.Variable(tf.random.stateless_normal((FEATURES, 32), (1, 2)) * scale)
        self.hidden_bias = tf.Variable(tf.zeros((32,)))
        self.out = tf.Variable(tf.random.stateless_normal((32, CLASSES), (3, 4)) * 0.1)
        self.out_bias = tf.Variable(tf.zeros((CLASSES,)))

    @tf.function(input_signature=[tf.TensorSpec((None, FEATURES), tf.float32)])
    def __call__(self, points):
        return tf.nn.relu(points @ self.hidden + self.hidden_bias) @ self.out + self.out_bias


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=150)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    options = parser.parse_args()

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    resolver = strategy.cluster_resolver
    cluster = resolver.cluster_spec().as_dict()
    sizes = " ".join(f"{job}={len(tasks)}" for job, tasks in sorted(cluster.items()))
    print(f"tensorflow={tf.__version__} task={resolver.task_type}:{resolver.task_id} {sizes} "
          f"replicas={strategy.num_replicas_in_sync}")

    def batches(context):
        points, labels = examples(1, GLOBAL_BATCH * 40)
        data = tf.data.Dataset.from_tensor_slices((points, labels))
        data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
        size = context.get_per_replica_batch_size(GLOBAL_BATCH)
        return data.shuffle(1_000, seed=context.input_pipeline_id).repeat().batch(size)

    with strategy.scope():
        model = Classifier()
    data = iter(strategy.distribute_datasets_from_function(batches))

    @tf.function
    def train_step(points, labels):
        def one_replica(points, labels):
            with tf.GradientTape() as tape:
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, model(points))
                loss = tf.reduce_sum(losses) / GLOBAL_BATCH
            gradients = tape.gradient(loss, model.trainable_variables)
            context = tf.distribute.get_replica_context()
            gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
            for variable, gradient in zip(model.trainable_variables, gradients):
                variable.assign_sub(options.learning_rate * gradient)
            return loss

        losses = strategy.run(one_replica, args=(points, labels))
        return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)

    for step in range(1, options.steps + 1):
        loss = train_step(*next(data))
        if step == 1 or step % 50 == 0:
            print(f"step={step} loss={loss.numpy():.4f}")

    points, labels = examples(999, 2_000)
    accuracy = float(np.mean(np.argmax(model(points).numpy(), axis=1) == labels))
    print(f"test-accuracy={accuracy:.4f} weights={float(tf.reduce_sum(model.out)):.6f}")

    # Each worker saves, for saving may need them all; what counts is the master's.
    output = os.path.join(os.environ["OUTPUT_DIR"], "model")
    place = output if resolver.task_id == 0 else tempfile.mkdtemp()
    tf.saved_model.save(model, place)
    if resolver.task_id == 0:
        print(f"saved={output}")


if __name__ == "__main__":
    main()
