"""Times every collective, send and receive that Python issues on a process group.

The methods of torch.distributed.ProcessGroup are replaced: functions of torch.distributed, FSDP2, batches of sends and receives and
object collectives all end there, however a script has imported them. Bytes are those of the total buffer, as nccl-tests counts
them. One function calls a group from C++: the broadcast of a module's buffers in each forward of DistributedDataParallel.

Times the all-reduces of buckets that DistributedDataParallel's reducer issues from C++.

The reducer gets a process group written in Python that forwards every call to the real one: the same calls with the same arguments,
so gradients are bitwise equal. A communication hook would have to divide the bucket in a separate pass and would occupy the only
place for a user's hook; a dispatcher operator in Python costs about 9 µs per call, this 1 µs (measured on a CPU with gloo).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from windtunnel.base.comm import Comm
from windtunnel.fleet._ring import BucketCalls
from windtunnel.fleet.watch.groups import GroupRegistry
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.recorder import Mark, Recorder

_SEND_RECV, _ALL_REDUCE, _BROADCAST = int(Comm.SEND_RECV), int(Comm.ALL_REDUCE), int(Comm.BROADCAST)
_PENDING = 4096
"""Works that nobody has waited for: beyond this number the oldest is forgotten and its row stays open."""


def _bytes(tensors: Any) -> int:
    """Bytes of a tensor, or of (nested) lists of tensors."""
    if isinstance(tensors, (list, tuple)):
        return _bytes(tensors[0]) if len(tensors) == 1 else sum(map(_bytes, tensors))
    return int(tensors.nbytes)


def _first_tensor(tensors: Any) -> Any:
    while isinstance(tensors, (list, tuple)) and tensors:
        tensors = tensors[0]
    return tensors


def _full_name(name: str, args: tuple[Any, ...], ranks: tuple[int, ...]) -> str:
    """The operation with what ranks have to agree on besides its size: its type of numbers, if it is another than 32-bit floats,
    and its root. "broadcast int64 from 2".
    """
    try:
        kind = str(_first_tensor(args[0]).dtype).removeprefix("torch.")
        if kind != "float32":
            name = f"{name} {kind}"
    except (IndexError, AttributeError):
        pass
    root = getattr(args[-1], "rootRank", None) if args else None
    if root is None or not 0 <= root < len(ranks):
        return name
    return f"{name} {'from' if name.startswith(('broadcast', 'scatter')) else 'to'} {ranks[root]}"


def _has_future_done(work: Any) -> bool:
    """Whether a work on the host has its results. False for a backend whose works have no future."""
    try:
        return bool(work.get_future().done())
    except RuntimeError:
        return False


def _first_bytes(args: tuple[Any, ...], ranks: int) -> int:
    return _bytes(args[0])


def _second_bytes(args: tuple[Any, ...], ranks: int) -> int:
    return _bytes(args[1])


def _second_bytes_of_all(args: tuple[Any, ...], ranks: int) -> int:
    return _bytes(args[1]) * ranks


def _first_bytes_of_all(args: tuple[Any, ...], ranks: int) -> int:
    return _bytes(args[0]) * ranks


def _four_bytes(args: tuple[Any, ...], ranks: int) -> int:
    return 4


COLLECTIVES: dict[str, tuple[Comm, str, Callable[[tuple[Any, ...], int], int]]] = {
    "allreduce": (Comm.ALL_REDUCE, "all_reduce", _first_bytes),
    "allreduce_coalesced": (Comm.ALL_REDUCE, "all_reduce_coalesced", _first_bytes),
    "broadcast": (Comm.BROADCAST, "broadcast", _first_bytes),
    "reduce": (Comm.REDUCE, "reduce", _first_bytes),
    "allgather": (Comm.ALL_GATHER, "all_gather", _second_bytes_of_all),
    "allgather_coalesced": (Comm.ALL_GATHER, "all_gather_coalesced", _second_bytes_of_all),
    "_allgather_base": (Comm.ALL_GATHER, "all_gather_into_tensor", _first_bytes),
    "all_gather_single": (Comm.ALL_GATHER, "all_gather_into_tensor", _first_bytes),
    "allgather_into_tensor_coalesced": (Comm.ALL_GATHER, "all_gather_into_tensor_coalesced", _first_bytes),
    "all_gather_single_coalesced": (Comm.ALL_GATHER, "all_gather_into_tensor_coalesced", _first_bytes),
    "reduce_scatter": (Comm.REDUCE_SCATTER, "reduce_scatter", _first_bytes_of_all),
    "_reduce_scatter_base": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor", _second_bytes),
    "reduce_scatter_single": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor", _second_bytes),
    "reduce_scatter_tensor_coalesced": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor_coalesced", _second_bytes),
    "reduce_scatter_single_coalesced": (Comm.REDUCE_SCATTER, "reduce_scatter_tensor_coalesced", _second_bytes),
    "alltoall_base": (Comm.ALL_TO_ALL, "all_to_all_single", _second_bytes),
    "all_to_all_single": (Comm.ALL_TO_ALL, "all_to_all_single", _second_bytes),
    "alltoall": (Comm.ALL_TO_ALL, "all_to_all", _second_bytes),
    "gather": (Comm.GATHER, "gather", _second_bytes_of_all),
    "scatter": (Comm.SCATTER, "scatter", _first_bytes_of_all),
    "barrier": (Comm.ALL_REDUCE, "barrier", _four_bytes),
    "monitored_barrier": (Comm.ALL_REDUCE, "monitored_barrier", _four_bytes),
}
"""Method of ProcessGroup → the call, its name in the records, and its bytes from the arguments and the group's size."""

