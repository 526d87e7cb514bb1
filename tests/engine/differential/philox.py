"""The engine's random numbers (engine/random.h), written again: what they give are the order of samples and the first
weights."""
import math

import numpy as np

M32 = np.uint64(0xFFFFFFFF)
SHUFFLE_STREAM = 1


def words(seed, stream, row, count):
    """`count` draws of 64 bits of a row, in order."""
    blocks = (count + 1) // 2
    counter = np.zeros((4, blocks), np.uint64)
    counter[0] = np.arange(blocks, dtype=np.uint64)
    counter[1] = stream & 0xFFFFFFFF  # a row keeps 32 bits of a stream's number
    counter[2], counter[3] = row & 0xFFFFFFFF, row >> 32
    key = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = np.uint64(0xD2511F53) * counter[0], np.uint64(0xCD9E8D57) * counter[2]
        shift = np.uint64(32)
        counter = np.stack([(b >> shift) ^ counter[1] ^ np.uint64(key[0]), b & M32,
                            (a >> shift) ^ counter[3] ^ np.uint64(key[1]), a & M32])
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    joined = np.stack([counter[0] | counter[1] << np.uint64(32), counter[2] | counter[3] << np.uint64(32)], 1)
    return joined.reshape(-1)[:count]


def uniforms(drawn):
    return (drawn >> np.uint64(11)).astype(np.float64) * 2.0 ** -53


# Wichura 1988, AS 241; highest power first.
MIDDLE = ([2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4, 4.5921953931549871457e+4,
           1.3731693765509461125e+4, 1.9715909503065514427e+3, 1.3314166789178437745e+2, 3.3871328727963666080e+0],
          [5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4, 2.1213794301586595867e+4,
           5.3941960214247511077e+3, 6.8718700749205790830e+2, 4.2313330701600911252e+1, 1.0])
NEAR = ([7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e+0,
         3.64784832476320460504e+0, 5.76949722146069140550e+0, 4.63033784615654529590e+0, 1.42343711074968357734e+0],
        [1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
         6.89767334985100004550e-1, 1.67638483018380384940e+0, 2.05319162663775882187e+0, 1.0])
FAR = ([2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3, 2.65321895265761230930e-2,
        2.96560571828504891230e-1, 1.78482653991729133580e+0, 5.46378491116411436990e+0, 6.65790464350110377720e+0],
       [2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5, 7.86869131145613259100e-4,
        1.48753612908506148525e-2, 1.36929880922735805310e-1, 5.99832206555887937690e-1, 1.0])


def ratio(pair, x):
    return np.polyval(pair[0], x) / np.polyval(pair[1], x)


def normals(drawn):
    p = ((drawn >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0 ** -53
    q = p - 0.5
    r = np.sqrt(-np.log(np.where(q < 0, p, 1 - p)))
    tail = np.where(r <= 5, ratio(NEAR, r - 1.6), ratio(FAR, r - 5))
    return np.where(abs(q) <= 0.425, q * ratio(MIDDLE, 0.180625 - q * q), np.where(q < 0, -tail, tail))


def permutation(samples, seed, number):
    """engine/data/shuffle.h, all places at once."""
    odd, shift = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)
    rows = math.isqrt(samples - 1) + 1
    columns = -(-samples // rows)

    def below(bound, x, key):
        mixed = (x ^ key) * odd
        return (((mixed ^ mixed >> shift) * odd) >> shift) * np.uint64(bound) >> shift

    at = np.arange(samples, dtype=np.uint64)
    keys = words(seed, SHUFFLE_STREAM, number, 8)
    outside = np.ones(samples, bool)
    while outside.any():
        row, column = np.divmod(at[outside], np.uint64(columns))
        for first, second in keys.reshape(-1, 2):
            row = (row + below(rows, column, first)) % np.uint64(rows)
            column = (column + below(columns, row, second)) % np.uint64(columns)
        at[outside] = row * np.uint64(columns) + column
        outside = at >= samples
    return at.tolist()


class Order:
    """Which samples a step takes: engine/data/sampler.h."""

    def __init__(self, samples, batch, seed, epoch_samples):
        self.samples, self.batch, self.seed = samples, batch, seed
        self.epoch_samples = epoch_samples or samples
        self.steps_per_epoch = -(-self.epoch_samples // batch)
        self.shuffles = {}

    def of(self, step):
        epoch, within = divmod(step, self.steps_per_epoch)
        first = within * self.batch
        begin = epoch * self.epoch_samples + first
        ids = []
        for position in range(begin, begin + min(self.batch, self.epoch_samples - first)):
            shuffle, at = divmod(position, self.samples)
            if shuffle not in self.shuffles:
                self.shuffles[shuffle] = permutation(self.samples, self.seed, shuffle)
            ids.append(self.shuffles[shuffle][at])
        return ids
