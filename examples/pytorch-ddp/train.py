"""Two processes fit one network with PyTorch's DistributedDataParallel, each on its half of the data."""
import argparse
import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def samples(count):
    """Points of a bump in two dimensions, the same for every process."""
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(1)) * 4 - 2
    return points, torch.exp(-(points**2).sum(1, keepdim=True))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--learning-rate", type=float, default=0.05)
    options.add_argument("--epochs", type=int, default=5)
    options = options.parse_args()

    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    points, heights = samples(8192)
    share = len(points) // world  # the same for each process: all of them take part in every step
    points, heights = points[rank::world][:share], heights[rank::world][:share]
    batch = 64 // world
    for epoch in range(1, options.epochs + 1):
        total = torch.zeros(1)
        for start in range(0, len(points), batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(points[start:start + batch]), heights[start:start + batch])
            loss.backward()  # sums gradients over all processes
            optimizer.step()
            total += loss.detach() * batch / len(points)
        dist.all_reduce(total)
        if rank == 0:
            print(f"epoch={epoch} loss={total.item() / world:.5f} workers={world}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(os.environ["OUTPUT_DIR"], "model.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
