"""Requirements of adapters and of a vision encoder on a model and a plan, and a check that something is trained."""

from __future__ import annotations

from collections.abc import Collection

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.spec.mixer import MIXERS
from windtunnel.spec.model import Lora, Model
from windtunnel.spec.plan import Plan


def _reaches_experts(lora: Lora, feeds: Collection[str]) -> bool:
    return "experts" in feeds and bool({"linear_fc1", "linear_fc2"} & set(lora.targets))


def _check_base(lora: Lora, plan: Plan, precision: str, feeds: Collection[str]) -> None:
    """Raise where the format of frozen weights contradicts the rest."""
    if lora.base != "none" and "experts" in feeds and lora.experts is None:
        raise SpecError(
            "model.lora.base",
            lora.base,
            "with it, what experts are: --set model.lora.experts=linear (modules, which are packed too) or parameters (which stay "
            "in 16 bits)",
        )
    if lora.double_quant and lora.base not in ("nf4", "fp4"):
        raise SpecError("model.lora.double_quant", True, "false, or model.lora.base=nf4: only 4-bit scales are quantised")
    if lora.base == "int8" and plan.shards_parameters and lora.base_sharded:
        raise SpecError(
            "model.lora.base",
            "int8",
            "nf4 or fp4 under full sharding: bitsandbytes' 8-bit weights cannot be cut (transformers refuses it)",
            "Or model.lora.base_sharded=false, which keeps all of them on every rank.",
        )
    if lora.base != "none" and precision not in ("bf16", "fp16", "fp32", "tf32"):
        raise SpecError(
            "runtime.precision", precision, "bf16 or fp16 beside model.lora.base, whose weights are unpacked to 16 bits"
        )
    if lora.base != "none" and plan.tp > 1:
        raise PlanError("plan.tp", plan.tp, "1 with model.lora.base: bitsandbytes' linear layers are not cut by tensor parallelism")


def check_adapters(model: Model, plan: Plan, precision: str) -> None:
    """Raise at the first contradiction between `model.lora`, the model's layers, the plan and `runtime.precision`."""
    lora = model.lora
    if lora is None:
        return
    if len(set(lora.targets)) < len(lora.targets):
        raise SpecError("model.lora.targets", list(lora.targets), "each target once")
    feeds = {kind.feed for kind in model.kinds}
    mixed = {target for name in {kind.mixer for kind in model.kinds} for target in MIXERS[name].adapted}
    for target in lora.targets:
        if target in ("linear_qkv", "linear_proj") and target not in mixed:
            raise SpecError("model.lora.targets", target, "linear_fc1, linear_fc2: the model has no attention")
        if target in ("linear_fc1", "linear_fc2") and feeds <= {"none"}:
            raise SpecError("model.lora.targets", target, "linear_qkv, linear_proj: no layer has an MLP")
        if target in ("linear_fc1", "linear_fc2") and "experts" in feeds and lora.experts is None:
            raise SpecError(
                "model.lora.targets",
                target,
                "with it, what experts are: --set model.lora.experts=linear (modules with adapters of their own, as in "
                "transformers 4) or parameters (targets do not reach them: transformers 5, GPT-OSS)",
                "Or linear_qkv, linear_proj alone.",
            )
    if lora.experts == "linear" and plan.etp > 1 and _reaches_experts(lora, feeds):
        raise PlanError("plan.etp", plan.etp, "1: adapters of experts are not cut", "Or model.lora.experts=parameters.")
    _check_base(lora, plan, precision, feeds)
    if lora.rank % plan.tp and any(target in ("linear_qkv", "linear_fc1") for target in lora.targets):
        raise PlanError(
            "plan.tp",
            plan.tp,
            f"a divisor of model.lora.rank = {lora.rank}: beside column-parallel layers it is cut",
            "Or another rank.",
        )
    behind = [target for target in lora.targets if target in ("linear_proj", "linear_fc2")]
    if lora.all_to_all and not (plan.sequence_parallel and plan.tp > 1 and behind):
        raise SpecError("model.lora.all_to_all", True, "false: it needs sequence_parallel, tp > 1 and linear_proj or linear_fc2")
    if plan.shards_parameters and plan.ep > 1:
        raise PlanError(
            "plan.ep",
            plan.ep,
            f"1 with adapters under plan.sharding = {plan.sharding!r}",
            'Frozen experts are gathered over all ranks there; or write plan.sharding = "zero1".',
        )


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
