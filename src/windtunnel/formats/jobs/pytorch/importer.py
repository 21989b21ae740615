"""`windtunnel import torch`: the steps in order, and what is told about them.

A joint graph cut into blocks: children of lists of layers, and what lies between; equal ones are written once.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError
from windtunnel.formats.jobs.imported import Imported
from windtunnel.formats.jobs.pytorch.export import INNER, Joint, Loaded, joint, load, pytorch
from windtunnel.formats.jobs.pytorch.kernels import GraphTensors, Reader, short_name, size_of
from windtunnel.spec import load_model
from windtunnel.spec.graph_model import GraphBlock, Kernel

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


BACKWARD = "is_backward"


@dataclass
class GraphSegment:
    """Operators of one block: forward as they come, backward in their order in the joint graph."""

    path: str
    listed: bool
    forward: list[Any] = field(default_factory=list)
    backward: list[Any] = field(default_factory=list)


def is_backward(node: Any) -> bool:
    return bool(node.meta.get("partitioner_tag") == BACKWARD)


def path_of(node: Any) -> str:
    """Path of the module that an operator belongs to, from the root of the user's module."""
    for key in ("nn_module_stack", "fwd_nn_module_stack"):
        stack = node.meta.get(key)
        if stack:
            path = str(list(stack.values())[-1][0])
            return path.removeprefix(INNER).removeprefix(".")
    return ""


def listed_path(path: str) -> str | None:
    """`encoder.layers.3` of `encoder.layers.3.mlp`: the outermost child of a list of modules; None where there is none."""
    parts = path.split(".")
    at = next((i for i, part in enumerate(parts) if part.isdecimal()), None)
    return None if at is None else ".".join(parts[: at + 1])


def listed_paths(paths: set[str]) -> set[str]:
    """Children of lists that are blocks: those with modules inside; single operators of a list only where there are no others."""
    found = {path: listed for path in paths if (listed := listed_path(path)) is not None}
    whole = {listed for path, listed in found.items() if path != listed}
    return whole or set(found.values())


def segments(joint: Joint, tensors: GraphTensors) -> list[GraphSegment]:
    """Blocks in the order in which they run. What has no parameters goes with the block before it."""
    weights = {tensors.owner[node] for node in joint.weights}
    made: list[GraphSegment] = []
    of_operator: dict[int, GraphSegment] = {}
    pending: list[Any] = []
    known_blocks = listed_paths({path_of(node) for node in joint.nodes if tensors.works(node) and not is_backward(node)})
    for node in joint.nodes:
        if not tensors.works(node) or is_backward(node):
            continue
        path = path_of(node)
        listed = listed_path(path)
        inside = listed if listed in known_blocks else None
        here = made[-1] if made else None
        if here is not None and (inside == here.path if here.listed else inside is None):
            here.forward += [*pending, node]
            pending = []
        elif inside is not None or weights & set(tensors.inputs(node)):
            if here is not None:  # operators without parameters since the last block
                here.forward += pending
                pending = []
            made.append(GraphSegment(inside or path, inside is not None, [*pending, node]))
            pending = []
        else:
            pending.append(node)
    if pending and made:
        made[-1].forward += pending
    elif pending:
        made.append(GraphSegment("", False, pending))
    made = _with_parameters(made, weights, tensors)
    for segment in made:
        for node in segment.forward:
            of_operator[node.meta.get("seq_nr", -1)] = segment
    last = made[-1]
    for node in joint.nodes:
        if tensors.works(node) and is_backward(node):
            known = node.meta.get("fwd_nn_module_stack") is not None
            last = of_operator.get(node.meta.get("seq_nr", -1), last) if known else last
            last.backward.append(node)
    return made


def _with_parameters(segments: list[GraphSegment], weights: set[Any], tensors: GraphTensors) -> list[GraphSegment]:
    """Segments that use no parameter are joined to the one before them."""
    kept: list[GraphSegment] = []
    for segment in segments:
        bare = not any(weights & set(tensors.inputs(node)) for node in segment.forward)
        if bare and kept:
            kept[-1].forward += segment.forward
        elif kept and not kept[-1].listed and not any(weights & set(tensors.inputs(node)) for node in kept[-1].forward):
            segment.forward = kept.pop().forward + segment.forward
            kept.append(segment)
        else:
            kept.append(segment)
    return kept


