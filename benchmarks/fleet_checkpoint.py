"""How long a save holds training up, every save from the first on, beside DCP's `async_save`, interleaved in one run.

python benchmarks/fleet_checkpoint.py [--gib 1 2] [--ranks 1 2 4] [--saves 5] [--folder DIR]. Ratios are to the machine's measured
copy rate with all ranks copying at once; the bar is that a save takes at most twice what the plain copy of the same bytes takes.
Before each of the four is timed, what the one before has left dirty in the page cache is written out. The machine's load average
is told beside.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import socket
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import AsyncSaveResponse

from windtunnel.fleet.checkpoint.checkpointer import Checkpointer

TENSORS = 64


def quiet() -> None:
    """All ranks here, and nothing left for the kernel to write."""
    dist.barrier()
    if dist.get_rank() == 0:
        os.sync()
    dist.barrier()


def copied(state: dict[str, Any], into: list[torch.Tensor]) -> float:
    """Seconds of a plain copy of the state into memory that is there."""
    quiet()
    began = time.perf_counter()
    for source, target in zip(state["weights"].values(), into, strict=True):
        target.copy_(source)
    return time.perf_counter() - began


def by_dcp(state: dict[str, Any], folder: Path, stager: DefaultStager | None) -> float:
    """Seconds for which `async_save` holds the caller up; waits for the rest outside."""
    quiet()
    began = time.perf_counter()
    answer = dcp.async_save(dict(state), checkpoint_id=folder, async_stager=stager)
    if isinstance(answer, AsyncSaveResponse):
        answer.staging_completion.result()
        seconds = time.perf_counter() - began
        answer.upload_completion.result()
    else:
        seconds = time.perf_counter() - began
        answer.result()
    shutil.rmtree(folder, ignore_errors=True) if dist.get_rank() == 0 else None
    dist.barrier()
    return seconds


def rank_of(rank: int, given: argparse.Namespace, port: int) -> None:
    """One rank of the bench; rank 0 prints."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=given.ranks)
    torch.set_num_threads(max(1, (os.cpu_count() or 1) // given.ranks))
    numbers = int(given.gib * 2**30 / 4 / TENSORS / given.ranks)
    state = {"weights": {f"{rank}.{at}": torch.rand(numbers) for at in range(TENSORS)}}
    into = [torch.zeros(numbers) for _ in range(TENSORS)]
    seconds: dict[str, list[float]] = {name: [] for name in ("copy", "windtunnel", "dcp", "dcp shared")}
    flushed: list[float] = []
    shared = DefaultStager(StagingOptions(False, True, False, False))
    checkpointer = Checkpointer(Path(given.folder) / "ours", keep=2)
    began = time.perf_counter()
    checkpointer.load(state)
    checkpointer.prepare(state)
    prepared = time.perf_counter() - began
    for save in range(1, given.saves + 1):
        seconds["copy"].append(copied(state, into))
        quiet()
        taken = checkpointer.save(save, state)
        seconds["windtunnel"].append(taken.blocking_seconds)
        began = time.perf_counter()
        checkpointer.wait()
        flushed.append(taken.bytes / (time.perf_counter() - began))
        seconds["dcp"].append(by_dcp(state, Path(given.folder) / f"dcp-{save}", None))
        seconds["dcp shared"].append(by_dcp(state, Path(given.folder) / f"shared-{save}", shared))
    told: list[Any] = [None] * given.ranks
    dist.all_gather_object(told, seconds)
    checkpointer.close()
    shared.close()
    if rank == 0:
        show(told, given, prepared, flushed)
    dist.destroy_process_group()


def show(told: list[dict[str, list[float]]], given: argparse.Namespace, prepared: float, flushed: list[float]) -> None:
    """The slowest rank of each save; medians, the first and the worst; times the plain copy."""
    slowest = {name: [max(one[name][at] for one in told) for at in range(given.saves)] for name in told[0]}
    copy = statistics.median(slowest["copy"])
    print(f"{given.gib:g} GiB on {given.ranks} ranks, {given.saves} saves; a copy goes at {given.gib / copy:.2f} GiB/s; "
          f"prepared in {prepared:.2f} s; flushed and committed at {statistics.median(flushed) * given.ranks / 2**30:.2f} GiB/s; "
          f"largest RSS of rank 0 {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.2f} GiB; "
          f"load average {os.getloadavg()[0]:.1f}")  # fmt: skip
    print(f"{'':12s} {'first':>8s} {'median':>8s} {'worst':>8s}   {'x copy: first':>13s} {'median':>7s} {'worst':>7s}")
    for name, values in slowest.items():
        three = (values[0], statistics.median(values), max(values))
        shown = " ".join(f"{value:8.3f}" for value in three)
        print(f"{name:12s} {shown}   {three[0] / copy:13.2f} {three[1] / copy:7.2f} {three[2] / copy:7.2f}")


def main() -> None:
    """Starts the ranks."""
    options = argparse.ArgumentParser()
    options.add_argument("--gib", type=float, nargs="+", default=[1.0, 2.0])
    options.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    options.add_argument("--saves", type=int, default=5)
    options.add_argument("--folder")
    given = options.parse_args()
    for gib in given.gib:
        for ranks in given.ranks:
            measured(argparse.Namespace(gib=gib, ranks=ranks, saves=given.saves, folder=given.folder))


def measured(given: argparse.Namespace) -> None:
    """One state on some ranks."""
    with tempfile.TemporaryDirectory(dir=given.folder) as given.folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        mp.spawn(rank_of, (given, port), nprocs=given.ranks)


if __name__ == "__main__":
    main()
