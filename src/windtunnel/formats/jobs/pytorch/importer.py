"""`windtunnel import torch`: the steps in order, and what is told about them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.pytorch.blocks import Writer, buffer_bytes, segments
from windtunnel.formats.jobs.pytorch.export import Joint, joint
from windtunnel.formats.jobs.pytorch.load import Loaded, load, pytorch
from windtunnel.formats.jobs.pytorch.tensors import GraphTensors, short_name
from windtunnel.spec import load_model

FORMAT = "torch.export"


def import_torch(
    target: str,
    arguments: Sequence[str] = (),
    inputs: Sequence[str] = (),
    dtype: str = "bf16",
    tokens: int | None = None,
    name: str = "",
) -> Imported:
    """The graph model of the module behind `target` (FILE.py:factory, package.module:factory or FILE.pt2).

    `arguments` of the factory as NAME=VALUE; `inputs` as [NAME=]SHAPE[:DTYPE], first dimension the micro batch; `tokens` of a
    sample, left out: the second dimension of whole numbers, else 1. Runs the target's Python; nothing is computed and no weight
    takes memory. Raises SpecError for what cannot be loaded or traced, and where PyTorch is missing.
    """
    plain = target.rpartition(":")
    made = load(target, arguments, inputs, dtype)
    return _import_loaded(made, dtype, tokens, name or (plain[2] if plain[0] else target), f"torch.export of {target}")


def from_module(
    module: Any,
    args: tuple[Any, ...] = (),
    kwargs: dict[str, Any] | None = None,
    dtype: str = "bf16",
    tokens: int | None = None,
    name: str = "",
) -> Imported:
    """The graph model of `module` run on `args` and `kwargs`, whose values do not matter.

    The module's parameters are replaced by tensors without storage: make it for this call, best under `torch.device("meta")`.
    """
    return _import_loaded(Loaded(module, args, dict(kwargs or {})), dtype, tokens, name or type(module).__name__, "torch.export")


def _import_loaded(loaded: Loaded, dtype: str, tokens: int | None, name: str, source: str) -> Imported:
    batch, length = _batch(loaded)
    graph = joint(loaded, dtype)
    tensors = GraphTensors(graph)
    parts = segments(graph, tensors)
    writer = Writer(graph, tensors, parts)
    blocks, order = writer.write()
    model = load_model(
        {
            "kind": "graph",
            "name": name,
            "source": source,
            "batch": batch,
            "tokens": tokens or length,
            "dtype": _dtype(graph, dtype),
            "order": [list(entry) for entry in order],
            "blocks": {key: block.model_dump(mode="json") for key, block in blocks.items()},
        }
    )
    assumed = [
        *loaded.assumed,
        f"{batch} samples a micro batch, {tokens or length} token(s) each: what the inputs have",
        "kernels one by one as eager PyTorch runs them, no fusion",
    ]
    seen = writer.reader.seen
    if seen["attention"]:
        assumed.append(f"{seen['attention']} fused attention calls run as flash attention does")
    if seen["convolution"]:
        assumed.append(f"{seen['convolution']} convolutions (both passes) run as matrix products over patches (implicit GEMM)")
    if seen["depthwise convolution"]:
        assumed.append(f"{seen['depthwise convolution']} depthwise convolutions take the time to move their tensors")
    if graph.frozen:
        assumed.append(f"{graph.frozen} parameters without gradient have gradients and optimizer state like the others")
    if writer.reader.unknown:
        moved = sum(kernel.moved * times for key, times in order for kernel in blocks[key].kernels)
        share = sum(writer.reader.unknown.values()) / moved
        names = ", ".join(f"aten.{key}" for key, _ in writer.reader.unknown.most_common(8))
        assumed.append(f"operators not known take the time to move their tensors, {share:.1%} of all bytes: {names}")
    ignored = [f"{buffer_bytes(graph):.0f} bytes of buffers"] if buffer_bytes(graph) else []
    idle = sorted({short_name(n) for n in graph.nodes if n.op == "call_function" and n.meta.get("val") is None})
    ignored += [f"aten.{key}: it computes nothing" for key in idle]
    built = (
        f"{len(order)} runs of {len(blocks)} different blocks",
        f"{int(getattr(model, 'parameters', 0))} parameters",
        f"{sum(seen.values())} kernels of a micro batch's forward and backward pass",
    )
    return Imported(FORMAT, model, built=built, ignored=tuple(ignored), assumed=tuple(assumed))


def _batch(loaded: Loaded) -> tuple[int, int]:
    """(samples, tokens of one) of the first tensor among the inputs."""
    torch = pytorch()
    leaves = [leaf for leaf in torch.utils._pytree.tree_leaves((loaded.args, loaded.kwargs)) if isinstance(leaf, torch.Tensor)]
    if not leaves or not leaves[0].dim():
        raise SpecError("inputs", "no tensor with a batch", "a first input whose first dimension is the micro batch")
    first = leaves[0]
    words = first.dim() == 2 and not first.is_floating_point()
    return int(first.shape[0]), int(first.shape[1]) if words else 1


def _dtype(graph: Joint, wanted: str) -> str:
    """Number format of most parameters."""
    counts: dict[str, int] = {}
    for node in graph.weights:
        value = node.meta["val"]
        kind = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.float32": "fp32"}.get(str(value.dtype), wanted)
        counts[kind] = counts.get(kind, 0) + int(value.numel())
    return max(counts, key=lambda kind: counts[kind]) if counts else wanted