class Writer:
    """Writes segments as blocks of a graph model."""

    def __init__(self, joint: Joint, tensors: GraphTensors, parts: list[GraphSegment]) -> None:
        self.joint, self.tensors, self.parts = joint, tensors, parts
        self.reader = Reader(tensors)
        self.place = {node: i for i, part in enumerate(parts) for node in (*part.forward, *part.backward)}
        self.weights: dict[Any, int] = {}  # owner -> its first user
        self.owners = dict.fromkeys(tensors.owner[node] for node in joint.weights)

    def write(self) -> tuple[dict[str, GraphBlock], tuple[tuple[str, int], ...]]:
        """Blocks by name and the order in which they run."""
        given, saved = self._given_weights(), self._saved_bytes()
        found: dict[GraphBlock, str] = {}
        order: list[tuple[str, int]] = []
        paths: dict[GraphBlock, list[str]] = {}
        made = [self._block(i, given[i], saved[i]) for i in range(len(self.parts))]
        for part, block in zip(self.parts, made, strict=True):
            paths.setdefault(block, []).append(part.path if part.listed else self._parts(part))
        for block in made:
            if block not in found:
                found[block] = _name(paths[block], set(found.values()))
            if order and order[-1][0] == found[block]:
                order[-1] = (found[block], order[-1][1] + 1)
            else:
                order.append((found[block], 1))
        return {name: block for block, name in found.items()}, tuple(order)

    def _parts(self, part: GraphSegment) -> str:
        """Modules of a block outside of lists: those with parameters."""
        using = [node for node in part.forward if self.owners.keys() & set(self.tensors.inputs(node))]
        names = dict.fromkeys(path_of(node).split(".")[0] for node in using)
        return " + ".join([name for name in names if name][:4])

    def _given_weights(self) -> list[list[int]]:
        """Elements of each block's parameters: those that it is the first to use; unused ones go with the last block."""
        first: dict[Any, int] = {}
        for i, part in enumerate(self.parts):
            for node in part.forward:
                for owner in self.tensors.inputs(node):
                    if owner in self.owners:
                        first.setdefault(owner, i)
        counts: list[list[int]] = [[] for _ in self.parts]
        for owner in self.owners:
            counts[first.get(owner, len(self.parts) - 1)].append(int(owner.meta["val"].numel()))
        return counts

    def _saved_bytes(self) -> list[list[float]]:
        """Bytes of what forward makes and backward reads, at the block whose backward pass reads it last."""
        kept: list[list[float]] = [[] for _ in self.parts]
        self.last_use: dict[Any, Any] = {}
        for owner, readers in self.tensors.readers.items():
            late = [node for node in readers if is_backward(node)]
            if late:
                self.last_use[owner] = late[-1]
            if late and not is_backward(self.tensors.maker(owner)) and owner not in self.owners and not self._buffer(owner):
                kept[self.place[late[-1]]].append(self.tensors.bytes_of(owner))
        return kept

    @staticmethod
    def _buffer(owner: Any) -> bool:
        return owner.op == "placeholder" and "Buffer" in type(owner.meta.get("desc")).__name__

    def _block(self, at: int, weights: list[int], saved: list[float]) -> GraphBlock:
        part = self.parts[at]
        kernels: list[Kernel] = []
        for nodes, backward in ((part.forward, False), (part.backward, True)):
            for node in nodes:
                module = path_of(node)
                inside = module.removeprefix(part.path).removeprefix(".") if part.listed else module
                kernels += self.reader.kernels(node, inside, backward)
        enters, cut = self._entering(at)
        return GraphBlock(
            kernels=tuple(kernels),
            weights=tuple(weights),
            saved=tuple(saved),
            working=self._working(at),
            enters=enters,
            cut=cut,
            root=not part.listed,
        )

    def _entering(self, at: int) -> tuple[float, float]:
        """Bytes that the block reads from before it, and bytes that pass its beginning on their way to it or further."""
        enters = cut = 0.0
        for owner, readers in self.tensors.readers.items():
            maker = self.tensors.maker(owner)
            if owner in self.owners or self._buffer(owner) or is_backward(maker):
                continue
            made = self.place.get(maker, -1)
            ahead = [self.place[node] for node in readers if not is_backward(node)]
            if made < at and at in ahead:
                enters += self.tensors.bytes_of(owner)
            if 0 <= made < at and any(user >= at for user in ahead):
                cut += self.tensors.bytes_of(owner)
        return enters, cut

    def _working(self, at: int) -> float:
        """Highest sum of bytes inside the block's backward pass beside what all forward passes left, never below zero."""
        part, live = self.parts[at], 0.0
        mine = set(part.backward)
        arriving = {
            owner
            for node in part.backward
            for owner in self.tensors.inputs(node)
            if is_backward(self.tensors.maker(owner)) and self.tensors.maker(owner) not in mine
        }
        live = sum(self.tensors.bytes_of(owner) for owner in arriving)
        highest = live
        for node in part.backward:
            live += sum(self.tensors.bytes_of(out) for out in self.tensors.outputs(node) if out not in self.tensors.of_weights)
            highest = max(highest, live)
            for owner in self.tensors.inputs(node):
                if self.last_use.get(owner) is node and owner not in self.owners and owner not in self.tensors.of_weights:
                    live -= self.tensors.bytes_of(owner)
        return max(0.0, highest)


def _name(paths: list[str], taken: set[str]) -> str:
    """What equal blocks are called: their path, with a star where they differ."""
    stem = re.sub(r"\d+$", "*", paths[0]) if len(paths) > 1 else paths[0]
    stem = stem or "module"
    name, number = stem, 2
    while name in taken:
        name, number = f"{stem} ({number})", number + 1
    return name


def buffer_bytes(joint: Joint) -> float:
    """Bytes of buffers, which the model holds beside its parameters."""
    return sum(size_of(node.meta.get("val")) for node in joint.nodes if Writer._buffer(node))
