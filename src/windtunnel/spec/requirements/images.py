"""Requirements of a vision encoder on a model and a plan, and a check that something is trained."""

from __future__ import annotations

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan


def check_vision(model: Model, plan: Plan) -> None:
    """Raise at the first contradiction between `model.vision`, frozen parts and the plan."""
    vision = model.vision
    if vision is None:
        if model.frozen:
            raise SpecError("model.frozen", True, "model.vision beside it, whose projector is trained; or model.lora")
        return
    if model.frozen and model.lora is not None:
        raise SpecError("model.frozen", True, "false beside model.lora, which freezes all weights anyway")
    if vision.image % vision.patch:
        raise SpecError("model.vision.image", vision.image, f"a multiple of patch = {vision.patch}")
    if (vision.image // vision.patch) % vision.merge:
        raise SpecError("model.vision.merge", vision.merge, f"a divisor of the {vision.image // vision.patch} patches of a side")
    if vision.hidden % vision.heads:
        raise SpecError("model.vision.heads", vision.heads, f"a divisor of model.vision.hidden = {vision.hidden}")
    for field in ("heads", "ffn"):
        if getattr(vision, field) % plan.tp:
            raise PlanError("plan.tp", plan.tp, f"a divisor of model.vision.{field} = {getattr(vision, field)}")
    if vision.projector and vision.projector[-1] % plan.tp:
        raise PlanError("plan.tp", plan.tp, f"a divisor of the projector's width {vision.projector[-1]}")
    if vision.images * vision.tokens > plan.seq:
        raise PlanError(
            "plan.seq",
            plan.seq,
            f"at least {vision.images * vision.tokens}: {vision.images} image(s) of "
            f"{vision.tokens} tokens are part of the sequence",
        )
