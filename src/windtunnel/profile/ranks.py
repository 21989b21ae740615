"""Collectives, and whole steps, of several processes of this machine through torch.distributed: NCCL on GPUs, gloo on a CPU.

Each rank is a process, `python -m windtunnel.profile.ranks`. A step is forward and backward of one micro batch, one all-reduce of
the gradients in one buffer, which they are copied into, clipping and the update, nothing overlapped: what a prediction of data
parallelism without overlap says.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from windtunnel.base.errors import EngineError, FileError
from windtunnel.profile.device import KEEPING

OPS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")
SIZES = (2**16, 2**20, 2**22, 2**24, 2**26)
"""B of a rank's buffer."""

ENDING = 1.5
"""s before the end at which no new call begins: processes take a while to leave."""

KEPT = "rows.jsonl"
"""Where rank 0 writes each row as soon as it is measured."""

LEAST, MOST = 3, 50
"""Repetitions of a call or a step, as far as the time lasts."""


def measure_calls(path: Path, ranks: int, gradient: int, allowed: float) -> str:
    """Measures collectives of `ranks` processes into a file for at most `allowed` s; a sentence about it. `gradient`: B of a job's
    gradients, the size that is measured first."""
    if path.exists():
        return f"{len(read_rows(path))} from before"
    rows = run_ranks({"kind": "collectives", "gradient": gradient}, ranks, allowed)
    if not rows:
        return f"nothing within {allowed:.0f} s"
    write_rows(path, rows)
    return f"{len(rows)} measured on {ranks} ranks"


