"""The ranks of mpirun fit one network with PyTorch's DistributedDataParallel, each on its part of the data."""
import argparse
import os
import socket

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.nn.parallel import DistributedDataParallel


def meet():
    """Rank 0 tells the others by MPI where PyTorch is to meet. A PyTorch that was built with MPI needs none of this:
    dist.init_process_group("mpi")."""
    world = MPI.COMM_WORLD
    place = None
    if world.rank == 0:
        with socket.create_server(("", 0)) as free:
            place = f"tcp://{os.environ['DTRAIN_ADDRESS']}:{free.getsockname()[1]}"
    dist.init_process_group("gloo", init_method=world.bcast(place), rank=world.rank, world_size=world.size)


def samples(count):
    """Points of a bump in two dimensions, the same for every rank."""
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(1)) * 4 - 2
    return points, torch.exp(-(points**2).sum(1, keepdim=True))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--learning-rate", type=float, default=0.05)
    options.add_argument("--epochs", type=int, default=5)
    options = options.parse_args()

    meet()
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=options.learning_rate, momentum=0.9)
    points, heights = samples(8192)
    points, heights = points[rank::world], heights[rank::world]
    batch = 64 // world
    for epoch in range(1, options.epochs + 1):
        total = 0.0
        for start in range(0, len(points), batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(points[start:start + batch]), heights[start:start + batch])
            loss.backward()  # sums gradients over all ranks
            optimizer.step()
            total += loss.item() * batch / len(points)
        total = MPI.COMM_WORLD.allreduce(total)
        if rank == 0:
            print(f"epoch={epoch} loss={total / world:.5f} ranks={world}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(os.environ["OUTPUT_DIR"], "model.pt"))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
