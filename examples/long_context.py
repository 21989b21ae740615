"""Which context parallelism for half a million tokens: ring, all-gather, all-to-all over heads, or rings of all-to-alls?

    .venv/bin/python examples/long_context.py

Llama 3 8B at 512 Ki tokens on 64 H100, one sequence over 16 GPUs in two nodes. Eight key/value heads go around eight ranks at most,
so the plain all-to-all is refused, and says what would do. Contiguous chunks show what balancing the causal mask is worth.
"""

from __future__ import annotations

import windtunnel as wt

SEQ, CP = 512 * 1024, 16
BASE = [
    f"plan.seq={SEQ}",
    f"plan.cp={CP}",
    "plan.dp=4",
    "cluster.gpus=64",
    "plan.global_batch=4",
    "plan.recompute=full",
    "plan.micro_batch=1",
    "runtime.framework=megatron-core",
    "runtime.fused_cross_entropy=true",
]
PLANS = (
    ("p2p",),
    ("all_gather",),
    ("a2a",),
    ("a2a+p2p", "plan.cp_sizes=[8, 2]"),
    ("p2p", "plan.cp_balance=contiguous"),
    ("all_gather", "plan.cp_balance=contiguous"),
)


def rows() -> list[tuple[str, str, wt.Prediction | str]]:
    """(kind, balance, prediction or why there is none)."""
    found: list[tuple[str, str, wt.Prediction | str]] = []
    for kind, *more in PLANS:
        balance = "contiguous" if "plan.cp_balance=contiguous" in more else "zigzag"
        try:
            answer: wt.Prediction | str = wt.predict(wt.load("llama3-8b-8xh100", [*BASE, f"plan.cp_kind={kind}", *more]))
        except wt.PlanError as error:
            answer = str(error)
        found.append((kind, balance, answer))
    return found


def main() -> None:
    print(f"{'kind':<11} {'balance':<11} {'step':>9} {'attention':>10} {'exposed':>8} {'fullest GPU':>12}")
    for kind, balance, p in rows():
        if isinstance(p, str):
            print(f"{kind:<11} {balance:<11} {p.split('; allowed: ')[1].split(' that')[0]}: too few for {CP} ranks")
            continue
        most = max(p.memory, key=lambda stage: stage.total)
        again = p.breakdown.get("exposed_context_parallel", 0.0)
        print(
            f"{kind:<11} {balance:<11} {p.step_time_s:>7.2f} s {p.breakdown['attention']:>8.2f} s {again:>6.2f} s "
            f"{most.total / 2**30:>8.1f} GiB{'' if p.fits else '  does not fit'}"
        )


if __name__ == "__main__":
    main()
