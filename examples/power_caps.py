"""What does a power cap cost in time, and what does it save in energy and in money?

    .venv/bin/python examples/power_caps.py

Llama 2 70B on 64 H100, bought in France. A cap lowers the clock of products and attention until their power fits; the rest of the
node, the capital and the people cost the same for longer (docs/money.md).
"""

from __future__ import annotations

import windtunnel as wt

CAPS = (700, 600, 500, 400, 350, 300, 250, 200)
MACHINE = ["cluster.economics.mode=buy", "cluster.region=france"]


def rows() -> list[tuple[int, wt.Prediction]]:
    """(cap in watts, prediction)."""
    return [(cap, wt.predict(wt.load("llama2-70b-64xh100", [*MACHINE, f"cluster.node.gpu.power_cap_w={cap}"]))) for cap in CAPS]


def main() -> None:
    table = rows()
    first = table[0][1]
    print("Llama 2 70B on 64 H100 under power caps; 2 trillion tokens")
    heads = ("cap", 6), ("step", 8), ("longer", 7), ("GPU", 6), ("J a token", 10), ("energy", 8), ("dollars", 11), ("power", 6)
    print(" ".join(f"{name:>{width}}" for name, width in (*heads, ("CO2", 7))))
    for cap, p in table:
        energy, cost, tokens = p.energy_j or 0.0, p.cost or 0.0, p.job.tokens or 1.0
        power = (p.cost_parts or {})["power"]
        print(
            f"{cap:>4} W {p.step_time_s:>6.2f} s {p.step_time_s / first.step_time_s - 1:>6.0%} {p.gpu_power_w:>4.0f} W "
            f"{energy / tokens:>10.3f} {energy / 3.6e9:>4.0f} MWh {cost:>11,.0f} {power / cost:>6.0%} "
            f"{(p.carbon_kg or 0.0) / 1e3:>5.1f} t"
        )


if __name__ == "__main__":
    main()