TRANSFERS = {"send": True, "recv": False, "recv_anysource": False}
"""Method of ProcessGroup → whether it sends."""


class CallWatch:
    """Times the calls of process groups. A call ends when its Work is seen to have ended.

    That is at the return of `wait`. For works that C++ waits for, it is at the next asynchronous call, or the end of the backward
    pass or the step, whichever comes first; the recorded end is late by up to that time. A callback on the future would be exact,
    but it wakes a gloo thread that needs the interpreter lock: tens of µs per call (measured on 2 cores). On a GPU the callback
    runs where the call was made, and is used.

    A gloo thread completes the future before the work itself, so a thread that waits for the future can continue before the work
    reports its end: in a fifth of the calls on 2 idle cores. So a work on the host has ended when either reports it.
    """

    def __init__(self, recorder: Recorder, groups: GroupRegistry, patches: Patches) -> None:
        import torch.distributed as dist

        self.recorder, self.groups, self._fence = recorder, groups, patches.fence
        self.pending: dict[int, tuple[Any, list[Mark]]] = {}  # id of the Work; the reference keeps the id valid
        self._coalescing: list[Mark] | None = None
        self._completed = patches.fence.hook(self._close_completed)
        # For all-reduces of DDP's reducers: PyTorch's own method, taken before it is replaced.
        self.buckets = BucketCalls(recorder.rows, dist.ProcessGroup.allreduce, _ALL_REDUCE, recorder.name("all_reduce"))
        for method, (comm, name, size) in COLLECTIVES.items():
            patches.wrap(dist.ProcessGroup, method, partial(self._collective, int(comm), name, size))
        for method, sends in TRANSFERS.items():
            patches.wrap(dist.ProcessGroup, method, partial(self._transfer, sends, "send" if sends else "recv"))
        patches.wrap(dist, "_broadcast_coalesced", self._broadcast_coalesced)
        patches.wrap(dist.ProcessGroup, "_start_coalescing", self._start_coalescing)
        patches.wrap(dist.ProcessGroup, "_end_coalescing", self._end_coalescing)
        patches.wrap(dist.Work, "wait", self._wait)

    def sweep(self, on_host: bool = False) -> None:
        """Closes the calls whose Work has ended without a wait in Python; does not block. `on_host`: no work runs on a device."""
        last = self.buckets.last
        if last is not None:
            # Usually a backward has returned, and its reducer has waited for all of its buckets: if the last has ended, all have.
            if last.is_completed() or (on_host and _has_future_done(last)):
                self.buckets.close_all()
            else:
                self.buckets.close_ended()
        for key, (work, marks) in list(self.pending.items()):
            if work.is_completed() or (on_host and _has_future_done(work)):
                self.pending.pop(key, None)
                for mark in marks:
                    self.recorder.close(mark)
        while len(self.pending) > _PENDING:
            self.pending.pop(next(iter(self.pending)), None)

    def _collective(self, comm: int, name: str, size: Callable[[tuple[Any, ...], int], int], original: Any) -> Any:
        recorder, entry_of = self.recorder, self.groups.entry

        def call(group: Any, *args: Any, **options: Any) -> Any:
            mark = None
            if recorder.live:
                entry = entry_of(group)
                number = entry.next_call()
                if recorder.calls:
                    try:
                        total = size(args, len(entry.ranks))
                    except Exception:  # unusual arguments: the call itself reports errors
                        total = -1
                    mark = recorder.open_call(entry.number, comm, recorder.name(_full_name(name, args, entry.ranks)), total, number)
            work = original(group, *args, **options)
            if mark is not None:
                given = options.get("opts") or (args[-1] if args else None)
                self._follow(work, mark, getattr(given, "asyncOp", False))
            return work

        return call

    def bucket_reducer(self) -> Callable[[Any, Any, Any], Any]:
        """Function (group, tensors, options) → Work that issues the all-reduces of DDP's reducer through compiled code, because
        caches are cold there.
        """
        recorder, reduce = self.recorder, self.buckets.reduce
        entry_of = self._fence.hook(self.groups.entry)  # what follows it is PyTorch's, and compiled

        def reduce_bucket(group: Any, tensors: Any, options: Any) -> Any:
            if self._coalescing is None and recorder.events is None:
                entry = entry_of(group)
                if entry is not None:
                    return reduce(group, tensors, options, entry.number, entry.next_call())
            return group.allreduce(tensors, options)

        return reduce_bucket

    def _transfer(self, sends: bool, name: str, original: Any) -> Any:
        recorder, entry_of = self.recorder, self.groups.entry

        def call(group: Any, *args: Any, **options: Any) -> Any:
            mark = None
            if recorder.live:
                entry = entry_of(group)
                try:
                    peer, total = entry.ranks[args[1]] if len(args) == 3 else -1, _bytes(args[0])
                except Exception:  # the call itself reports errors in its arguments
                    return original(group, *args, **options)
                number = entry.next_transfer(peer, sends)
                mark = recorder.open_call(entry.number, _SEND_RECV, recorder.name(name), total, number, peer, sends)
            work = original(group, *args, **options)
            if mark is not None:
                self._follow(work, mark, False)
            return work

        return call

    def _broadcast_coalesced(self, original: Any) -> Any:
        """Records broadcasts of many tensors as one call, which has ended when the function returns. Calls of a group written in
        Python are recorded there instead.
        """
        import torch.distributed as dist

        recorder, entry_of, name = self.recorder, self.groups.entry, self.recorder.name("broadcast_coalesced")

        def broadcast(group: Any, tensors: Any, *args: Any, **options: Any) -> Any:
            if not recorder.live or type(group) is not dist.ProcessGroup:
                return original(group, tensors, *args, **options)
            entry = entry_of(group)
            number = entry.next_call()
            mark = recorder.open_call(entry.number, _BROADCAST, name, _bytes(tensors), number) if recorder.calls else None
            done = original(group, tensors, *args, **options)
            if mark is not None:
                recorder.close(mark)
            return done

        return broadcast

    def _follow(self, work: Any, mark: Mark, detached: bool) -> None:
        """Closes `mark` when `work` ends. `detached`: the caller may never wait for it."""
        if self._coalescing is not None:
            self._coalescing.append(mark)
        elif work is None:
            self.recorder.close(mark)
        elif detached:
            self.recorder.mark_issued(mark)
            if self.pending:
                self.sweep()
            if self.recorder.events is None or not self._close_on_completion(work, mark):
                self.pending[id(work)] = work, [mark]
        else:
            self.pending[id(work)] = work, [mark]

    def _close_on_completion(self, work: Any, mark: Mark) -> bool:
        """Records the end of `mark` on the stream of the work's future. False for a backend whose works have none."""
        try:
            work.get_future().add_done_callback(partial(self._completed, mark))
        except RuntimeError:
            return False
        return True

    def _close_completed(self, mark: Mark, future: Any) -> None:
        self.recorder.close(mark)

    def _wait(self, original: Any) -> Any:
        pending, recorder = self.pending, self.recorder

        def wait(work: Any, *args: Any, **options: Any) -> Any:
            done = original(work, *args, **options)
            if pending:
                found = pending.pop(id(work), None)
                if found is not None:
                    for mark in found[1]:
                        recorder.close(mark)
            return done

        return wait

    def _start_coalescing(self, original: Any) -> Any:
        def start(group: Any, *args: Any, **options: Any) -> Any:
            self._coalescing = []
            return original(group, *args, **options)

        return start

    def _end_coalescing(self, original: Any) -> Any:
        def end(group: Any, *args: Any, **options: Any) -> Any:
            marks, self._coalescing = self._coalescing or [], None
            work = original(group, *args, **options)
            if work is not None and marks:
                self.pending[id(work)] = work, marks
            elif marks:
                for mark in marks:
                    self.recorder.close(mark)
            return work

        return end


