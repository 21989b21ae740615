"""Is my small model bound by Python, and what would a CUDA graph give?

    .venv/bin/python examples/host_bound.py

Host time is a stream of its own: a kernel starts when the GPU is free and the host has launched it, whichever is later. So a small
model or a wide tensor-parallel split waits for the host, and a large one hides it. The host's costs are assumed figures of the
framework (`windtunnel catalog frameworks megatron-core`, section host): read this as a direction.
"""

from __future__ import annotations

import windtunnel as wt

CASES = (("mpt-125m", 1, 512), ("mpt-125m", 1, 2048), ("mpt-1b", 8, 512), ("mpt-1b", 1, 512), ("mpt-7b", 1, 2048))
"""(model, tp, tokens in a sequence)."""


def rows() -> list[tuple[str, int, int, wt.Prediction, wt.Prediction]]:
    """(model, tp, seq, eager, with a CUDA graph)."""

    def run(model: str, tp: int, seq: int, launch: str) -> wt.Prediction:
        return wt.predict(
            wt.load(
                {
                    "name": "small model",
                    "model": model,
                    "cluster": {"base": "h100-ib", "gpus": 8},
                    "plan": {"tp": tp, "sharding": "zero1", "micro_batch": 1, "global_batch": 64, "seq": seq},
                    "runtime": {"framework": "megatron-core", "launch": launch},
                }
            )
        )

    return [(*case, run(*case, "eager"), run(*case, "cuda_graph")) for case in CASES]


def main() -> None:
    print("Eight H100, Megatron-Core, 64 sequences a step, micro batch 1")
    print(f"{'model':<9} {'tp':>3} {'seq':>5} {'eager':>9} {'of it host':>11} {'CUDA graph':>11} {'speed-up':>9}")
    for model, tp, seq, eager, graph in rows():
        host = eager.breakdown["host"] / eager.step_time_s
        print(
            f"{model:<9} {tp:>3} {seq:>5} {eager.step_time_s * 1e3:>6.0f} ms {host:>10.0%} "
            f"{graph.step_time_s * 1e3:>8.0f} ms {eager.step_time_s / graph.step_time_s:>8.2f}x"
        )


if __name__ == "__main__":
    main()
