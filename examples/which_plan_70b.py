"""Which tensor and pipeline parallelism for Llama 2 70B on 64 H100?

    .venv/bin/python examples/which_plan_70b.py

Tries every split that the model allows, with as many virtual stages as keep two layers in each, and sorts by speed.
A plan that does not fit is listed, and never called the best.
"""

from __future__ import annotations

import windtunnel as wt

LAYERS = 80


def rows() -> list[tuple[int, int, int, wt.Prediction]]:
    """(tp, pp, vpp, prediction), fastest first."""
    found = []
    for tp in (1, 2, 4, 8):
        for pp in (1, 2, 4, 8):
            vpp = LAYERS // pp // 2 if pp > 1 else 1
            plan = {"tp": tp, "pp": pp, "vpp": vpp, "dp": 64 // tp // pp, "sequence_parallel": str(tp > 1).lower()}
            job = wt.load("llama2-70b-64xh100", [f"plan.{field}={value}" for field, value in plan.items()])
            found.append((tp, pp, vpp, wt.predict(job)))
    return sorted(found, key=lambda row: row[3].step_time_s)


def main() -> None:
    table = rows()
    best = next((row for row in table if row[3].fits), None)
    print("Llama 2 70B, 64 H100, batch 128 x 4096, bf16, optimizer state sharded (zero1)")
    print(f"{'tp':>3} {'pp':>3} {'vpp':>4} {'dp':>3} {'step':>9} {'MFU':>7} {'memory':>10}")
    for row in table:
        tp, pp, vpp, p = row
        memory = max(stage.total for stage in p.memory) / 2**30
        note = "  <- fastest that fits" if row is best else "" if p.fits else "  does not fit"
        print(f"{tp:>3} {pp:>3} {vpp:>4} {p.job.dp:>3} {p.step_time_s:>7.2f} s {p.mfu:>6.1%} {memory:>6.0f} GiB{note}")


if __name__ == "__main__":
    main()