_METHODS = ("allreduce", "allreduce_coalesced", "broadcast", "allgather", "reduce", "barrier")
"""Methods that the reducer calls: buckets, maps of used parameters, order of rebuilt buckets."""


_REDUCES: list[Callable[[Any, Any, Any], Any]] = []
"""The monitor's `CallWatch.bucket_reducer` while it runs."""
_ALIVE: weakref.WeakKeyDictionary[Any, Any] = weakref.WeakKeyDictionary()
"""Reducer → its group. C++ holds only its half; without the Python half it would call the backend while holding the interpreter
lock, and deadlock with a gloo thread that needs it. So the groups live as long as the reducer, even after the monitor has stopped.
"""


def _relay_class() -> Any:
    import torch.distributed as dist

    def handing_on(name: str) -> Any:
        def method(self: Any, *args: Any) -> Any:
            return getattr(self.real, name)(*args)

        return method

    def allreduce(self: Any, tensors: Any, options: Any = None) -> Any:
        if _REDUCES and options is not None:
            return _REDUCES[0](self.real, tensors, options)
        return self.real.allreduce(tensors) if options is None else self.real.allreduce(tensors, options)

    def start(self: Any, real: Any) -> None:
        dist.ProcessGroup.__init__(self, real.rank(), real.size())
        self.real = real
        self._set_group_name(real.group_name)
        for device in real._device_types:  # methods that are not forwarded (names, options) use the same backends
            backend = real._get_backend(device)
            kind = dist.Backend.backend_type_map.get(backend.name(), dist.ProcessGroup.BackendType.CUSTOM)
            self._register_backend(device, kind, backend)
            self._set_default_backend(kind)

    return type(
        "RelayGroup",
        (dist.ProcessGroup,),
        {**{name: handing_on(name) for name in _METHODS}, "allreduce": allreduce, "__init__": start},
    )


