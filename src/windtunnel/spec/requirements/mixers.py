"""Requirements of recurrences (Mamba-2, linear attention) and of layer patterns on a model and a plan."""

from __future__ import annotations

from windtunnel.base.errors import Nothing, PlanError, SpecError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan

_WIDTH = {"mamba": "ssm_heads", "linear": "linear_heads"}
_LETTER = {"mamba": "M", "linear": "L in mixer_pattern or G"}


def check_mixers(model: Model, plan: Plan) -> None:
    """Raise at the first contradiction between mixers, the layers' pattern and the plan."""
    _check_patterns(model)
    mixers = {kind.mixer for kind in model.kinds}
    for mixer, field in _WIDTH.items():
        stated = getattr(model, field)
        if mixer in mixers and stated is None:
            raise SpecError(f"model.{field}", Nothing(), f"its number of heads: the pattern has layers {_LETTER[mixer]}")
        if mixer not in mixers and stated is not None:
            raise SpecError(f"model.{field}", stated, f"layers {_LETTER[mixer]} in the pattern beside it, or leave it out")
    if "mamba" in mixers:
        _check_heads("model.ssm_heads", model.ssm_heads or 1, "model.ssm_groups", model.ssm_groups, plan)
    if "linear" in mixers:
        heads = model.linear_heads or 1
        _check_heads("model.linear_heads", heads, "model.linear_key_heads", model.linear_key_heads or heads, plan)
    if model.attention_gate and (model.latent or "attention" not in mixers):
        raise SpecError("model.attention_gate", True, "false with latent attention, or where no layer has attention")
    if model.moe_latent is not None and model.experts is None:
        raise SpecError("model.moe_latent", model.moe_latent, "model.experts beside it")


def _check_patterns(model: Model) -> None:
    pattern = model.layer_pattern or ""
    if not model.one_module_layers:
        return
    if "D" in pattern:
        raise SpecError(
            "model.layer_pattern",
            pattern,
            "D and E alone, or M, G, *, - and E, whose layers are one sub-module each",
            "A dense MLP of its own is the letter -.",
        )
    if model.mixer_pattern is not None:
        raise SpecError(
            "model.mixer_pattern", model.mixer_pattern, "only beside a layer_pattern of D and E: this one names the mixers"
        )
    if model.parallel_block:
        raise SpecError("model.parallel_block", True, "false where each layer is one sub-module")


def _check_heads(name: str, heads: int, group: str, groups: int, plan: Plan) -> None:
    """Heads are sharded over tp, then over cp; `groups` of heads that share matrices are sharded over tp."""
    if heads % groups:
        raise SpecError(group, groups, f"a divisor of {name} = {heads}")
    for what, number in ((name, heads), (group, groups)):
        if number % plan.tp:
            raise PlanError("plan.tp", plan.tp, f"a divisor of {what} = {number}: each rank holds whole ones", _divisors(number))
    if (heads // plan.tp) % plan.cp:
        raise PlanError(
            "plan.cp",
            plan.cp,
            f"a divisor of {name} / tp = {heads // plan.tp}: a recurrence needs its whole sequence, so "
            "context parallelism cuts its heads",
            _divisors(heads // plan.tp),
        )


def _divisors(number: int) -> str:
    return "Divisors: " + ", ".join(str(d) for d in range(1, number + 1) if number % d == 0) + "."
