"""Times the all-reduces of buckets that DistributedDataParallel's reducer issues from C++.

The reducer gets a process group written in Python that forwards every call to the real one: the same calls with the same arguments,
so gradients are bitwise equal. A communication hook would have to divide the bucket in a separate pass and would occupy the only
place for a user's hook; a dispatcher operator in Python costs about 9 µs per call, this 1 µs (measured on a CPU with gloo).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from windtunnel.fleet.watch.calls import CallWatch
from windtunnel.fleet.watch.patches import Patches

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