def is_watched(reducer: Any) -> bool:
    """Whether a reducer's calls pass through our group: it was created while a monitor ran, or its group is written in Python."""
    return reducer in _ALIVE


def adopt(module: Any) -> bool:
    """Replaces the group of a DistributedDataParallel's reducer that was created before the monitor, so that its calls are
    recorded.

    Call it only while none of its reductions is in progress, as at the begin of a forward. False if this PyTorch version has no way
    to do so.
    """
    import torch.distributed as dist

    reducer, group = module.reducer, module.process_group
    if is_watched(reducer):
        return True
    if type(group) is not dist.ProcessGroup:
        _ALIVE[reducer] = group
        return True
    if not hasattr(reducer, "_update_process_group"):
        return False
    relay = _relay_class()(group)
    _ALIVE[reducer] = relay
    reducer._update_process_group(relay)  # the module's own `process_group` is kept, because user hooks may call it
    return True


def watch_reducers(patches: Patches, calls: CallWatch) -> None:
    """Records the calls of reducers created from now on; `adopt` is for those created before."""
    import torch.distributed as dist

    relays: list[Any] = []
    _REDUCES[:] = [calls.bucket_reducer()]
    patches.on_restore(_REDUCES.clear)

    def make(original: Any) -> Any:
        def reducer(parameters: Any, buckets: Any, limits: Any, group: Any, *rest: Any, **options: Any) -> Any:
            if not relays:
                relays.append(_relay_class())
            if type(group) is not dist.ProcessGroup:  # one written in Python: its calls go through Python anyway
                made = original(parameters, buckets, limits, group, *rest, **options)
                _ALIVE[made] = group
                return made
            relay = relays[0](group)
            made = original(parameters, buckets, limits, relay, *rest, **options)
            _ALIVE[made] = relay
            return made

        return reducer

    patches.wrap(dist, "Reducer", make)
