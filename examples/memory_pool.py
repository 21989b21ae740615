"""A mixture of experts of 10^12 parameters whose state lives outside 256 GPUs: in their nodes, or in a pool behind switches.

    .venv/bin/python examples/memory_pool.py

The systems of ASTRA-sim 2.0's second case study (Won et al., ISPASS 2023, arXiv 2303.14006; from memory): ZeRO-Infinity with
memory of each node at 100 GB/s for a GPU; a hierarchical pool of 256 groups of 100 GB/s and an in-node pooled fabric of 256 GB/s
for a GPU, whose switches gather parameters as they are loaded and add gradients as they are stored; and the same with 500 and 512
GB/s, which the paper finds up to 4.6 times as fast in exposed time. Beside them what is built today: host memory behind PCIe,
updated by CPUs. Model, batch and the networks of GPUs are assumed (`jobs/moe-1t-256.toml`), so only the order and the reasons
compare.

By hand: a layer of a GPU has one expert of 2 x 8192 x 29696 and the attention's 4 x 8192^2 parameters, 1.51 GB in 16 bits.
Through the in-node fabric at 256 GB/s that is 5.9 ms a layer; 32 layers are loaded twice a step, 0.38 s, most of it behind
computation. What is not hidden is the optimizer state, 12 B for each of 4 x 10^9 parameters of a GPU, in and out at once: 47 GB /
100 GB/s = 0.47 s, a fifth of it at 500 GB/s. So ports of the pool matter first, and the fabric only once gathering through it is
slower than computing.
"""

from __future__ import annotations

from pathlib import Path

import windtunnel as wt

JOB = Path(__file__).parent / "jobs" / "moe-1t-256.toml"
WAITS = ("exposed_offload", "exposed_cpu_update", "exposed_parameter_gather", "exposed_gradient_reduce")
"""What a system's memory is to blame for: its copies, and gathering and adding what its switches do not."""


def _in(place: str, *more: str) -> list[str]:
    return [f"plan.offload.optimizer={place}", f"plan.offload.parameters={place}", *more]


def _pool(ports: int, fabric: int) -> list[str]:
    return _in(
        "pool", f"cluster.memory_pool.bandwidth={ports}GB/s", f"cluster.memory_pool.gpu_bandwidth={fabric}GB/s per GPU each way"
    )


SYSTEMS = {
    "host memory, CPUs update": _in("host"),
    "memory in each node, 100 GB/s a GPU": _in("expansion"),
    "pool of 100 GB/s, gathered by GPUs": _in("pool", "cluster.memory_pool.in_switch_collectives=false"),
    "pool of 100 GB/s, switches gather": _pool(100, 256),
    "pool of 500 GB/s, switches gather": _pool(500, 512),
}
PORTS, FABRICS = (50, 100, 200, 500), (64, 128, 256, 512)


def run(sets: list[str]) -> tuple[float, float]:
    """Seconds of a step, and of what the compute stream waits for memory in it."""
    p = wt.predict(wt.load(JOB, sets))
    return p.step_time_s, sum(p.breakdown.get(part, 0.0) for part in WAITS)


def rows() -> list[tuple[str, float, float]]:
    """(system, seconds of a step, of waiting for memory)."""
    return [(name, *run(sets)) for name, sets in SYSTEMS.items()]


def sweep() -> list[tuple[int, list[float]]]:
    """(B/s of a memory group in GB/s, seconds of waiting for each of FABRICS)."""
    return [(ports, [run(_pool(ports, fabric))[1] for fabric in FABRICS]) for ports in PORTS]


def main() -> None:
    print("10^12 parameters in experts on 256 GPUs, state outside of them")
    print(f"{'system':<38} {'step':>8} {'waits':>8} {'waits, in node = 1':>20}")
    found = rows()
    for name, step, waits in found:
        print(f"{name:<38} {step:>6.2f} s {waits:>6.3f} s {found[1][2] / waits:>18.1f} x")
    print("Seconds of waiting; down: a memory group's GB/s, across: the in-node fabric's GB/s for a GPU")
    print(f"{'':>6}" + "".join(f"{fabric:>9}" for fabric in FABRICS))
    for ports, waits in sweep():
        print(f"{ports:>6}" + "".join(f"{value:>9.3f}" for value in waits))


if __name__ == "__main__":
    main()
