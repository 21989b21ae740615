"""What if the GPU had twice the memory bandwidth, or twice the FLOP/s, or not the power for them?

    .venv/bin/python examples/future_gpu.py

A GPU that does not exist needs no catalogue entry: a job may start from one that does and change fields
(examples/jobs/future-gpu.toml does the same in a file). Compute-bound kernels then scale with FLOP/s as far as the power goes,
memory-bound ones with bandwidth, launches not at all (docs/transfer.md).
"""

from __future__ import annotations

import windtunnel as wt

H100 = {"memory_bandwidth": 3.35, "peak": 989.4, "achievable": 794.5, "power": 700}
CASES = {
    "H100": (1.0, 1.0, 1.0),
    "twice the bandwidth": (2.0, 1.0, 1.0),
    "twice the FLOP/s": (1.0, 2.0, 2.0),
    "the same at 700 W": (1.0, 2.0, 1.0),
    "both": (2.0, 2.0, 2.0),
}
"""Name -> factor on memory bandwidth, on bf16 FLOP/s, on power."""


def rows() -> list[tuple[str, wt.Prediction]]:
    """(GPU, prediction of Llama 3 8B on eight of them)."""
    found = []
    for name, (bandwidth, flops, power) in CASES.items():
        job = wt.load(
            "llama3-8b-8xh100",
            [
                "cluster.node.gpu.kernels_from=h100-sxm-80gb",
                f"cluster.node.gpu.memory_bandwidth={H100['memory_bandwidth'] * bandwidth:g}TB/s",
                f"cluster.node.gpu.peak.bf16={H100['peak'] * flops:g}TFLOP/s",
                f"cluster.node.gpu.achievable.bf16={H100['achievable'] * flops:g}TFLOP/s",
                f"cluster.node.gpu.power_w={H100['power'] * power:g}",
            ],
        )
        found.append((name, wt.predict(job)))
    return found


def main() -> None:
    table = rows()
    base = table[0][1].step_time_s
    print("Llama 3 8B, eight GPUs, FSDP, 8 x 8192 tokens; the same H100 otherwise")
    print(f"{'GPU':<22} {'step':>10} {'speed-up':>9} {'matmul':>10} {'attention':>10} {'memory-bound':>13} {'MFU':>7}")
    for name, p in table:
        b = p.breakdown
        print(
            f"{name:<22} {p.step_time_s * 1e3:>7.0f} ms {base / p.step_time_s:>8.2f}x {b['matmul'] * 1e3:>7.0f} ms "
            f"{b['attention'] * 1e3:>7.0f} ms {b['memory_bound'] * 1e3:>10.0f} ms {p.mfu:>6.1%}"
        )


if __name__ == "__main__":
    main()
