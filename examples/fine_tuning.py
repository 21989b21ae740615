"""What do adapters save beside training every weight, and what does the network still pay?

    .venv/bin/python examples/fine_tuning.py

Llama 2 70B on 8 H100 of one node, tp 4, sequences of 8192, 8-bit products: the setting of MLPerf Training's LoRA benchmark
(NVIDIA's v4.0 results: 3.71 s a step). Frozen weights have no gradient and no optimizer state; the gradient of the input still
runs through all of them, so a step takes two thirds of the FLOPs, not a fraction of a percent.
"""

from __future__ import annotations

import windtunnel as wt

COMMON = [
    "cluster.gpus=8",
    "plan.tp=4",
    "plan.pp=1",
    "plan.vpp=1",
    "plan.dp=2",
    "plan.seq=8192",
    "plan.global_batch=8",
    "plan.micro_batch=1",
    "plan.sequence_parallel=true",
    "plan.recompute=none",
    "plan.sharding=zero1",
    "runtime.framework=nemo",
    "runtime.precision=fp8",
]
WAYS = {
    "every weight": [],
    "attention, rank 16": [
        "model.lora.rank=16",
        "model.lora.dropout=true",
        "model.lora.all_to_all=true",
        "runtime.fp8_weight_cache=false",
    ],
    "everywhere, rank 16": [
        "model.lora.rank=16",
        "runtime.fp8_weight_cache=false",
        'model.lora.targets=["linear_qkv", "linear_proj", "linear_fc1", "linear_fc2"]',
    ],
}


def rows() -> list[tuple[str, wt.Prediction]]:
    """(what is trained, prediction)."""
    return [(way, wt.predict(wt.load("llama2-70b-64xh100", [*COMMON, *changes]))) for way, changes in WAYS.items()]


def main() -> None:
    print("Llama 2 70B, 8 H100, tp 4, 8 sequences of 8192, FP8")
    print(
        f"{'trained':<20} {'step':>8} {'PFLOP':>7} {'weights':>9} {'gradients':>10} {'optimizer':>10} {'activations':>12} "
        f"{'all':>8}"
    )
    for way, p in rows():
        m = p.memory[0]
        parts = " ".join(
            f"{size / 2**30:>{wide}.1f}"
            for size, wide in ((m.weights, 9), (m.gradients, 10), (m.optimizer, 10), (m.activations, 12), (m.total, 8))
        )
        flops = p.model_tflops_per_gpu * 8 * p.step_time_s / 1e3
        print(f"{way:<20} {p.step_time_s:>6.2f} s {flops:>7.1f} {parts} GiB{'' if p.fits else '  does not fit'}")


if __name__ == "__main__":
    main()
