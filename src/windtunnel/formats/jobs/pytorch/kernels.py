"""Operators of a joint graph as kernels: matrix products with their shapes, all else by the bytes that it moves. Which tensors of a
joint graph own memory, who makes them and who reads them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cached_property
from typing import Any, cast

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.files import table_beside
from windtunnel.formats.jobs.pytorch.export import Joint
from windtunnel.spec.graph_model import Kernel, KernelKind

SAME_MEMORY = ("_unsafe_view", "_reshape_alias", "detach", "alias", "lift_fresh", "expand")
"""Operators that return their input's memory without saying so in their signature, or read it as if it were larger."""


def short_name(node: Any) -> str:
    """`addmm` of `aten.addmm.default`."""
    return str(getattr(node.target, "__name__", node.target)).split(".")[0]


def size_of(value: Any) -> float:
    """Bytes of a value of the graph; 0 for what is no tensor."""
    return float(value.numel() * value.element_size()) if hasattr(value, "element_size") else 0.0


class GraphTensors:
    """Memory of a joint graph: every node's owner, and for each owner its bytes, maker and readers."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.owner: dict[Any, Any] = {}
        for node in joint.nodes:
            self.owner[node] = self._owner(node)

    def _owner(self, node: Any) -> Any:
        if node.op != "call_function":
            return self.joint.same.get(node, node)
        if short_name(node) == "getitem":
            source = node.args[0]
            return self.owner[source] if self.views(source) else node
        return self.owner[next(iter(node.all_input_nodes))] if self.views(node) and node.all_input_nodes else node

    @staticmethod
    def views(node: Any) -> bool:
        """Whether an operator gives another view of its input's memory."""
        if node.op != "call_function":
            return False
        if short_name(node) in SAME_MEMORY:
            return True
        schema = getattr(node.target, "_schema", None)
        return schema is not None and any(r.alias_info is not None for r in schema.returns)

    def works(self, node: Any) -> bool:
        """Whether a node is an operator that does something on the device."""
        if node.op != "call_function" or short_name(node) == "getitem" or self.views(node):
            return False
        return any(size_of(value) for value in self._values(node))

    @staticmethod
    def _values(node: Any) -> Iterator[Any]:
        value = node.meta.get("val")
        yield from value if isinstance(value, (tuple, list)) else (value,)

    def maker(self, owner: Any) -> Any:
        """The operator that makes a tensor."""
        return owner.args[0] if owner.op == "call_function" and short_name(owner) == "getitem" else owner

    def bytes_of(self, owner: Any) -> float:
        return sum(size_of(value) for value in self._values(owner))

    def outputs(self, node: Any) -> list[Any]:
        """GraphTensors that an operator makes and somebody reads."""
        if isinstance(node.meta.get("val"), (tuple, list)):
            return [user for user in node.users if short_name(user) == "getitem" and self.bytes_of(user)]
        return [node] if self.bytes_of(node) else []

    def inputs(self, node: Any) -> list[Any]:
        """Owners that an operator reads, each once."""
        return list(dict.fromkeys(self.owner[source] for source in node.all_input_nodes if self.bytes_of(self.owner[source])))

    def moved_bytes(self, node: Any) -> float:
        """Bytes that an operator reads and writes, each tensor once; a view counts with its own size, an expanded one with its
        memory's."""
        read: dict[Any, float] = {}
        for source in node.all_input_nodes:
            owner = self.owner[source]
            read[owner] = max(read.get(owner, 0.0), min(self.bytes_of(source), self.bytes_of(owner)))
        return sum(read.values()) + sum(self.bytes_of(out) for out in self.outputs(node))

    @cached_property
    def readers(self) -> dict[Any, list[Any]]:
        """Owner -> the operators that read it, in order."""
        found: dict[Any, list[Any]] = {}
        for node in self.joint.nodes:
            if self.works(node):
                for owner in self.inputs(node):
                    found.setdefault(owner, []).append(node)
        return found

    @cached_property
    def of_weights(self) -> set[Any]:
        """Owners that only become gradients of parameters: by conversion, summing and adding."""
        found = {self.owner[g] for g in self.joint.gradients}
        for node in reversed(self.joint.nodes):
            if self.works(node) and node in found and short_name(node) in ("_to_copy", "add", "sum"):
                found |= {
                    owner
                    for owner in self.inputs(node)
                    if short_name(self.maker(owner)) in ("mm", "bmm", "addmm", "sum", "add", "embedding_dense_backward")
                    and all(reader in found for reader in self.readers[owner])
                }
        return found


