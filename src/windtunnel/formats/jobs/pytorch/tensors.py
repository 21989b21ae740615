"""Which tensors of a joint graph own memory, who makes them and who reads them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any

from windtunnel.formats.jobs.pytorch.export import Joint

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
