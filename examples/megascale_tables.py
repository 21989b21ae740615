"""MegaScale's two scaling tables: what they print for Megatron-LM and for MegaScale, and what is predicted.

    .venv/bin/python examples/megascale_tables.py

Published: Jiang et al., "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI 2024
(arXiv 2402.15627), Table 2 (GPT 175B, tp 8, pp 8, six virtual stages; batch 768, then 6144) and Figure 9 (530B, tp 8, pp 35, the
batch grows with the GPUs). The paper does not say micro batch, recompute, window or optimizer sharding of the baseline, nor the
530B's batch: the catalogue's job states what is assumed, here the window is half a sequence and the 530B's batch one sequence a
GPU. These rows took part in fitting A100's factors for kernels in training runs (docs/decisions/0003-training-factors.md): a check
of the fit, not of foresight.
"""

from __future__ import annotations

import windtunnel as wt
from windtunnel.reality import model_flops_per_token

PUBLISHED = {
    (256, 768): (40.0, 53.0, 32.0, 65.3),
    (512, 768): (21.2, 49.9, 16.5, 63.5),
    (768, 768): (15.2, 46.7, 11.5, 61.3),
    (1024, 768): (11.9, 44.7, 8.9, 59.0),
    (3072, 6144): (29.02, 48.7, 23.66, 59.1),
    (6144, 6144): (14.78, 47.8, 12.21, 57.3),
    (8192, 6144): (12.24, 43.3, 9.56, 54.9),
    (12288, 6144): (8.57, 41.2, 6.34, 55.2),
}
"""(GPUs, batch) -> seconds of an iteration and MFU in percent of Megatron-LM, then of MegaScale."""

LARGER = {2240: (49.2, 54.3), 4480: (48.8, 54.1), 11200: (48.2, 54.3)}
"""530B: GPUs -> MFU in percent of Megatron-LM, of MegaScale."""

MEGASCALE = (
    "runtime.framework=megascale",
    "model.parallel_block=true",
    "model.window=1024",
    "plan.sharding=zero2",
    "plan.recompute=none",
)


def mfu(p: wt.Prediction) -> float:
    """MFU in percent as the paper counts it: windowed attention has fewer FLOPs."""
    model, plan = p.job.model, p.job.plan
    flops = model_flops_per_token(model.layers, model.hidden, plan.seq, model.vocab, model.window) * plan.global_batch * plan.seq
    return 100.0 * flops / (p.step_time_s * p.job.cluster.gpus * p.job.cluster.gpu.peak[p.job.runtime.precision])


def rows() -> list[tuple[int, int, float, float, wt.Prediction]]:
    """(GPUs, batch, published seconds, published MFU, prediction): Megatron-LM's eight, then MegaScale's."""
    found = []
    for system in (0, 1):
        for (gpus, batch), figures in PUBLISHED.items():
            sets = [f"cluster.gpus={gpus}", f"plan.dp={gpus // 64}", f"plan.global_batch={batch}", *(MEGASCALE if system else ())]
            p = wt.predict(wt.load("megascale-175b-12288", sets))
            found.append((gpus, batch, figures[2 * system], figures[2 * system + 1], p))
    return found


def larger() -> list[tuple[int, int, float, wt.Prediction]]:
    """Weak scaling of the 530B: (GPUs, 0 Megatron-LM or 1 MegaScale, published MFU, prediction)."""
    found = []
    for gpus, published in LARGER.items():
        sets = [
            "model=megascale-530b",
            "plan.pp=35",
            "plan.vpp=3",
            f"cluster.gpus={gpus}",
            f"plan.dp={gpus // 280}",
            f"plan.global_batch={gpus}",
        ]
        for system in (0, 1):
            p = wt.predict(wt.load("megascale-175b-12288", [*sets, *(MEGASCALE if system else ())]))
            found.append((gpus, system, published[system], p))
    return found


def main() -> None:
    print("GPT 175B on A100, MegaScale (NSDI 2024) Table 2")
    print(
        f"{'':<12} {'GPUs':>6} {'batch':>6} {'published':>10} {'predicted':>10} {'error':>7} {'MFU published':>14} "
        f"{'predicted':>10}"
    )
    errors = []
    for place, (gpus, batch, seconds, published, p) in enumerate(rows()):
        errors.append(p.step_time_s / seconds - 1.0)
        name = "Megatron-LM" if place < len(PUBLISHED) else "MegaScale"
        print(
            f"{name:<12} {gpus:>6,} {batch:>6} {seconds:>8.2f} s {p.step_time_s:>8.2f} s {errors[-1]:>+6.1%} {published:>12.1f} %"
            f" {mfu(p):>8.1f} %"
        )
    print(f"mean absolute error of the step time {sum(map(abs, errors)) / len(errors):.1%}")
    print("530B, Figure 9, weak scaling")
    print(f"{'':<12} {'GPUs':>6} {'MFU published':>14} {'predicted':>10}")
    for gpus, system, published, p in larger():
        print(f"{('Megatron-LM', 'MegaScale')[system]:<12} {gpus:>6,} {published:>12.1f} % {mfu(p):>8.1f} %")


if __name__ == "__main__":
    main()
