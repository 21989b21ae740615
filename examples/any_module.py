"""Does my diffusion transformer fit, and what does sharding it cost? Any PyTorch module, not only language models.

    .venv/bin/python examples/any_module.py

`examples/modules/vision.py` holds DiT-XL/2 and others in plain PyTorch. `windtunnel import torch examples/modules/vision.py:dit -o
examples/inputs/dit-xl-2.toml` wrote its kernels down; predicting needs no PyTorch any more. One token is one image.
"""

from __future__ import annotations

from pathlib import Path

import windtunnel as wt

JOB = Path(__file__).parent / "jobs" / "dit-xl-2-64xh100.toml"
CASES = (
    ("replicated", "plan.sharding=none", 2048),
    ("ZeRO-1", "plan.sharding=zero1", 2048),
    ("FSDP", "plan.sharding=fsdp", 2048),
    ("FSDP, all recomputed", "plan.recompute=full", 2048),
    ("FSDP, batch 8192", "plan.sharding=fsdp", 8192),
)


def rows() -> list[tuple[str, wt.Prediction]]:
    return [(name, wt.predict(wt.load(JOB, [change, f"plan.global_batch={batch}"]))) for name, change, batch in CASES]


def main() -> None:
    print("DiT-XL/2 on 64 H100, 32 images a micro batch")
    print(f"{'':<22} {'step':>8} {'images/s':>9} {'MFU':>6} {'memory':>9} {'reduction exposed':>18}")
    for name, p in rows():
        total = max(stage.total for stage in p.memory) / 2**30
        exposed = p.breakdown.get("exposed_gradient_reduce", 0.0)
        print(
            f"{name:<22} {p.step_time_s * 1e3:>5.0f} ms {p.tokens_per_s:>9,.0f} {p.mfu:>6.1%} {total:>5.1f} GiB "
            f"{exposed * 1e3:>15.2f} ms"
        )


if __name__ == "__main__":
    main()
