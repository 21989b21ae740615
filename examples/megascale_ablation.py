"""MegaScale's ablation, step by step: what each optimisation gained by the paper, and what the graph says.

    .venv/bin/python examples/megascale_ablation.py

Published: Jiang et al., "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI 2024
(arXiv 2402.15627), Table 3. GPT 175B on 256 A100, tp 8, pp 8, six virtual stages, batch 256, the last row 768; steps add up. MFU is
counted as the paper counts it (`windtunnel.reality.rows.conventions`): windowed attention has fewer FLOPs. Not published, assumed:
the baseline's FlashAttention 1, a window of half the sequence, micro batch 1, sharded optimizer state.
"""

from __future__ import annotations

import windtunnel as wt
from windtunnel.reality import model_flops_per_token

STEPS: tuple[tuple[str, float, tuple[str, ...]], ...] = (
    ("Megatron-LM", 47.7, ()),
    ("parallel transformer block", 52.3, ("model.parallel_block=true",)),
    ("sliding window attention", 53.3, ("model.window=1024",)),
    ("tensor-parallel overlap", 55.5, ("runtime.overlap_tp=true",)),
    ("pipeline overlap", 58.0, ("runtime.overlap_p2p=true",)),
    ("data-parallel overlap", 59.5, ("runtime.overlap_grad_reduce=true", "runtime.overlap_param_gather=true")),
    ("efficient operators", 61.2, ("runtime.attention_library=fa2",)),
    ("data pipeline", 62.3, ("runtime.data.reader=node", "runtime.data.overlap=gradient_sync", "runtime.data.read_back=false")),
    ("LAMB, batch x 3", 65.3, ("runtime.optimizer=lamb", "plan.global_batch=768")),
)
"""(what is added, published MFU in percent, switches)."""

START = (
    "cluster.gpus=256",
    "plan.dp=4",
    "plan.global_batch=256",
    "plan.recompute=none",
    "runtime.attention=flash",
    "runtime.attention_library=fa1",
)


def mfu(p: wt.Prediction) -> float:
    """MFU in percent as the paper counts it."""
    model, plan = p.job.model, p.job.plan
    flops = model_flops_per_token(model.layers, model.hidden, plan.seq, model.vocab, model.window) * plan.global_batch * plan.seq
    return 100.0 * flops / (p.step_time_s * p.job.cluster.gpus * p.job.cluster.gpu.peak[p.job.runtime.precision])


def rows() -> list[tuple[str, float, float, wt.Prediction]]:
    """(what is added, published MFU, predicted MFU, prediction)."""
    found, sets = [], list(START)
    for name, published, added in STEPS:
        sets += added
        p = wt.predict(wt.load("megascale-175b-12288", sets))
        found.append((name, published, mfu(p), p))
    return found


def main() -> None:
    print("GPT 175B on 256 A100, MegaScale (NSDI 2024) Table 3: MFU in percent, steps add up")
    print(f"{'':<28} {'published':>9} {'gain':>6} {'predicted':>10} {'gain':>6}  exposed: {'tp':>6} {'pp':>6} {'dp':>6}   bubble")
    before = None
    for name, published, predicted, p in rows():
        gains = (published - before[0], predicted - before[1]) if before else (0.0, 0.0)
        before = (published, predicted)
        part = p.breakdown
        exposed = [part.get(f"exposed_{n}", 0.0) for n in ("tensor_parallel", "pipeline_transfer", "gradient_reduce")]
        exposed[2] += part.get("exposed_parameter_gather", 0.0)
        print(
            f"{name:<28} {published:>9.1f} {gains[0]:>+6.1f} {predicted:>10.1f} {gains[1]:>+6.1f}           "
            + " ".join(f"{seconds:>5.2f}s" for seconds in exposed)
            + f"   {part['bubble'] + part.get('other_stages', 0.0):.2f}s"
        )


if __name__ == "__main__":
    main()
