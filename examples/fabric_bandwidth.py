"""How fast must the network between nodes be: at 1,024 GPUs, and at 12,288?

    .venv/bin/python examples/fabric_bandwidth.py

The 175B job of MegaScale (arXiv 2402.15627, Table 2) with the bandwidth of its eight NICs a node varied. The published cluster has
200 Gb/s each. Past that, PCIe 4 is the narrow place: 400 Gb/s needs PCIe 5. Gradients are reduced once a step, after the last
backward pass, so the fewer micro batches a step has, the more of it they are.
"""

from __future__ import annotations

import windtunnel as wt

LINKS = ((25, 4), (50, 4), (100, 4), (200, 4), (400, 4), (400, 5))
"""(Gb/s per NIC each way, PCIe generation)."""
SIZES = {1024: 768, 12288: 6144}
"""GPUs -> sequences a step, as published."""


def rows() -> list[tuple[int, int, int, wt.Prediction]]:
    """(GPUs, Gb/s, PCIe generation, prediction)."""
    found = []
    for gpus, batch in SIZES.items():
        for speed, pcie in LINKS:
            found.append(
                (
                    gpus,
                    speed,
                    pcie,
                    wt.predict(
                        wt.load(
                            "megascale-175b-12288",
                            [
                                f"cluster.gpus={gpus}",
                                f"plan.dp={gpus // 64}",
                                f"plan.global_batch={batch}",
                                f"cluster.node.nic.bandwidth={speed}Gb/s per NIC each way",
                                f"cluster.node.pcie_gen={pcie}",
                            ],
                        )
                    ),
                )
            )
    return found


def main() -> None:
    print("GPT 175B, tp 8, pp 8, six virtual stages, A100, Megatron-LM of 2023")
    print(f"{'GPUs':>6} {'per NIC':>9} {'PCIe':>5} {'step':>9} {'MFU':>7} {'gradients exposed':>18} {'pipeline exposed':>17}")
    for gpus, speed, pcie, p in rows():
        b = p.breakdown
        data = b.get("exposed_gradient_reduce", 0.0) + b.get("exposed_parameter_gather", 0.0)
        pipeline = b.get("exposed_pipeline_transfer", 0.0) + b["bubble"]
        print(f"{gpus:>6,} {speed:>4} Gb/s {pcie:>5} {p.step_time_s:>7.2f} s {p.mfu:>6.1%} {data:>16.2f} s {pipeline:>15.2f} s")


if __name__ == "__main__":
    main()
