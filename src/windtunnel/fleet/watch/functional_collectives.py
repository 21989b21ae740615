"""Times functional collectives (torch.distributed._functional_collectives: DTensor, tensor parallelism), whose Work is in C++.

A call ends when its result is waited for. Graphs compiled by torch.compile call the operators' overloads directly, so the entries
of the overload objects that graphs hold are replaced. A graph that runs without Python (a replayed CUDA graph, a C++ wrapper) calls
none of them and is not recorded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.fleet.watch.groups import GroupRegistry
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.recorder import Mark, Recorder

_PENDING = 1024


def _same_size(size: int, ranks: int) -> int:
    return size


def _times_ranks(size: int, ranks: int) -> int:
    return size * ranks


FUNCTIONS: dict[str, tuple[Comm, str, Callable[[int, int], int], int]] = {
    "broadcast": (Comm.BROADCAST, "broadcast", _same_size, 2),
    "all_reduce": (Comm.ALL_REDUCE, "all_reduce", _same_size, 2),
    "all_gather_single": (Comm.ALL_GATHER, "all_gather_into_tensor", _times_ranks, 2),
    "all_gather_single_autograd": (Comm.ALL_GATHER, "all_gather_into_tensor", _times_ranks, 2),
    "reduce_scatter_single": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor", _same_size, 3),
    "reduce_scatter_single_autograd": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor", _same_size, 3),
    "all_reduce_coalesced": (Comm.ALL_REDUCE, "all_reduce_coalesced", _same_size, 2),
    "all_gather_single_coalesced": (Comm.ALL_GATHER, "all_gather_into_tensor_coalesced", _times_ranks, 1),
    "reduce_scatter_single_coalesced": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor_coalesced", _same_size, 3),
    "all_to_all_single": (Comm.ALL_TO_ALL, "all_to_all_single", _same_size, 3),
    "all_to_all_single_autograd": (Comm.ALL_TO_ALL, "all_to_all_single", _same_size, 3),
}
"""Function → the call, its name, bytes from those of the input and the group's size, and the position of the argument `group`."""

OPERATORS: dict[str, tuple[Comm, str, Callable[[int, int], int]]] = {
    "broadcast": (Comm.BROADCAST, "broadcast", _same_size),
    "broadcast_": (Comm.BROADCAST, "broadcast", _same_size),
    "all_reduce": (Comm.ALL_REDUCE, "all_reduce", _same_size),
    "all_reduce_": (Comm.ALL_REDUCE, "all_reduce", _same_size),
    "all_reduce_coalesced": (Comm.ALL_REDUCE, "all_reduce_coalesced", _same_size),
    "all_reduce_coalesced_": (Comm.ALL_REDUCE, "all_reduce_coalesced", _same_size),
    "all_gather_into_tensor": (Comm.ALL_GATHER, "all_gather_into_tensor", _times_ranks),
    "all_gather_into_tensor_out": (Comm.ALL_GATHER, "all_gather_into_tensor", _times_ranks),
    "all_gather_into_tensor_coalesced": (Comm.ALL_GATHER, "all_gather_into_tensor_coalesced", _times_ranks),
    "reduce_scatter_tensor": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor", _same_size),
    "reduce_scatter_tensor_out": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor", _same_size),
    "reduce_scatter_tensor_coalesced": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor_coalesced", _same_size),
    "all_to_all_single": (Comm.ALL_TO_ALL, "all_to_all_single", _same_size),
}
"""Operator of torch.ops._c10d_functional → the call, its name, and bytes from those of the input and the group's size."""


