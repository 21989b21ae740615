"""What limits a job, in words."""

from __future__ import annotations

from windtunnel.search.levers.sensitivity import MORE, SMALL, Limit, Sensitivity


def notable_limits(result: Sensitivity) -> list[Limit]:
    """Limits that are no noise."""
    return [limit for limit in result.limits if max(abs(limit.elasticity), abs(limit.gain)) >= SMALL]


def sum_sentence(result: Sensitivity) -> str:
    rates = sum(limit.elasticity for limit in result.limits)
    left = ", ".join(f"{rest:+.3f} inside {part}" for part, rest in result.rest.items() if abs(rest) >= SMALL)
    return (
        f"Elasticities of all rates add up to {rates:+.3f}"
        + (f"; what no rate changes, start-up times: {left}" if left else "")
        + f". Kernels, calls and host together: {result.total:+.4f}. At -1, all of them twice as fast halve the step."
    )


def memory_sentence(result: Sensitivity) -> str:
    if result.memory is None:
        return f"No recompute or micro batch that {100 * MORE:.0f} % more memory has room for is faster."
    turned = result.memory
    return f"{100 * MORE:.0f} % more memory would allow {' '.join(turned.sets)}: {signed_percent(turned.gain)}."


def signed_percent(share: float) -> str:
    return f"{100.0 * share:+.2f} %"
