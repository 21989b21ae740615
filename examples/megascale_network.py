"""What MegaScale's top-of-rack switches do to a step: up links twice as fast as down links, so that flows seldom share one.

    .venv/bin/python examples/megascale_network.py

MegaScale (NSDI 2024, section 3.6) splits each 400 Gb/s port towards servers in two of 200: two flows that ECMP hashes onto one up
link still have their whole rate. GPT 175B on 1,024 A100 in two sets of switches, Megatron-LM without data-parallel overlap, over the
flow engine: every flow takes the way that its hash gives it. A published measurement of this does not exist.
"""

from __future__ import annotations

import windtunnel as wt

FABRICS = {
    "up links as down links": ("cluster.fabric.uplink_ratio=1.0",),
    "MegaScale: up links x 2": ("cluster.fabric.uplink_ratio=2.0",),
    "up links as down, E-ECMP x 8": ("cluster.fabric.uplink_ratio=1.0", "cluster.fabric.flows_per_connection=8"),
    "up links as down, spray": ("cluster.fabric.uplink_ratio=1.0", "cluster.fabric.routing=spray"),
}
"""What the switches are -> fields of the fabric."""

JOB = ("cluster.gpus=1024", "plan.dp=16", "plan.global_batch=768", "cluster.fabric.builder=none")


def rows() -> list[tuple[str, float, wt.Prediction]]:
    """(switches, seconds of a step lost to collisions, prediction); packets that are sprayed over all ways do not collide."""
    found = [(name, wt.predict(wt.load("megascale-175b-12288", [*JOB, *sets]), network="flow")) for name, sets in FABRICS.items()]
    return [(name, p.step_time_s - found[-1][1].step_time_s, p) for name, p in found]


def main() -> None:
    print("GPT 175B on 1,024 A100, Megatron-LM, over the flow engine")
    print(f"{'':<30} {'step':>9} {'lost to collisions':>20}")
    for name, lost, p in rows():
        print(f"{name:<30} {p.step_time_s:>7.3f} s {1e3 * lost:>17.0f} ms")


if __name__ == "__main__":
    main()
