"""Buckets of DistributedDataParallel, kept with a checkpoint: a job that was killed adds up gradients as it would have without.

DDP arranges its buckets anew before its second step, by the order in which gradients became ready in the first. Collectives add in
an order that depends on where a number lies in its bucket. A restarted job would therefore add otherwise in its first step. So a
save keeps the arrangement, and a load gives it to the reducer before the first step. Nothing else changes: from the second step on
a job has these buckets anyway.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

KEY = "ddp_buckets"
"""Key in a manifest's topology: name of a DDP's first parameter → indices of parameters by bucket, such as `3 2, 1 0`."""
_REBUILT = "rebuilt_per_bucket_param_indices"
_KNOWN: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""DDP → its final buckets, once it has them."""
_WAITING: dict[int, tuple[Any, str]] = {}
"""Id of the first parameter of a DDP that is not made yet → a weak reference to it, and the buckets that the DDP will get."""


def wrapped_modules(state: Mapping[str, Any]) -> dict[str, Any]:
    """The DDPs over parameters of the state's modules, also if the state holds what they wrap, by the name of their first
    parameter."""
    if not dist.is_available() or not dist.is_initialized():
        return {}
    names = {id(one): name for name, one in _named_parameters(state)}
    found: dict[str, Any] = {}
    for one in gc.get_objects():
        if type(one) is DistributedDataParallel and getattr(one, "reducer", None) is not None:
            first = names.get(id(_parameters(one)[0]))
            if first is not None:
                found[first] = one
    return dict(sorted(found.items()))


def _named_parameters(state: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key, value in state.items():
        if isinstance(value, torch.nn.Module):
            for name, one in value.named_parameters():
                yield f"{key}.{name.removeprefix('module.')}", one


def _parameters(module: Any) -> list[Any]:
    parameters: list[Any] = module._build_params_for_reducer()[0]
    return parameters


def bucket_layouts(modules: Mapping[str, Any]) -> dict[str, str]:
    """The final buckets of DDPs that have them; a collective call of all ranks, at the same step."""
    return {name: text for name, module in modules.items() if (text := _layout_of(module))}


def _layout_of(module: Any) -> str:
    if module in _KNOWN or not _rebuilds(module):
        return _KNOWN.get(module, "")
    text = str(module._get_ddp_logging_data().get(_REBUILT, ""))
    if not text and module.reducer._rebuild_buckets():  # after the first step; the next forward would do it
        index = {id(one): at for at, one in enumerate(_parameters(module))}
        with suppress(torch.OutOfMemoryError):
            buckets = module.reducer._get_zeros_like_grad_buckets()
            text = ", ".join(" ".join(str(index[id(one)]) for one in bucket.parameters()) for bucket in buckets)
    if text:
        _KNOWN[module] = text
    return text


def _rebuilds(module: Any) -> bool:
    """Whether this DDP arranges its buckets anew in a way that is known: with unused parameters it never does, and with a static
    graph its first step differs in more than its buckets."""
    return not module.static_graph and not module.find_unused_parameters


def arrange_buckets(state: Mapping[str, Any], layouts: Mapping[str, str]) -> int:
    """Gives DDPs that have not trained yet the buckets that were saved; the number of those that got them. One that is made later
    over the same parameters gets them then. A DDP whose parameters are others keeps its own.
    """
    modules, done = wrapped_modules(state), 0
    parameters = dict(_named_parameters(state))
    for name, text in layouts.items():
        module = modules.get(name)
        if module is None:
            if name in parameters:
                _WAITING[id(parameters[name])] = weakref.ref(parameters[name]), text
                _wait_for_ddp()
        elif _may_arrange(module) and (buckets := _parse_buckets(text, len(_parameters(module)))):
            _make_reducer(module, buckets)
            done += 1
    return done


def _may_arrange(module: Any) -> bool:
    """Whether a new reducer would be like the one that the DDP has, but for its buckets."""
    data = module._get_ddp_logging_data()
    foreign_hook = bool(data.get("comm_hook")) and not module._comm_hooks
    special = module.mixed_precision is not None or getattr(module, "_use_python_reducer", False) or foreign_hook
    return _rebuilds(module) and not data.get("has_rebuilt_buckets") and not special and not module._delay_all_reduce_params


def _parse_buckets(text: str, count: int) -> list[list[int]]:
    """Indices by bucket; empty if they are not those of `count` parameters, each once."""
    try:
        buckets = [[int(one) for one in bucket.split()] for bucket in text.split(",")]
    except ValueError:
        return []
    return buckets if sorted(one for bucket in buckets for one in bucket) == list(range(count)) else []


def _make_reducer(module: Any, buckets: list[list[int]]) -> None:
    """Replaces the reducer of a DDP by one with these buckets, as DDP itself makes it."""
    parameters, sparse = module._build_params_for_reducer()
    module._remove_autograd_hooks()
    with _assigning(buckets, module.bucket_bytes_cap):
        _init_helper(module, parameters, sparse, module._build_debug_param_to_name_mapping(parameters), module.static_graph)
    for hook, told in module._comm_hooks:
        module.logger._set_comm_hook_name(hook.__qualname__)
        dist._register_comm_hook(module.reducer, told, hook)


_init_helper: Any = DistributedDataParallel._ddp_init_helper


@contextmanager
def _assigning(buckets: list[list[int]], limit: int) -> Iterator[None]:
    """Lets DDP assign these buckets; it reverses what it is given."""
    original: Any = dist._compute_bucket_assignment_by_size
    answer = list(reversed(buckets)), [limit] * len(buckets)
    dist._compute_bucket_assignment_by_size = lambda *_: answer
    try:
        yield
    finally:
        dist._compute_bucket_assignment_by_size = original


def _wait_for_ddp() -> None:
    """DDPs that are made from now on get the buckets that wait for them."""
    if DistributedDataParallel._ddp_init_helper is not _init_helper:
        return

    def helper(self: Any, parameters: Iterable[Any], *rest: Any) -> None:
        given = list(parameters)
        first, text = _WAITING.pop(id(given[0]), (None, "")) if given else (None, "")
        fits = first is not None and first() is given[0] and _rebuilds(self)
        buckets = _parse_buckets(text, len(given)) if fits else []
        if not buckets:
            _init_helper(self, given, *rest)
            return
        with _assigning(buckets, self.bucket_bytes_cap):
            _init_helper(self, given, *rest)

    DistributedDataParallel._ddp_init_helper = helper
