"""All-reduces of gloo on loopback, printed as nccl-tests prints them, so that `windtunnel import LOG --cluster` reads them.

OMP_NUM_THREADS=1 torchrun --nproc-per-node 8 benchmarks/fleet_gloo.py > gloo.log

gloo reduces in place; both halves of a row are such calls, one after the other. A row is the median of its calls, of the last rank.
"""

from __future__ import annotations

import os
import socket
import statistics
import time

import torch
import torch.distributed as dist

SIZES = [8, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 22, 1 << 23, 1 << 24, 3 << 23, 1 << 25]


def seconds_of(size: int, calls: int) -> float:
    """The median of `calls` all-reduces of so many bytes, each from the moment that all ranks are there."""
    x, taken = torch.ones(max(size // 4, 1)), []
    for _ in range(calls + 1):
        dist.barrier()
        began = time.perf_counter()
        dist.all_reduce(x)
        took = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
        dist.all_reduce(took, dist.ReduceOp.MAX)
        taken.append(float(took))
        x.fill_(1.0)
    return statistics.median(taken[1:])


def main() -> None:
    """Prints the table from rank 0."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    where = [None] * world
    dist.all_gather_object(
        where, f"#  Rank {rank:2d} Group  0 Pid {os.getpid():7d} on {socket.gethostname()} device {rank:2d} [0x00] CPU"
    )
    lines = ["# Collective test starting: all_reduce_perf", "# nThread 1 nGpus 1 minBytes 8 maxBytes 33554432", *map(str, where)]
    lines.append(
        "#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong"
    )
    for size in SIZES:
        calls = 7 if size >= 1 << 22 else 15
        halves = []
        for _ in range(2):
            took = seconds_of(size, calls)
            rate = size / took / 1e9
            halves.append(f"{took * 1e6:10.2f} {rate:7.3f} {rate * 2 * (world - 1) / world:7.3f}      0")
        lines.append(f"{size:12d} {max(size // 4, 1):13d}     float     sum      -1 {' '.join(halves)}")
    if rank == 0:
        print("\n".join(lines))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
