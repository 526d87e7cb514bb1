"""DeepSpeed fits one network on all workers, each with its part of the optimizer's state (ZeRO), and goes on from its
last checkpoint where it was begun again."""
import argparse
import math
import os

import deepspeed
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy

BATCH = 240


def spirals(seed, count):
    """Points on three spirals that wind about each other, and which of them each is on; the same for every process."""
    random = torch.Generator().manual_seed(seed)
    arm = torch.randint(3, (count,), generator=random)
    radius = 0.1 + 0.9 * torch.rand(count, generator=random)
    angle = 5 * radius + arm * 2 * math.pi / 3 + 0.4 * torch.randn(count, generator=random)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--learning-rate", type=float, default=0.05)
    options.add_argument("--epochs", type=int, default=10)
    options = options.parse_args()

    deepspeed.init_distributed()
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU(),
                                  torch.nn.Linear(64, 3))
    engine, *_ = deepspeed.initialize(
        model=network, optimizer=torch.optim.SGD(network.parameters(), options.learning_rate, momentum=0.9),
        config={"train_batch_size": BATCH, "zero_optimization": {"stage": 2}, "zero_allow_untested_optimizer": True})
    done = 0
    for folder in ("OUTPUT_DIR", "RESUME_DIR"):  # an earlier attempt, or what `dtrain rerun --resume` goes on from
        found, state = engine.load_checkpoint(os.environ[folder]) if folder in os.environ else (None, {})
        if found:
            done = state["epoch"]
            break

    points, arms = (column.to(engine.device) for column in spirals(1, 50 * BATCH))
    test_points, test_arms = (column.to(engine.device) for column in spirals(2, 2_000))
    for epoch in range(done + 1, options.epochs + 1):
        order = torch.randperm(len(points), generator=torch.Generator().manual_seed(epoch))
        total = torch.zeros(1, device=engine.device)
        for batch in order.view(-1, BATCH):
            mine = batch[rank::world]
            loss = cross_entropy(engine(points[mine]), arms[mine])
            engine.backward(loss)
            engine.step()
            total += loss.detach() / (len(order) // BATCH) / world
        dist.all_reduce(total)
        with torch.no_grad():
            accuracy = (engine(test_points).argmax(1) == test_arms).float().mean()
        if rank == 0:
            print(f"epoch={epoch} loss={total.item():.4f} accuracy={accuracy:.4f} workers={world}")
        engine.save_checkpoint(os.environ["OUTPUT_DIR"], tag=f"epoch{epoch}", client_state={"epoch": epoch})
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