class FunctionalCalls:
    """Times the functions, the operators as called by compiled graphs, and waits for either."""

    def __init__(self, recorder: Recorder, groups: GroupRegistry, patches: Patches) -> None:
        import torch
        import torch.distributed._functional_collectives as functions

        self.recorder, self.groups, self._functions = recorder, groups, functions
        self.pending: dict[int, tuple[Any, Mark]] = {}  # storage of the result, which is kept; a view of it is waited for too
        self._within = threading.local()  # the autograd kernel of an overload calls it again; only the outer call is recorded
        for function, (comm, name, size, place) in FUNCTIONS.items():
            patches.wrap(functions, function, partial(self._wrap_function, int(comm), name, size, place))
        patches.wrap(functions, "wait_tensor", self._wait)
        self._plain = (torch.Tensor, torch.nn.Parameter)
        operators = torch.ops._c10d_functional
        for operator, (comm, name, size) in OPERATORS.items():
            overload = getattr(getattr(operators, operator, None), "default", None)
            if overload is not None:
                place = [argument.name for argument in overload._schema.arguments].index("group_name")
                patches.wrap(overload, "_op", partial(self._wrap_operator, int(comm), name, size, place))
        patches.wrap(operators.wait_tensor.default, "_op", self._wait)

    def sweep(self) -> None:
        """Called once per step: forgets the oldest results that nobody waited for, beyond a limit."""
        while len(self.pending) > _PENDING:
            self.pending.pop(next(iter(self.pending)), None)

    def _wrap_function(self, comm: int, name: str, size: Callable[[int, int], int], place: int, original: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            mark = self._open(comm, name, size, args, options.get("group", args[place] if len(args) > place else None))
            self._within.call = True
            try:
                done = original(*args, **options)
            finally:
                self._within.call = False
            if mark is not None:
                self._follow(done, mark)
            return done

        return call

    def _wrap_operator(self, comm: int, name: str, size: Callable[[int, int], int], place: int, original: Any) -> Any:
        plain, within = self._plain, self._within

        def operator(*args: Any, **options: Any) -> Any:
            first = args[0][0] if args and isinstance(args[0], (list, tuple)) and args[0] else args[0] if args else None
            if type(first) not in plain or getattr(within, "call", False):  # a tracer's tensors are of other types
                return original(*args, **options)
            mark = self._open(comm, name, size, args, options.get("group_name", args[place] if len(args) > place else None))
            within.call = True
            try:
                done = original(*args, **options)
            finally:
                within.call = False
            if mark is not None:
                inner = done[0] if isinstance(done, (list, tuple)) and done else done
                self.recorder.mark_issued(mark)
                self.pending[_storage_of(inner)] = inner, mark
            return done

        return operator

    def _open(self, comm: int, name: str, size: Callable[[int, int], int], args: Any, group: Any) -> Mark | None:
        if not self.recorder.live or self._functions._are_we_tracing():
            return None
        try:
            import torch.distributed as dist

            real = group if isinstance(group, dist.ProcessGroup) else self._group(group)
            entry = self.groups.entry(real)
            tensors = args[0] if isinstance(args[0], (list, tuple)) else [args[0]]
            total = size(sum(tensor.nbytes for tensor in tensors), len(entry.ranks))
        except Exception:  # the function itself reports errors in its arguments
            return None
        return self.recorder.open_call(entry.number, comm, self.recorder.name(name), total, entry.next_call())

    def _group(self, group: Any) -> Any:
        from torch.distributed.distributed_c10d import _resolve_process_group

        return _resolve_process_group(self._functions._resolve_group_name(group, ""))

    def _follow(self, done: Any, mark: Mark) -> None:
        one = done[0] if isinstance(done, (list, tuple)) and done else done
        inner = getattr(one, "elem", None)
        if inner is None:  # waited for already
            self.recorder.close(mark)
            return
        self.recorder.mark_issued(mark)
        self.pending[_storage_of(inner)] = inner, mark

    def _wait(self, original: Any) -> Any:
        pending = self.pending

        def wait_tensor(tensor: Any) -> Any:
            done = original(tensor)
            found = pending.pop(_storage_of(tensor), None) if pending else None
            if found is not None:
                self.recorder.close(found[1])
            return done

        return wait_tensor


def _storage_of(tensor: Any) -> int:
    """The address of a tensor's storage, by which torch too finds what a wait is for; its id if it has none."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (AttributeError, RuntimeError):  # another object, or a subclass without storage
        return id(tensor)
