"""Is a wafer faster than many chips on a network? 512 accelerators in one, two, three and four dimensions.

    .venv/bin/python examples/wafer_scale.py

The machines of ASTRA-sim 2.0's first case study (Won et al., ISPASS 2023, arXiv 2303.14006; figures from memory): a wafer as one
switch with 350, 500 or 600 GB/s for each accelerator, or in two dimensions of 250 GB/s, against a package, node and scale-out
network of 200, 100, 50 GB/s and of 250, 200, 100, 50 GB/s. Times are seconds of communication: a collective of 1 GB over all
accelerators, and the exposed calls of a step: GPT-3 175B (tensor parallel over 16), a transformer of 10^12 parameters (over 128),
DLRM (all-to-all of embeddings, all-reduce of the dense layers). Themis chooses the dimensions' order for each chunk. The graphs
are windtunnel's, one micro batch, no overlap.

What it shows, by hand: with a fixed order Conv-3D is as fast as its first dimension, 2 * 15/16 GB / 200 GB/s = 9.4 ms and the
filling of the pipeline; Themis brings it towards the sum of its dimensions, 2 GB / 350 GB/s = 5.7 ms, which is what the wafer of
350 GB/s needs. An all-to-all has no such way out: in a ring of 16 bytes travel 4 hops on average, 4 GB / 200 GB/s = 20 ms, and
the wafer is seven times as fast.
"""

from __future__ import annotations

import windtunnel as wt
from windtunnel.network import Dimension, Schedule, split, walk
from windtunnel.predict import executions
from windtunnel.spec import check
from windtunnel.workload import Axis, Comm, Kind, build

GB = 1e9


def _machine(*dimensions: tuple[str, int, float]) -> tuple[Dimension, ...]:
    return tuple(Dimension(kind, size, rate * GB) for kind, size, rate in dimensions)  # type: ignore[arg-type]


MACHINES = {
    "W-1D 350": _machine(("switch", 512, 350)),
    "W-1D 500": _machine(("switch", 512, 500)),
    "W-1D 600": _machine(("switch", 512, 600)),
    "W-2D": _machine(("switch", 32, 250), ("switch", 16, 250)),
    "Conv-3D": _machine(("ring", 16, 200), ("fully_connected", 8, 100), ("switch", 4, 50)),
    "Conv-4D": _machine(("ring", 2, 250), ("fully_connected", 8, 200), ("ring", 8, 100), ("switch", 4, 50)),
}
TRANSFORMERS = {"GPT-3 175B": ("gpt3-175b", 96, 16), "Transformer-1T": ("megatron-1t", 128, 128)}
"""Model of the catalogue, attention heads that the tensor-parallel ranks divide, those ranks."""

DLRM = {Comm.ALL_TO_ALL: (2, 110e6), Comm.ALL_REDUCE: (1, 4 * 57e6)}
"""Calls of a step and bytes on each accelerator: embeddings both ways, gradients of 57 million dense parameters; assumed."""


def calls(model: str, heads: int, tp: int) -> list[tuple[int, Comm, float, bool]]:
    """(times, call, bytes, inside the tensor-parallel group) of a training step of one micro batch of 512 accelerators."""
    job = check(
        wt.load(
            "gpt3-175b-64",
            [
                f"model={model}",
                f"model.heads={heads}",
                "cluster.gpus=512",
                f"plan.tp={tp}",
                "plan.pp=1",
                "plan.vpp=1",
                f"plan.dp={512 // tp}",
                "plan.sharding=none",
                "plan.recompute=none",
                "plan.micro_batch=1",
                f"plan.global_batch={512 // tp}",
            ],
        )
    )
    graph = build(job)
    ops, counts = graph.ops, executions(graph, 0)
    inside = [
        (int(counts[r]), Comm(int(ops.comm[r])), float(ops.bytes[r]), True)
        for r in range(len(ops))
        if ops.kind[r] == Kind.COMM and ops.axis[r] == Axis.TP and counts[r]
    ]
    return [*inside, (1, Comm.ALL_REDUCE, 2.0 * graph.stage_parameters[0], False)]


def step(dimensions: tuple[Dimension, ...], tp: int, found: list[tuple[int, Comm, float, bool]], schedule: Schedule) -> float:
    """Seconds of a step's calls."""
    groups = dict(zip((True, False), split(dimensions, tp), strict=True))
    return sum(times * walk(groups[inside], call, size, schedule).seconds for times, call, size, inside in found)


def rows() -> list[tuple[str, str, dict[str, float]]]:
    """(machine, schedule, seconds by workload)."""
    steps = {name: (tp, calls(model, heads, tp)) for name, (model, heads, tp) in TRANSFORMERS.items()}
    out = []
    for name, dimensions in MACHINES.items():
        schedules: tuple[Schedule, ...] = ("plain", "themis") if len(dimensions) > 1 else ("plain",)
        for schedule in schedules:
            seconds = {
                "all-reduce": walk(dimensions, Comm.ALL_REDUCE, GB, schedule).seconds,
                "all-to-all": walk(dimensions, Comm.ALL_TO_ALL, GB, schedule).seconds,
                "DLRM": sum(times * walk(dimensions, call, size, schedule).seconds for call, (times, size) in DLRM.items()),
            }
            seconds |= {model: step(dimensions, tp, found, schedule) for model, (tp, found) in steps.items()}
            out.append((name, schedule, seconds))
    return out


def main() -> None:
    found = rows()
    print("Communication of 512 accelerators, ms")
    print(f"{'machine':<9} {'order':<7}" + "".join(f"{name:>16}" for name in found[0][2]))
    for name, schedule, seconds in found:
        print(f"{name:<9} {schedule:<7}" + "".join(f"{value * 1e3:>16,.2f}" for value in seconds.values()))


if __name__ == "__main__":
    main()