def run_ranks(asked: dict[str, Any], ranks: int, allowed: float) -> list[dict[str, Any]]:
    """What rank 0 of `ranks` processes measured within `allowed` s, at whose end they are killed. EngineError if one fails."""
    ends = time.monotonic() + allowed
    with tempfile.TemporaryDirectory() as meeting:
        program = [sys.executable, "-m", "windtunnel.profile.ranks", json.dumps({**asked, "meeting": meeting, "ends": ends})]
        started = [
            subprocess.Popen(
                [*program, str(rank), str(ranks)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env={**os.environ, **KEEPING, "OMP_NUM_THREADS": "1"},
            )
            for rank in range(ranks)
        ]  # fmt: skip
        kept = Path(meeting) / KEPT
        try:
            for rank in started:
                _, error = rank.communicate(timeout=max(0.1, ends - time.monotonic()))
                if rank.returncode:
                    raise EngineError(f"a rank of {ranks} failed: {error.strip()[-300:]}")
        except subprocess.TimeoutExpired:
            pass  # what is measured so far counts
        finally:
            for rank in started:
                rank.kill()
                rank.communicate()
        lines = kept.read_text(encoding="utf-8").splitlines(keepends=True) if kept.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Writes rows with their seal."""
    try:
        path.write_text(json.dumps({"rows": list(rows), "seal": seal_of_rows(rows)}, indent=1), encoding="utf-8")
    except OSError as error:
        raise FileError(str(path), error.strerror or str(error), "a file that can be written") from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Rows that `write_rows` wrote. FileError for other files, and for rows that are not those that were sealed."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        rows = list(table["rows"])
        stated = table["seal"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FileError(str(path), str(error)[:80], "a file that `windtunnel measure run` wrote") from error
    if stated != seal_of_rows(rows):
        raise FileError(str(path), "rows that are not those that were sealed", "a file as it was measured")
    return rows


def seal_of_rows(rows: Sequence[dict[str, Any]]) -> str:
    """SHA-256 of rows, in hexadecimal."""
    return hashlib.sha256(json.dumps(list(rows), sort_keys=True).encode()).hexdigest()


def main() -> int:
    """One rank; rank 0 writes its rows."""
    import torch
    import torch.distributed as dist

    from windtunnel.profile.device import Device

    asked, rank, world = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= world
    if not cuda:
        torch.set_num_threads(1)
    device = Device(torch, "cuda" if cuda else "cpu", rank if cuda else 0)
    meeting = f"file://{asked['meeting']}/store"
    dist.init_process_group("nccl" if cuda else "gloo", init_method=meeting, rank=rank, world_size=world)
    try:
        measure = _calls if asked["kind"] == "collectives" else _steps
        for row in measure(asked, device, dist, world):
            if rank == 0:
                with (Path(asked["meeting"]) / KEPT).open("a", encoding="utf-8") as stream:
                    stream.write(f"{json.dumps(row)}\n")
    finally:
        dist.destroy_process_group()
    return 0


def _time_together(
    device: Any, dist: Any, run: Callable[[], object], ends: float, before: Callable[[], None] = lambda: None
) -> list[float]:
    """Wall seconds of `run` on the group's slowest rank, repeated until `ends`; each begins together, after `before`."""
    torch = device.torch
    taken: list[float] = []
    run()
    while len(taken) < MOST:
        before()
        dist.barrier()
        device.synchronize()
        clock = time.perf_counter()
        run()
        device.synchronize()
        both = torch.tensor([time.perf_counter() - clock, float(time.monotonic() > ends)], dtype=torch.float64, device=device.place)
        dist.all_reduce(both, op=dist.ReduceOp.MAX)
        taken.append(float(both[0]))
        if float(both[1]) and len(taken) >= LEAST:
            break
    return taken


def _calls(asked: dict[str, Any], device: Any, dist: Any, world: int) -> Iterator[dict[str, Any]]:
    torch = device.torch
    sizes = sorted({*SIZES, int(asked["gradient"] or SIZES[-1])})
    first = int(asked["gradient"] or SIZES[-1])
    pairs = sorted(((op, size) for op in OPS for size in sizes), key=lambda pair: (pair != (OPS[0], first), OPS.index(pair[0])))
    for number, (op, size) in enumerate(pairs):
        count = max(world, size // 4 // world * world)
        sent = torch.ones(count, device=device.place)
        share, whole = torch.empty(count // world, device=device.place), torch.empty(count, device=device.place)
        calls: dict[str, Callable[[], object]] = {
            "all_reduce": partial(dist.all_reduce, sent),
            "all_gather": partial(dist.all_gather_into_tensor, whole, share),
            "reduce_scatter": partial(dist.reduce_scatter_tensor, share, sent),
            "all_to_all": partial(dist.all_to_all_single, whole, sent),
            "broadcast": partial(dist.broadcast, sent, 0),
        }
        left = torch.tensor([asked["ends"] - ENDING - time.monotonic()], dtype=torch.float64, device=device.place)
        dist.all_reduce(left, op=dist.ReduceOp.MIN)  # all ranks stop at the same call
        if number and float(left[0]) <= 0:
            break
        try:
            times = _time_together(device, dist, calls[op], time.monotonic() + 0.6 * float(left[0]) / (len(pairs) - number))
        except RuntimeError as error:
            yield {"op": op, "ranks": world, "bytes": 4 * count, "seconds": None, "note": str(error).splitlines()[0][:120]}
            continue
        yield {"op": op, "ranks": world, "bytes": 4 * count, "backend": dist.get_backend(), **_statistics(times)}


def _statistics(times: Sequence[float]) -> dict[str, Any]:
    return {"seconds": median(times), "seconds_min": min(times), "seconds_max": max(times), "repeats": len(times)}


def _steps(asked: dict[str, Any], device: Any, dist: Any, world: int) -> Iterator[dict[str, Any]]:
    """Steps of the whole model, and what their parts take."""
    from windtunnel.profile.case import case_of
    from windtunnel.profile.layers.study import LayerBench
    from windtunnel.profile.modules.family import Own

    torch, case = device.torch, case_of(asked["case"])
    run = LayerBench(case, Own(), "eager", device, seed=0).whole_step()
    parts: dict[str, list[float]] = {name: [] for name in ("compute", "all_reduce", "update")}
    kernels, buffer = _kernels_again(asked, device), GradientBuffer(run.parameters, torch)
    paces: list[float] = []

    def before() -> None:
        pace = torch.tensor([_pace(kernels, device)], dtype=torch.float64, device=device.place)
        dist.all_reduce(pace, op=dist.ReduceOp.MAX)  # all wait for the slowest
        paces.append(float(pace[0]))

    def step() -> None:
        points = [time.perf_counter()]
        run.clear()
        run.backward(run.forward() / world)  # the mean over ranks, without another pass over the gradients
        device.synchronize()
        points.append(time.perf_counter())
        if world > 1:
            buffer.reduce(dist)
        device.synchronize()
        points.append(time.perf_counter())
        if run.update is not None:
            torch.nn.utils.clip_grad_norm_(run.parameters, 1.0)
            run.update.step()
        device.synchronize()
        points.append(time.perf_counter())
        for name, begin, end in zip(parts, points, points[1:], strict=False):
            parts[name].append(end - begin)

    left = asked["ends"] - time.monotonic()
    times = _time_together(device, dist, step, time.monotonic() + 0.7 * left, before=before)
    inside = {f"{name}_seconds": median(taken[1:]) for name, taken in parts.items()}
    shape = case.shape("step", case.model.layers)
    cores = 0 if device.cuda else device.sms
    yield {"op": "step", "ranks": world, "cores": cores, "shape": shape, "pace": median(paces), **_statistics(times), **inside}


def ranks_a_core(ranks: int, cores: int) -> float:
    """How many ranks of one thread share a core of a processor, at least one: each then has so much less of it. One without
    `cores`, on devices of their own."""
    return max(1.0, ranks / cores) if cores else 1.0


Again = tuple[Callable[[], object], Callable[[], AbstractContextManager[object]], float]
"""A kernel that is measured again, its context, and its weight over the seconds that it took."""


def _kernels_again(asked: dict[str, Any], device: Any) -> list[Again]:
    """Runs of the kernels of `asked["again"]`, {key: (seconds that it took before, its weight)}."""
    from windtunnel.profile.plan_slice import kernels_of, slice_of
    from windtunnel.profile.sweep import make_run

    before = asked.get("again") or {}
    listed = [kernel for kernel in kernels_of(slice_of(asked["kernels"]), device.cuda) if kernel.key in before] if before else []
    total = sum(before[kernel.key][1] for kernel in listed)
    return [
        (make_run(kernel, device), partial(kernel.holding, device.torch), before[kernel.key][1] / total / before[kernel.key][0])
        for kernel in listed
    ]


def _pace(kernels: Sequence[Again], device: Any) -> float:
    """How long these kernels take now, in turn, over how long they took, by their weights; 1.0 of none. On a CPU by the clock on
    the wall, as steps: what other programs take counts."""
    from windtunnel.profile.timing import seconds_of_turn

    pace = 0.0
    for run, holding, weight in kernels:
        if device.cuda:
            device.flush()
        pace += weight * seconds_of_turn(run, holding, device, device.mark if device.cuda else time.perf_counter)
    return pace if kernels else 1.0


class GradientBuffer:
    """One buffer for the gradients of `parameters`, made once, as data parallelism has its buckets."""

    def __init__(self, parameters: Sequence[Any], torch: Any) -> None:
        self.torch, self.parameters = torch, parameters
        self.flat: Any = None

    def reduce(self, dist: Any) -> None:
        """Sums all gradients over the ranks in the buffer, of which they are views from then on."""
        held = [parameter for parameter in self.parameters if parameter.grad is not None]
        sizes = [parameter.numel() for parameter in held]
        if self.flat is None:
            self.flat = held[0].grad.new_empty(sum(sizes))
        views = [part.view_as(parameter) for parameter, part in zip(held, self.flat.split(sizes), strict=True)]
        self.torch._foreach_copy_(views, [parameter.grad for parameter in held])
        dist.all_reduce(self.flat)
        for parameter, view in zip(held, views, strict=True):
            parameter.grad = view


if __name__ == "__main__":
    sys.exit(main())
