"""The training that a spec asks for, by PyTorch's autograd and formulas written out, in doubles (or floats: how far these
go from doubles tells how far any floats may)."""
import math

import numpy as np
import torch
import torch.nn.functional as F

import models
import philox


class Plan:
    """Of a spec and its data: which steps there are."""

    def __init__(self, spec, data):
        self.spec, self.batch = spec, spec["batch"]
        self.order = philox.Order(data["train"], self.batch, spec["seed"], spec["epoch-samples"])
        self.steps_per_epoch = self.order.steps_per_epoch
        self.steps = spec["steps"] or math.ceil(spec["epochs"] * self.steps_per_epoch - 1e-9)

    def rate(self, step):
        """As engine/schedule.h says."""
        schedule, full = self.spec["schedule"], self.spec["optimizer"]["learning-rate"]
        if schedule["scale-with-batch"]:
            full *= self.batch / schedule["scale-with-batch"]
        warm_up = schedule["warm-up-steps"] or math.floor(schedule["warm-up-epochs"] * self.steps_per_epoch + 0.5)
        if step < warm_up:
            return full * (step + 1) / warm_up
        since = step - warm_up
        if schedule["kind"] == "step":
            if schedule["every-steps"]:
                return full * schedule["factor"] ** (since // schedule["every-steps"])
            return full * schedule["factor"] ** math.floor(since / self.steps_per_epoch / schedule["every-epochs"] + 1e-9)
        progress = min(1, since / max(1, self.steps - warm_up))
        final = schedule["final"]
        if schedule["kind"] == "cosine":
            return full * (final + (1 - final) * 0.5 * (1 + math.cos(math.pi * progress)))
        if schedule["kind"] == "linear":
            return full * (final + (1 - final) * (1 - progress))
        return full


class Updates:
    """PyTorch's optimisers, of the mean of gradients."""

    def __init__(self, spec, parameters):
        self.o, self.clip = spec["optimizer"], spec["clip"]
        self.decay = {each.name: self.o["weight-decay"] if each.decays else 0 for each in parameters}
        self.state, self.count = {}, 0

    def make(self, p, gradients, rate):
        o = self.o
        self.count += 1
        if self.clip:
            norm = math.sqrt(sum(float((g.double() ** 2).sum()) for g in gradients.values()))
            factor = min(1.0, self.clip / (norm + 1e-6))
            gradients = {name: g * factor for name, g in gradients.items()}
        with torch.no_grad():
            for name, g in gradients.items():
                value, decay = p[name], self.decay[name]
                if o["kind"] == "adamw":
                    value.mul_(1 - rate * decay)
                else:
                    g = g + decay * value
                if o["kind"] == "sgd":
                    if o["momentum"]:
                        buffer = self.state[name] = self.state.get(name, 0) * o["momentum"] + g
                        g = g + o["momentum"] * buffer if o["nesterov"] else buffer
                    value.sub_(rate * g)
                    continue
                first, second = self.state.get(name, (0, 0))
                first = o["beta1"] * first + (1 - o["beta1"]) * g
                second = o["beta2"] * second + (1 - o["beta2"]) * g * g
                self.state[name] = first, second
                root = (second / (1 - o["beta2"] ** self.count)).sqrt() + o["epsilon"]
                value.sub_(rate / (1 - o["beta1"] ** self.count) * first / root)


class Trained:
    def __init__(self, first, last, losses, tests):
        self.first, self.last = first, last  # parameters
        self.losses = losses                 # by step: (sum, rows)
        self.tests = tests                   # by the step after which: (mean loss, accuracy)

    def loss(self, begin, end):
        """The mean over steps [begin, end)."""
        return sum(each[0] for each in self.losses[begin:end]) / sum(each[1] for each in self.losses[begin:end])


def train(spec, data, train_set, test_set, apply_every=1, dtype=torch.float64, turned=False):
    model = models.of(spec, data)
    plan = Plan(spec, data)
    first = models.first_values(model.parameters, spec["seed"])
    p = {name: torch.tensor(value, dtype=dtype, requires_grad=True) for name, value in first.items()}
    inputs = torch.tensor(train_set[0], dtype=dtype if data["kind"] == "images" else torch.long)
    labels = torch.tensor(train_set[1], dtype=torch.long)
    updates = Updates(spec, model.parameters)
    losses, tests, gathered, rows, parts = [], {}, None, 0, 0
    for step in range(plan.steps):
        ids = plan.order.of(step)
        loss = summed_loss(model, p, inputs[ids], labels[ids], turned)[0]
        gradients = dict(zip(p, torch.autograd.grad(loss, list(p.values()))))
        losses.append((float(loss), labels[ids].numel()))
        gathered = gradients if gathered is None else {name: gathered[name] + g for name, g in gradients.items()}
        rows, parts = rows + labels[ids].numel(), parts + 1
        last = step + 1 == plan.steps
        if parts == apply_every or last:
            updates.make(p, {name: g / rows for name, g in gathered.items()}, plan.rate(step))
            gathered, rows, parts = None, 0, 0
        if test_set is not None and (last or (step + 1) % plan.steps_per_epoch == 0):
            tests[step + 1] = evaluate(model, p, test_set, dtype, data)
    return Trained(first, {name: value.detach().double().numpy() for name, value in p.items()}, losses, tests)


def summed_loss(model, p, x, y, turned=False):
    logits = model.logits(p, x, turned)
    logits, y = logits.reshape(-1, logits.shape[-1]), y.reshape(-1)
    return F.cross_entropy(logits, y, reduction="sum"), logits, y


def evaluate(model, p, test_set, dtype, data):
    x = torch.tensor(test_set[0], dtype=dtype if data["kind"] == "images" else torch.long)
    with torch.no_grad():
        loss, logits, y = summed_loss(model, p, x, torch.tensor(test_set[1], dtype=torch.long))
    return float(loss) / y.numel(), float((logits.argmax(1) == y).double().mean())
