"""The same work by PyTorch, for benches of dtrain-engine: python torch_peer.py JSON, where JSON is
{"what": "version"}, or
{"what": "product"}: multiplications and additions a second of a matrix product, or
{"what": "step", "data", "model", "batch", "threads", "processes", "seconds"}: samples a second, or
{"what": "gpu_step", "device", "data", "model", "optimizer", "batch", "mode", "seconds"}: the same on a GPU, where mode
is eager or one of torch.compile's, or
{"what": "allreduce", "sizes", "processes"}: seconds of each size in bytes, with Gloo.
Prints one line of key=value."""
import json
import os
import statistics
import sys
import tempfile
import time

work = json.loads(sys.argv[1])
ranks = work.get("processes", 1)
# Before torch is there: its threads don't survive a fork.
meeting = tempfile.mkdtemp() if ranks > 1 else None
children = []
rank = 0
for other in range(1, ranks):
    pid = os.fork()
    if pid == 0:
        rank, children = other, []
        break
    children.append(pid)

import torch  # noqa: E402

nn, F = torch.nn, torch.nn.functional
distributed = torch.distributed


def gpt(spec):
    context, width, heads = spec["context"], spec["width"], spec["heads"]

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.fc, self.proj = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, x):
            shape = (x.shape[0], context, heads, width // heads)
            q, k, v = (part.view(shape).transpose(1, 2) for part in self.qkv(self.norm1(x)).split(width, 2))
            if hasattr(F, "scaled_dot_product_attention"):
                attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            else:  # before 2.0
                scores = q @ k.transpose(2, 3) / (width // heads) ** 0.5
                later = torch.ones(context, context).triu(1).bool()
                attended = scores.masked_fill(later, float("-inf")).softmax(3) @ v
            x = x + self.out(attended.transpose(1, 2).reshape(x.shape))
            return x + self.proj(F.gelu(self.fc(self.norm2(x)), approximate="tanh"))

    class Gpt(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(spec["vocabulary"], width)
            self.positions = nn.Embedding(context, width)
            self.blocks = nn.Sequential(*(Block() for _ in range(spec["layers"])))
            self.norm = nn.LayerNorm(width)
            for module in self.modules():
                if isinstance(module, (nn.Linear, nn.Embedding)):
                    nn.init.normal_(module.weight, std=0.02)

        def forward(self, ids):
            x = self.tokens(ids) + self.positions.weight
            return F.linear(self.norm(self.blocks(x)), self.tokens.weight)

    return Gpt()


def dense(widths):
    layers = []
    for a, b in zip(widths, widths[1:]):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return layers[:-1]


def lenet(spec):
    layers, channels, side, kernel = [], 1, 28, spec["kernel"]
    for i, out in enumerate(spec["channels"]):
        padding = kernel // 2 if i == 0 and spec["padding"] else 0
        pool = spec["pool"][i]
        layers += [nn.Conv2d(channels, out, kernel, padding=padding), nn.ReLU()]
        layers += [nn.MaxPool2d(pool)] if pool > 1 else []
        channels, side = out, (side + 2 * padding - kernel + 1) // pool
    return nn.Sequential(*layers, nn.Flatten(), *dense([channels * side * side, *spec["hidden"], 10]))


def read(path):
    return torch.frombuffer(bytearray(open(path, "rb").read()), dtype=torch.uint8)


# A network, what goes into it, and what should come out.
def prepared(kind, spec, data):
    if kind == "gpt":
        context = spec["context"]
        wide = data.endswith(".u16.bin")
        text = torch.frombuffer(bytearray(open(data, "rb").read()), dtype=torch.int16).long() & 0xFFFF if wide else read(data).long()
        windows = (len(text) - 1) // context
        inputs = text[: windows * context].view(-1, context)
        labels = text[1 : windows * context + 1].view(-1, context)
        return gpt(spec), inputs, labels
    inputs = read(data + "/train-images-idx3-ubyte")[16:].view(-1, 784).float() / 255
    inputs = (inputs - inputs.mean()) / inputs.std()
    labels = read(data + "/train-labels-idx1-ubyte")[8:].long()
    if kind == "mlp":
        return nn.Sequential(*dense([784, *spec["hidden"], 10])), inputs, labels
    return lenet(spec), inputs.view(-1, 1, 28, 28), labels


def step_bench():
    torch.set_num_threads(work["threads"])
    torch.manual_seed(0)
    kind, spec = next(iter(work["model"].items()))
    batch = work["batch"] // ranks
    net, inputs, labels = prepared(kind, spec, work["data"])
    if ranks > 1:
        net = nn.parallel.DistributedDataParallel(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    order = torch.randperm(len(labels))

    def step(i):
        first = (i * ranks + rank) * batch
        ids = order[torch.arange(first, first + batch) % len(order)]
        optimizer.zero_grad(set_to_none=True)
        logits = net(inputs[ids])
        F.cross_entropy(logits.view(-1, logits.shape[-1]), labels[ids].view(-1)).backward()
        optimizer.step()

    for i in range(5):
        step(i)
    began, steps, goes_on = time.perf_counter(), 0, torch.ones(1)
    while goes_on.item():
        for _ in range(20 if ranks > 1 else 1):
            step(steps)
            steps += 1
        goes_on.fill_(time.perf_counter() - began < work["seconds"])
        if ranks > 1:
            distributed.broadcast(goes_on, 0)
    return f"samples_per_second={steps * batch * ranks / (time.perf_counter() - began)}"


# As those do who train fast: bf16 by autocast, a fused optimiser, a vocabulary of whole tiles, the data on the GPU.
def gpu_step_bench():
    device, mode, batch = work["device"], work["mode"], work["batch"]
    on_gpu = device == "cuda"
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    kind, spec = next(iter(work["model"].items()))
    if kind == "gpt":
        spec["vocabulary"] = (spec["vocabulary"] + 63) // 64 * 64
    net, inputs, labels = prepared(kind, spec, work["data"])
    net, inputs, labels = net.to(device), inputs.to(device), labels.to(device)
    if work["optimizer"] == "adamw":
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-4, fused=on_gpu)
    else:
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01, fused=on_gpu)
    order = torch.randperm(len(labels), device=device)
    places = torch.arange(batch, device=device)

    def loss_of(x, y):
        with torch.autocast(device, dtype=torch.bfloat16):
            logits = net(x)
            return F.cross_entropy(logits.view(-1, logits.shape[-1]), y.view(-1))

    computed = loss_of if mode == "eager" else torch.compile(loss_of, mode=mode)

    def step(i):
        ids = order[(i * batch + places) % len(order)]
        optimizer.zero_grad(set_to_none=True)
        computed(inputs[ids], labels[ids]).backward()
        optimizer.step()

    def finish():
        if on_gpu:
            torch.cuda.synchronize()

    for i in range(10):
        step(i)
    finish()
    # As many steps between two looks at the clock as take a tenth of the time.
    began, steps, each = time.perf_counter(), 0, 1
    while time.perf_counter() - began < work["seconds"]:
        before = time.perf_counter()
        for _ in range(each):
            step(steps)
            steps += 1
        finish()
        if time.perf_counter() - before < work["seconds"] / 10:
            each *= 2
    return f"samples_per_second={steps * batch / (time.perf_counter() - began)}"


def allreduce_bench():
    torch.set_num_threads(1)
    words = []
    for size in work["sizes"]:
        values, seconds = torch.zeros(size // 4), []
        for i in range(max(11, min(301, 400_000_000 // size))):
            distributed.barrier()
            began = time.perf_counter()
            distributed.all_reduce(values)
            if i > 1:
                seconds.append(time.perf_counter() - began)
        words.append(f"{size}={statistics.median(seconds)}")
    return " ".join(words)


def product_bench():
    torch.set_num_threads(1)
    size, seconds = 384, []
    a, b = torch.randn(size, size), torch.randn(size, size)
    for i in range(30):
        began = time.perf_counter()
        a @ b
        seconds.append(time.perf_counter() - began)
    return f"operations_per_second={2 * size**3 / statistics.median(seconds)}"


def version():
    # What multiplies if it is not MKL is known by what was loaded.
    with open("/proc/self/maps") as maps:
        loaded = maps.read()
    blas = "mkl" if torch.backends.mkl.is_available() else "other"
    if blas == "other" and "openblas" in loaded:
        blas = "openblas"
    elif blas == "other" and "/blas/libblas.so" in loaded:
        blas = "reference"
    return f"torch={torch.__version__} blas={blas}"


if ranks > 1:
    where = f"file://{meeting}/meeting"
    distributed.init_process_group("gloo", init_method=where, rank=rank, world_size=ranks)
benches = {"version": version, "product": product_bench, "step": step_bench, "gpu_step": gpu_step_bench, "allreduce": allreduce_bench}
said = benches[work["what"]]()
if rank == 0:
    print(said, flush=True)
if ranks > 1:
    distributed.barrier()  # or who leaves first would break what others still send
    distributed.destroy_process_group()
for child in children:
    os.waitpid(child, 0)
if meeting is not None and rank == 0:
    import shutil

    shutil.rmtree(meeting, ignore_errors=True)
