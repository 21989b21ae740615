"""Why is my mixture of experts slow: experts' kernels on the host, the wait for token counts, or tokens on the wire?

    .venv/bin/python examples/mixture_launch.py

Qwen3 30B on eight GB200, step by step from eager launches to what NVIDIA's containers of 2026 run. Each step is a switch of the
runtime, and each removes rows or waits from the graph (docs/mixtures.md). Host costs are NeMo's as the catalogue has them.
"""

from __future__ import annotations

from typing import Any

import windtunnel as wt

STEPS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("eager", {}),
    ("CUDA graphs of modules", {"graph_scope": ["attn", "moe_router", "moe_preprocess"]}),
    ("experts in fused kernels", {"moe_fused_mlp": True}),
    ("no wait, one graph a step", {"graph_scope": [], "moe_host_wait": False, "launch": "cuda_graph"}),
    ("overlapped all-to-all", {"moe_a2a_overlap": True}),
)
"""What changes; each step keeps the changes before it."""


def rows() -> list[tuple[str, wt.Prediction]]:
    """(step, its prediction)."""
    found = []
    runtime: dict[str, Any] = {"framework": "nemo", "version": "26.04", "precision": "mxfp8", "moe_dispatch": "hybridep"}
    for name, changes in STEPS:
        runtime = runtime | changes
        found.append(
            (
                name,
                wt.predict(
                    wt.load(
                        {
                            "name": "mixture",
                            "model": "qwen3-30b-a3b",
                            "cluster": {"base": "gb200-nvl72", "gpus": 8},
                            "plan": {"ep": 8, "sharding": "zero1", "micro_batch": 4, "global_batch": 512, "seq": 4096},
                            "runtime": runtime,
                        }
                    )
                ),
            )
        )
    return found


def main() -> None:
    print("Qwen3 30B on eight GB200, MXFP8, 512 sequences a step, ep 8")
    print(f"{'':<26} {'step':>7} {'host':>6} {'tokens travel':>14} {'tokens/s/GPU':>13}")
    for name, found in rows():
        share = {part: found.breakdown.get(part, 0.0) / found.step_time_s for part in ("host", "exposed_expert_parallel")}
        print(
            f"{name:<26} {found.step_time_s:>5.2f} s {share['host']:>6.0%} {share['exposed_expert_parallel']:>14.0%} "
            f"{found.tokens_per_s_per_gpu:>13,.0f}"
        )


if __name__ == "__main__":
    main()
