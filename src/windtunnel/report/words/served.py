"""A served copy, and the verdict of a search of copies, in words."""

from __future__ import annotations

from windtunnel.serving import ServeChoice, ServeFront, ServePlan

SAME = 0.01
"""Difference of two throughputs that is none."""


def kinds_sentence(found: ServeFront) -> str:
    """Whether copies for prompts pay, and how much."""
    together, apart = found.kinds
    if found.gain is not None:
        more = found.gain - 1.0
        if abs(more) < SAME:
            return f"both kinds give the same tokens/s a GPU under the limits, within {100 * SAME:.0f} %"
        who = "prompts on copies of their own" if more > 0.0 else "prompts beside tokens"
        least = more if more > 0.0 else 1.0 / found.gain - 1.0
        assert apart is not None
        return f"{who} give {100 * least:.1f} % more tokens/s a GPU under the limits; the best apart is {describe_copy(apart)}"
    if together is None and apart is None:
        return "neither kind keeps the limits"
    if together is not None and not any(one.has_sides for one in found.choices):
        return "no copies for prompts were simulated: they do not fit beside one for tokens, or their passes alone are too slow"
    only = "prompts on copies of their own" if together is None else "prompts beside tokens"
    return f"only {only} keep the limits"


def describe_copy(one: ServeChoice) -> str:
    """A copy as its flags, with the copies for prompts before it."""
    side = one.served.prefill
    if side is None:
        return f"{one.engine} {_degrees(one.plan)} {_formats(one)}"
    front = f"{side.copies}x{_degrees(side.plan).replace(' ', '.')}"
    return f"{one.engine} {front} > {side.decode_copies}x{_degrees(one.plan).replace(' ', '.')} {_formats(one)}"


def _degrees(plan: ServePlan) -> str:
    return " ".join(f"{name}{getattr(plan, name)}" for name in ("tp", "pp", "dp", "ep") if getattr(plan, name) > 1) or "tp1"


def _formats(one: ServeChoice) -> str:
    """Number formats, and what drafts."""
    formats = one.weights if one.kv == "bf16" else f"{one.weights}/{one.kv}"
    drafted = one.served.server.speculation
    return formats if drafted is None else f"{formats} +{drafted.method}{drafted.drafts}"
