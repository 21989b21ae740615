"""MegaScale's two scaling tables: what they print for Megatron-LM, and what is predicted.

    .venv/bin/python examples/megascale_tables.py

Published: Jiang et al., "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI 2024
(arXiv 2402.15627), Table 2, the Megatron-LM rows. GPT 175B, tp 8, pp 8, six virtual stages; batch 768, then 6144. The paper
does not say micro batch, recompute or optimizer sharding; the catalogue's job states what is assumed. With
`plan.recompute=none`, as `windtunnel validate` assumes, every time is some 4 % shorter. Rows of this family took part in fitting
A100's factors for kernels in training runs (docs/decisions/0003-training-factors.md): a check of the fit, not of foresight.
"""

from __future__ import annotations

import windtunnel as wt

PUBLISHED = {
    (256, 768): (40.0, 53.0), (512, 768): (21.2, 49.9), (768, 768): (15.2, 46.7), (1024, 768): (11.9, 44.7),
    (3072, 6144): (29.02, 48.7), (6144, 6144): (14.78, 47.8), (8192, 6144): (12.24, 43.3), (12288, 6144): (8.57, 41.2),
}
"""(GPUs, batch) -> seconds of an iteration, MFU in percent."""


def rows() -> list[tuple[int, int, float, float, wt.Prediction]]:
    """(GPUs, batch, published seconds, published MFU, prediction)."""
    return [
        (gpus, batch, seconds, mfu, wt.predict(wt.load("megascale-175b-12288", [
            f"cluster.gpus={gpus}", f"plan.dp={gpus // 64}", f"plan.global_batch={batch}"])))
        for (gpus, batch), (seconds, mfu) in PUBLISHED.items()
    ]


def main() -> None:
    print("GPT 175B with Megatron-LM on A100, MegaScale (NSDI 2024) Table 2")
    print(f"{'GPUs':>6} {'batch':>6} {'published':>10} {'predicted':>10} {'error':>7} {'MFU published':>14} {'predicted':>10}")
    errors = []
    for gpus, batch, seconds, mfu, p in rows():
        errors.append(p.step_time_s / seconds - 1.0)
        print(f"{gpus:>6,} {batch:>6} {seconds:>8.2f} s {p.step_time_s:>8.2f} s {errors[-1]:>+6.1%} {mfu:>12.1f} % {p.mfu:>9.1%}")
    print(f"mean absolute error of the step time {sum(map(abs, errors)) / len(errors):.1%}")


if __name__ == "__main__":
    main()
