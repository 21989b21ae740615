"""A network as a graph of kernels, written by `windtunnel import torch` for a module that the other nouns cannot describe."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field, ModelWrapValidatorHandler, SerializerFunctionWrapHandler, model_serializer, model_validator

from windtunnel.base.errors import PlanError
from windtunnel.spec.common import Flag, Layers, Noun, PositiveInt
from windtunnel.spec.model import Model
from windtunnel.spec.plan import Plan
from windtunnel.spec.runtime import Runtime

Count = Annotated[int, Field(ge=0, le=10**15, strict=True)]
Amount = Annotated[float, Field(ge=0, allow_inf_nan=False)]
KernelName = Annotated[str, Field(min_length=1, max_length=300)]
KernelKind = Literal["gemm", "attention", "attention_backward", "norm", "elementwise", "softmax", "embedding", "copy", "reduce"]


class Kernel(NamedTuple):
    """One launch (or `launches` equal ones) of a pass of a block, with `workload.ops`' meaning of each dimension.

    FLOPs and `moved` bytes are those of one micro batch on one GPU.
    """

    name: KernelName
    kind: KernelKind
    phase: Literal["forward", "dgrad", "wgrad"]
    batch: Count
    m: Count
    n: Count
    k: Count
    extra: Count
    flops: Amount
    moved: Amount
    launches: Count


class GraphBlock(Noun):
    """A block of the network: a layer, or what is before, between and after layers."""

    kernels: tuple[Kernel, ...]
    weights: tuple[Count, ...] = Field(default=(), description="elements of its parameter tensors")
    saved: tuple[Amount, ...] = Field(default=(), description="bytes of tensors that its backward pass reads")
    working: Amount = Field(default=0.0, description="bytes of temporaries of that pass")
    enters: Amount = Field(default=0.0, description="bytes that it reads from blocks before it")
    cut: Amount = Field(default=0.0, description="all bytes that cross its beginning")
    root: Flag = Field(default=False, description="it is not a child of a list of layers, so FSDP gathers it with the root unit")


class GraphModel(Model):
    """A network as blocks of kernels, written down for `batch` samples of `tokens` tokens each.

    `order`: the model from first block to last as (name, consecutive repeats). The fields of a decoder stack do not apply and are
    refused; other code sees a dense model without position table.
    """

    kind: Literal["graph"]
    blocks: dict[str, GraphBlock]
    order: Annotated[tuple[tuple[KernelName, Layers], ...], Field(min_length=1)]
    batch: PositiveInt
    tokens: PositiveInt = 1
    dtype: Literal["bf16", "fp16", "fp32"] = "bf16"
    layers: Layers = 1
    hidden: PositiveInt = 1
    heads: PositiveInt = 1
    ffn: PositiveInt = 1
    vocab: PositiveInt = 1
    position: Literal["learned", "rope", "alibi", "none"] = "none"
    tied_embeddings: Flag = False

    @model_validator(mode="wrap")
    @classmethod
    def _own_fields(cls, value: Any, handler: ModelWrapValidatorHandler[GraphModel]) -> GraphModel:
        if isinstance(value, dict):
            foreign = sorted(set(value) & set(Model.model_fields) - OWN)
            if foreign:
                raise ValueError(f"the fields {', '.join(sorted(OWN))} of a graph model; {foreign[0]} is a decoder's")
            order, blocks = value.get("order"), value.get("blocks")
            if isinstance(order, (list, tuple)) and isinstance(blocks, dict):
                value = {**value, "layers": _check_order(order, blocks)}
        return handler(value)

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {key: item for key, item in handler(self).items() if key in OWN}

    @property
    def sequence(self) -> tuple[str, ...]:
        """Names of the blocks, first to last, repeats written out; there are `layers` of them."""
        return tuple(name for name, times in self.order for _ in range(times))

    @property
    def parameters(self) -> float:
        """Elements of all parameters; shared ones are at their first user's."""
        return float(sum(times * sum(self.blocks[name].weights) for name, times in self.order))


OWN = frozenset({"kind", "name", "source", "blocks", "order", "batch", "tokens", "dtype"})


def _check_order(order: Any, blocks: dict[str, Any]) -> int:
    """Number of blocks in `order`; ValueError for an unknown name."""
    total = 0
    for entry in order:
        if not isinstance(entry, (list, tuple)) or len(entry) != 2 or not isinstance(entry[1], int):
            raise ValueError("order as pairs of a block's name and how often it runs in a row")
        if entry[0] not in blocks:
            raise ValueError(f"order of the blocks {', '.join(sorted(blocks)[:12])}; {entry[0]!r} is none of them")
        total += entry[1]
    return total


WHOLE_BACKWARD = ("gpipe", "1f1b", "interleaved", "breadth-first")
"""Schedules that run a block's backward pass in one piece."""


def check_graph(model: GraphModel, plan: Plan, runtime: Runtime) -> None:
    """Raise if the plan requires what kernels with fixed shapes cannot do."""
    for axis in ("tp", "cp", "ep", "etp"):
        if getattr(plan, axis) > 1:
            raise PlanError(
                f"plan.{axis}",
                getattr(plan, axis),
                f"1: {model.name} is a graph of kernels with fixed shapes, which do not say how to split them",
                "Use plan.pp, plan.dp and plan.sharding.",
            )
    if plan.sequence_parallel:
        raise PlanError("plan.sequence_parallel", True, "false: a graph model has no tensor parallelism")
    if plan.micro_batch != model.batch:
        raise PlanError(
            "plan.micro_batch",
            plan.micro_batch,
            f"{model.batch}: {model.name} was imported with that many samples",
            f"Import it again with inputs of another batch, or write --set plan.micro_batch={model.batch}.",
        )
    if plan.seq != model.tokens:
        raise PlanError(
            "plan.seq",
            plan.seq,
            f"{model.tokens}: tokens of a sample of {model.name}",
            f"Write --set plan.seq={model.tokens}; 1 counts samples.",
        )
    if plan.recompute not in ("none", "full"):
        raise PlanError(
            "plan.recompute", plan.recompute, "none, full (whole blocks): a graph does not say what its kernels belong to"
        )
    if plan.offload.modules:
        raise PlanError("plan.offload.modules", list(plan.offload.modules), "none: a graph does not say what its kernels belong to")
    if plan.schedule_name not in WHOLE_BACKWARD:
        raise PlanError(
            "plan.schedule",
            plan.schedule_name,
            f"{', '.join(WHOLE_BACKWARD)}: kernels of a graph's backward pass are not split into halves",
        )
    for path, got, unset in (
        ("plan.recompute_layers", plan.recompute_layers, None),
        ("plan.document", plan.document, None),
        ("runtime.graph_scope", runtime.graph_scope, ()),
    ):
        if got != unset:
            raise PlanError(path, got, "left out: it is about layers of a decoder, and a graph model has blocks of kernels")
    wide = ("fp32", "tf32")
    if (runtime.precision in wide) != (model.dtype in wide) or runtime.precision not in ("fp32", "tf32", "fp16", "bf16"):
        fitting = "fp32, tf32" if model.dtype in wide else "bf16, fp16"
        raise PlanError(
            "runtime.precision",
            runtime.precision,
            f"{fitting}: {model.name} was imported in {model.dtype}",
            "Import it again with another --dtype.",
        )
