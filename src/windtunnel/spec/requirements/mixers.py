"""Requirements of what mixes tokens, and of layer patterns, on a model and a plan."""

from __future__ import annotations

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.spec.mixer import MIXERS, PAIRED, Mixer
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan


def check_mixers(model: Model, plan: Plan) -> None:
    """Raise at the first contradiction between mixers, the layers' pattern and the plan."""
    _check_patterns(model)
    present = [MIXERS[name] for name in dict.fromkeys(kind.mixer for kind in model.kinds)]
    known = [*MIXERS.own_members.values(), *(mixer for mixer in present if mixer not in MIXERS.own_members.values())]
    there = {mixer.heads_field for mixer in present}
    for mixer in known:
        field = mixer.heads_field
        stated = getattr(model, field) if field else None
        if field and mixer in present and stated is None:
            raise SpecError(f"model.{field}", Nothing(), f"its number of heads: the pattern has layers {_letters(mixer)}")
        if stated is not None and field not in there:
            raise SpecError(f"model.{field}", stated, f"layers {_letters(mixer)} in the pattern beside it, or leave it out")
    for mixer in known:
        if mixer in present:
            mixer.check(model, plan)
    if model.attention_gate and not any(mixer.gated for mixer in present):
        raise SpecError("model.attention_gate", True, "false with latent attention, or where no layer has attention")
    if model.moe_latent is not None and model.experts is None:
        raise SpecError("model.moe_latent", model.moe_latent, "model.experts beside it")


def _letters(mixer: Mixer) -> str:
    """Its letters in patterns."""
    if mixer.letter in ("", mixer.alone) or not mixer.alone:
        return mixer.alone or mixer.letter
    return f"{mixer.letter} in mixer_pattern or {mixer.alone}"


def _check_patterns(model: Model) -> None:
    pattern = model.layer_pattern or ""
    if not model.one_module_layers:
        return
    if PAIRED[0] in pattern:
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
