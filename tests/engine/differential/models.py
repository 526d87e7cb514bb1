"""The engine's models in PyTorch, as functions of named parameters; and their first values (engine/models/*.h)."""
import math

import numpy as np
import torch
import torch.nn.functional as F

import philox


class Parameter:
    def __init__(self, name, shape, initial, scale=0.0, transposed=False, decays=True):
        self.name, self.shape, self.initial, self.scale = name, shape, initial, scale
        self.transposed, self.decays = transposed, decays


def first_values(parameters, seed):
    """Floats, as the engine has them; named and shaped as in its files."""
    made = {}
    for number, each in enumerate(parameters):
        size = math.prod(each.shape)
        drawn = philox.words(seed, (1 << 16) + number, 0, size)
        if each.initial == "uniform":
            values = -each.scale + 2 * each.scale * philox.uniforms(drawn)
        elif each.initial == "normal":
            values = each.scale * philox.normals(drawn)
        else:
            values = np.full(size, float(each.initial == "one"))
        values = values.astype(np.float32).reshape(each.shape)
        made[each.name] = np.ascontiguousarray(values.T) if each.transposed else values
    return made


def of(spec, data):
    kind, options = next(iter(spec["model"].items()))
    return {"mlp": Mlp, "lenet": Lenet, "gpt": Gpt}[kind](options, data)


# Where what a ReLU takes is nothing but rounding, of its size.
NEAR_ZERO = 1e-5


def relu(x, turned):
    """`turned`: what is near zero is taken for being on the other side."""
    if not turned:
        return F.relu(x)
    near = x.detach().abs() < NEAR_ZERO * x.detach().pow(2).mean().sqrt()
    return x * ((x.detach() > 0) ^ near).to(x.dtype)


def dense(widths):
    layers = []
    for i, (inputs, outputs) in enumerate(zip(widths, widths[1:])):
        bound = 1 / math.sqrt(inputs)
        layers += [Parameter(f"layers.{i}.weight", (inputs, outputs), "uniform", bound, transposed=True),
                   Parameter(f"layers.{i}.bias", (outputs,), "uniform", bound)]
    return layers


def through_dense(p, x, count, turned):
    for i in range(count):
        x = F.linear(x, p[f"layers.{i}.weight"], p[f"layers.{i}.bias"])
        if i + 1 < count:
            x = relu(x, turned)
    return x


class Mlp:
    def __init__(self, options, data):
        widths = [math.prod(data["shape"]), *options["hidden"], data["classes"]]
        self.count, self.parameters = len(widths) - 1, dense(widths)

    def logits(self, p, x, turned=False):
        return through_dense(p, x.flatten(1), self.count, turned)


class Lenet:
    def __init__(self, options, data):
        self.kernel, self.pool = options["kernel"], options["pool"]
        self.padding = self.kernel // 2 if options["padding"] else 0
        self.parameters = []
        channels, height, width = data["shape"]
        height, width = height + 2 * self.padding, width + 2 * self.padding
        for i, (out, pool) in enumerate(zip(options["channels"], self.pool)):
            bound = 1 / math.sqrt(channels * self.kernel ** 2)
            self.parameters += [
                Parameter(f"convolutions.{i}.weight", (out, channels, self.kernel, self.kernel), "uniform", bound),
                Parameter(f"convolutions.{i}.bias", (out,), "uniform", bound)]
            channels = out
            height, width = (height - self.kernel + 1) // pool, (width - self.kernel + 1) // pool
        widths = [channels * height * width, *options["hidden"], data["classes"]]
        self.count = len(widths) - 1
        self.parameters += dense(widths)

    def logits(self, p, x, turned=False):
        for i, pool in enumerate(self.pool):
            x = relu(F.conv2d(x, p[f"convolutions.{i}.weight"], p[f"convolutions.{i}.bias"],
                              padding=self.padding if i == 0 else 0), turned)
            x = F.max_pool2d(x, pool)
        return through_dense(p, x.flatten(1), self.count, turned)


class Gpt:
    def __init__(self, options, data):
        self.layers, self.heads, width = options["layers"], options["heads"], options["width"]
        vocabulary = options["vocabulary"] or (256 if data["form"] == "text" else data["vocabulary"])
        residual = 0.02 / math.sqrt(2 * self.layers)
        matrix = lambda name, rows, columns, scale=0.02: Parameter(name, (rows, columns), "normal", scale)
        vector = lambda name, size, initial="zero": Parameter(name, (size,), initial, decays=False)
        norm = lambda name: [vector(name + ".weight", width, "one"), vector(name + ".bias", width)]
        self.parameters = [matrix("wte.weight", vocabulary, width), matrix("wpe.weight", options["context"], width)]
        for i in range(self.layers):
            h = f"h.{i}."
            self.parameters += [
                *norm(h + "ln_1"),
                matrix(h + "attn.c_attn.weight", width, 3 * width), vector(h + "attn.c_attn.bias", 3 * width),
                matrix(h + "attn.c_proj.weight", width, width, residual), vector(h + "attn.c_proj.bias", width),
                *norm(h + "ln_2"),
                matrix(h + "mlp.c_fc.weight", width, 4 * width), vector(h + "mlp.c_fc.bias", 4 * width),
                matrix(h + "mlp.c_proj.weight", 4 * width, width, residual), vector(h + "mlp.c_proj.bias", width)]
        self.parameters += norm("ln_f")

    def logits(self, p, ids, turned=False):
        linear = lambda name, x: x @ p[name + ".weight"] + p[name + ".bias"]
        norm = lambda name, x: F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"])
        batch, context = ids.shape
        x = p["wte.weight"][ids] + p["wpe.weight"]
        width = x.shape[2]
        later = torch.full((context, context), -torch.inf, dtype=x.dtype).triu(1)
        for i in range(self.layers):
            h = f"h.{i}."
            parts = linear(h + "attn.c_attn", norm(h + "ln_1", x)).split(width, 2)
            q, k, v = (part.view(batch, context, self.heads, -1).transpose(1, 2) for part in parts)
            attended = (q @ k.transpose(2, 3) / k.shape[3] ** 0.5 + later).softmax(3) @ v
            x = x + linear(h + "attn.c_proj", attended.transpose(1, 2).reshape(batch, context, width))
            x = x + linear(h + "mlp.c_proj", F.gelu(linear(h + "mlp.c_fc", norm(h + "ln_2", x)), approximate="tanh"))
        return norm("ln_f", x) @ p["wte.weight"].T