NARROW = 4
"""Channels of a convolution's group up to which it is no matrix product for tensor cores (depthwise): counted by its bytes."""

_OPERATORS = {kind: tuple(words) for kind, words in table_beside(__file__).items()}
"""Kind of a kernel: names of operators of the graph."""
ATTENTION = tuple(
    f"_scaled_dot_product_{kind}_attention{where}"
    for kind, where in (("flash", ""), ("efficient", ""), ("cudnn", ""), ("flash", "_for_cpu"), ("fused", "_overrideable"))
)
SPARSE = ("embedding", "index_select", "gather", "index")
"""Operators that read of their first input only as much as they write."""


@dataclass
class Reader:
    """Writes kernels of operators and remembers what it did not know: bytes by operator."""

    tensors: GraphTensors
    unknown: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    def kernels(self, node: Any, module: str, backward: bool) -> list[Kernel]:
        """What runs on the device for one operator; `module` is where in its block it stands."""
        name, phase = short_name(node), self._phase(node, backward)
        words = f"{module} {name}".strip()
        if name in ("mm", "addmm", "bmm", "baddbmm", "linear", "matmul"):
            return [self._product(node, words, phase)]
        if name == "convolution":
            return [self._convolution(node, words)]
        if name == "convolution_backward":
            return self._convolution_backward(node, words)
        if name.removesuffix("_backward") in ATTENTION:
            return [self._attention(node, module)]
        moved = self.tensors.moved_bytes(node)
        if name in SPARSE:
            table = self.tensors.owner[node.all_input_nodes[0]]
            out = self.tensors.bytes_of(node)
            moved = moved - self.tensors.bytes_of(table) + min(out, self.tensors.bytes_of(table))
        kind, launches = self._kind(node, name)
        m, n = _rows(node, kind)
        self.seen[kind] += 1
        return [Kernel(words, kind, phase, 1, m, n, 0, 1, 0.0, moved, launches)]

    def _phase(self, node: Any, backward: bool) -> Any:
        if not backward:
            return "forward"
        made = self.tensors.outputs(node)
        return "wgrad" if made and all(out in self.tensors.of_weights for out in made) else "dgrad"

    def _kind(self, node: Any, name: str) -> tuple[KernelKind, int]:
        base = name.removesuffix("_backward").rstrip("_")
        if name in _OPERATORS["norm"] or base in _OPERATORS["norm"]:
            return "norm", 2 if name.endswith("_backward") else 1
        if name in _OPERATORS["softmax"]:
            return "softmax", 1
        if name in ("embedding", "embedding_dense_backward"):
            return "embedding", 3 if name.endswith("backward") else 1
        if base in _OPERATORS["reduction"]:
            return "reduce", 1
        if base in _OPERATORS["move"]:
            return "copy", 1
        if (
            any(tag.name == "pointwise" for tag in getattr(node.target, "tags", ()))
            or name.endswith("_backward")
            or base.startswith(_OPERATORS["stencil"])
        ):
            return "elementwise", 1
        self.unknown[name] += int(self.tensors.moved_bytes(node))
        return "elementwise", 1

    def _product(self, node: Any, words: str, phase: Any) -> Kernel:
        first = 1 if short_name(node) in ("addmm", "baddbmm") else 0
        left, right = (node.args[first + i].meta["val"].shape for i in (0, 1))
        out = node.meta["val"].shape
        k, n = int(left[-1]), int(out[-1])
        batch = int(math.prod(out[:-2])) if len(right) > 2 else 1
        m = int(math.prod(out)) // max(1, n * batch)
        return self._gemm(words, phase, batch, m, n, k, 2.0 * batch * m * n * k, self.tensors.moved_bytes(node))

    def _gemm(self, words: str, phase: Any, batch: int, m: int, n: int, k: int, flops: float, moved: float) -> Kernel:
        self.seen["gemm"] += 1
        words = words if phase == "forward" or words.endswith(phase) else f"{words} {phase}"
        return Kernel(words, "gemm", phase, batch, m, n, max(1, k), 1, flops, moved, 1)

    def _convolution(self, node: Any, words: str) -> Kernel:
        data, weight, out = (n.meta["val"].shape for n in (node.args[0], node.args[1], node))
        conv = _Convolution(data, weight, out, node.args[6], node.args[8])
        return self._implicit(words, "forward", conv, self.tensors.moved_bytes(node))

    def _convolution_backward(self, node: Any, words: str) -> list[Kernel]:
        """Up to three kernels: gradients of the input, of the weight and of the bias."""
        grad, data, weight = (n.meta["val"] for n in node.args[:3])
        conv = _Convolution(data.shape, weight.shape, grad.shape, node.args[7], node.args[9])
        sizes = [float(t.numel() * t.element_size()) for t in (grad, data, weight)]
        made = []
        for wanted, phase, moved in zip(node.args[10], ("dgrad", "wgrad", "bias"), (sum(sizes), sum(sizes), sizes[0]), strict=True):
            if wanted and phase == "bias":
                made.append(Kernel(f"{words} bias", "reduce", "wgrad", 1, 0, 0, 0, 1, 0.0, moved, 1))
            elif wanted:
                made.append(self._implicit(f"{words} {phase}", phase, conv, moved))
        return made

    def _implicit(self, words: str, phase: Any, conv: _Convolution, moved: float) -> Kernel:
        m, n, k = conv.product(phase)
        flops = conv.flops
        if conv.narrow:
            self.seen["depthwise convolution"] += 1
            return Kernel(words, "elementwise", phase, 1, 0, 0, 0, 1, flops, moved, 1)
        self.seen["convolution"] += 1
        return self._gemm(words, phase, conv.groups, m, n, k, flops, moved)

    def _attention(self, node: Any, module: str) -> Kernel:
        backward = short_name(node).endswith("_backward")
        query, key = (node.args[i + backward].meta["val"].shape for i in (0, 1))
        arguments = {
            a.name: node.args[i] if i < len(node.args) else node.kwargs.get(a.name, a.default_value)
            for i, a in enumerate(node.target._schema.arguments)
        }
        batch, m, n, k = int(query[0] * query[1]), int(query[2]), int(key[2]), int(query[3])
        seen = (n + 1) / 2 if arguments.get("is_causal") and m == n else float(n)
        flops = 4.0 * batch * m * seen * k * (2.5 if backward else 1.0)
        self.seen["attention"] += 1
        kind: KernelKind = "attention_backward" if backward else "attention"
        words = f"{module} attention{' grad' if backward else ''}".strip()
        return Kernel(
            words,
            kind,
            "dgrad" if backward else "forward",
            batch,
            m,
            n,
            k,
            max(1, int(query[1] // key[1])),
            flops,
            self.tensors.moved_bytes(node),
            3 if backward else 1,
        )


@dataclass(frozen=True)
class _Convolution:
    """Shapes of data (N, C, ...), weight and output, and how to see them as a matrix product in each direction."""

    data: Any
    weight: Any
    out: Any
    transposed: bool
    groups: int

    @property
    def taps(self) -> int:
        return int(math.prod(self.weight[2:]))

    @property
    def narrow(self) -> bool:
        return self.groups > 1 and int(self.data[1]) // self.groups <= NARROW

    @property
    def flops(self) -> float:
        """2 x positions x channels in and out of a group x taps; positions of the input where it is transposed."""
        where = self.data if self.transposed else self.out
        positions = int(where[0]) * int(math.prod(where[2:]))
        return 2.0 * positions * int(self.data[1]) * int(self.out[1]) * self.taps / self.groups

    def product(self, phase: str) -> tuple[int, int, int]:
        """(m, n, k) of a group: rows are positions, or output channels for the gradient of the weight."""
        into, outof = int(self.data[1]) // self.groups, int(self.out[1]) // self.groups
        at_data, at_out = (int(s[0]) * int(math.prod(s[2:])) for s in (self.data, self.out))
        if phase == "wgrad":
            m, n = (into, outof * self.taps) if self.transposed else (outof, into * self.taps)
        else:
            m, n = (at_data, into) if phase == "dgrad" else (at_out, outof)
        return m, n, max(1, round(self.flops / (2.0 * self.groups * m * n)))


def _rows(node: Any, kind: KernelKind) -> tuple[int, int]:
    """Rows and columns of a norm, a softmax or an embedding; zeros for the rest."""
    if kind not in ("norm", "softmax", "embedding"):
        return 0, 0
    value = node.meta["val"]
    if short_name(node) == "embedding_dense_backward":
        value = node.args[0].meta["val"]
    first = value[0] if isinstance(value, (tuple, list)) else value
    if first is None or not len(first.shape):
        return 0, 0
    columns = int(first.shape[-1])
    if short_name(node).startswith(("native_group_norm",)):
        groups = cast(int, node.args[7 if not short_name(node).endswith("backward") else 8]) if len(node.args) > 8 else node.args[6]
        columns = int(math.prod(first.shape[1:])) // max(1, int(groups))
    return int(first.numel()) // max(1, columns), columns
