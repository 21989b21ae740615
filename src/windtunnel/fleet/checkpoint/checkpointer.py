"""`Checkpointer`: saves and loads the state of a job, all ranks together.

Buckets of DistributedDataParallel, kept with a checkpoint: a job that was killed adds up gradients as it would have without.

DDP arranges its buckets anew before its second step, by the order in which gradients became ready in the first. Collectives add in
an order that depends on where a number lies in its bucket. A restarted job would therefore add otherwise in its first step. So a
save keeps the arrangement, and a load gives it to the reducer before the first step. Nothing else changes: from the second step on
a job has these buckets anyway.
"""

from __future__ import annotations

import dataclasses
import gc
import os
import secrets
import socket
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError, SpecError
from windtunnel.fleet.checkpoint.commit import LostSaveError, tell, write_event
from windtunnel.fleet.checkpoint.flush_manager import FlushManager
from windtunnel.fleet.checkpoint.folder import FoundStep
from windtunnel.fleet.checkpoint.loading import LoadedStep, RankLoadPlan, load_into_state, read_step
from windtunnel.fleet.checkpoint.memory import socket_prefix
from windtunnel.fleet.checkpoint.options import UMASKS, CheckpointOptions
from windtunnel.fleet.checkpoint.rank_group import RankGroup
from windtunnel.fleet.checkpoint.sources import end_earlier_processes, local_copies
from windtunnel.fleet.checkpoint.staging import ShardLayout, flatten_state, objects_fit, pack_objects, plan_layout, signature_of
from windtunnel.fleet.checkpoint.states import apply_state, collect_state
from windtunnel.fleet.checkpoint.stores.local_folder import storage_of_job
from windtunnel.records.checkpoint_events import SaveRecord

_OTHERS = "Name another folder; what other libraries saved is loaded by them. A LATEST whose steps are meant to be gone: remove it."


@dataclass(frozen=True)
class SaveResult:
    """Result of `save`."""

    step: int
    staged: bool
    """Whether the step was copied into host memory."""
    blocking_seconds: float
    """Seconds for which training was blocked."""
    bytes: int
    """Bytes that this rank staged."""
    why: str = ""
    """Why the step was not staged."""


class JointSave(NamedTuple):
    """What all ranks know about a save together, after one all-reduce."""

    layout_changed: bool
    """Whether the state of any rank no longer fits its layout."""
    busy: bool
    """Whether any rank has no free buffer."""
    first_step: int
    """Smallest step that any rank saves."""
    last_step: int
    """Largest step that any rank saves."""
    failed: int
    """Newest step that rank 0 knows to have failed; -1 for none."""

    @classmethod
    def of(cls, ranks: RankGroup, layout_changed: bool, busy: bool, step: int, failed: int) -> JointSave:
        """Combines this rank's values with those of all others; a collective call."""
        known = failed if ranks.rank == 0 else -1
        changed, full, last, minus_first, lost = ranks.all_reduce_max([int(layout_changed), int(busy), step, -step, known])
        return cls(bool(changed), bool(full), -minus_first, last, lost)


class Checkpointer:
    """Checkpoints of a job in `folder`: a path, or the URL of a store that fsspec opens. The constructor and every method are
    collective calls of all ranks.

    `state` is a dict of modules, optimizers (of a module in it), objects with state_dict and load_state_dict, tensors and plain
    values. Wrap per-rank state in `PerRank`. `topology` is written into the manifest.
    """

    def __init__(self, folder: str | Path, *, topology: dict[str, Any] | None = None, **options: Any) -> None:
        self.options = CheckpointOptions(**options)
        if self.options.busy not in ("wait", "skip"):
            raise SpecError("busy", self.options.busy, "wait or skip")
        if self.options.readable not in UMASKS:
            raise SpecError("readable", self.options.readable, ", ".join(UMASKS))
        self.storage, self.topology = storage_of_job(folder), topology or {}
        self.ranks = RankGroup()
        self.attempt, self._token = self.ranks.broadcast_from_first((secrets.token_hex(4), secrets.token_hex(16)))
        self.node = self.options.node or os.environ.get("WINDTUNNEL_FLEET_NODE") or socket.gethostname()
        self.last_load: LoadedStep | None = None
        self.skipped = 0
        self._prefix = socket_prefix(self.storage.where, self.node)
        self._layout: ShardLayout | None = None
        self._flusher: FlushManager | None = None
        self._loaded_step: int | None = None
        self._newest_staged = -1
        self._told: set[int] = set()
        self._wrapped: dict[str, Any] = {}

    def prepare(self, state: dict[str, Any]) -> None:
        """Plans the layout of the state, allocates buffers and starts the flush process, so that the first save need not.

        SpecError if the folder has steps that were not loaded: they belong to another job, or would be lost. SpecError if the state
        holds an object of a class that a load would refuse.
        """
        layout = plan_layout(collect_state(state, self.ranks.rank), self.ranks)
        if self._flusher is None:
            self._take_ownership()
            self._flusher = FlushManager(
                self.ranks,
                self.options,
                f"{self._prefix}{self.attempt}-{self.ranks.rank}",
                self.node,
                self._token,
                self.storage,
                self.attempt,
            )
        self._wrapped = wrapped_modules(state)
        self._layout = layout
        self._flusher.set_layout(layout)

    def _take_ownership(self) -> None:
        """Makes this attempt the one that may commit here. Steps after the loaded one are superseded."""
        loaded, umask = self._loaded_step, self.options.umask
        self.ranks.run_on_first(lambda: self.storage.claim(self.attempt, loaded, umask), self.storage.where)
        end_earlier_processes(self._prefix, self.attempt)

    def save(self, step: int, state: dict[str, Any]) -> SaveResult:
        """Copies `state` into host memory and returns; writing continues in the background. PlanError if ranks save different
        steps, or a step is saved twice.

        A step that was loaded is already committed, so nothing is copied. A save that fails later does not affect committed steps;
        `wait()`, `failed` and the event log report it.
        """
        began = time.perf_counter()
        if step == self._loaded_step or step <= self._newest_staged:
            if step == self._loaded_step:
                return SaveResult(step, False, time.perf_counter() - began, 0, "committed already")
            raise PlanError("step", step, f"more than {self._newest_staged}", "Steps are saved in order, each once.")
        if self._flusher is None:
            self.prepare(state)
        flusher, layout = self._flusher, self._layout
        assert flusher is not None and layout is not None
        flat = flatten_state(collect_state(state, self.ranks.rank))
        same = layout.signature == signature_of(flat)
        objects = pack_objects(layout, flat) if same else []
        changed = not same or not objects_fit(layout, objects)
        busy = flusher.free_slot() is None
        self._tell_failures()
        joint = JointSave.of(self.ranks, changed, busy, step, max(flusher.failed, default=-1))
        if joint.first_step != joint.last_step:
            raise PlanError("step", step, "the same on all ranks", f"Others save {joint.last_step} and {joint.first_step}.")
        if joint.busy and self.options.busy == "skip":
            self.skipped += 1
            return SaveResult(step, False, time.perf_counter() - began, 0, "both buffers are still being written")
        if joint.layout_changed:
            flusher.drain()
            self.prepare(state)
            layout = self._layout
            assert layout is not None
            objects = pack_objects(layout, flat)
        if self._newest_staged == (self._loaded_step or -1):
            self._wrapped = wrapped_modules(state)  # a DDP may have been made after `prepare`
        buckets = bucket_layouts(self._wrapped)
        topology = {**self.topology, KEY: buckets} if buckets else self.topology
        flusher.stage(step, layout, flat, objects, self.attempt, topology, joint.failed)
        self._newest_staged = step
        seconds = time.perf_counter() - began
        write_event(self.ranks.rank, "save", step, blocking_seconds=seconds, seconds=seconds, bytes=layout.total)
        return SaveResult(step, True, seconds, layout.total)

    def load(self, state: dict[str, Any]) -> int | None:
        """Loads the newest intact step into `state`, the same one on all ranks; None if there are no steps. Details are in
        `last_load`.

        SpecError if steps exist but the state does not fit them, or all of them are damaged.
        """
        began = time.perf_counter()
        held = local_copies(self._prefix, self.options.settle)
        self.ranks.all_gather(None)  # every node's earlier saves have settled
        found: list[FoundStep] = []
        count, damaged = self.ranks.run_on_first(lambda: self._list_steps(found), self.storage.where)
        passed_over: list[tuple[int, str]] = list(damaged)
        for at in range(count):
            manifest = found[at].manifest if found else None
            step, buckets = self.ranks.broadcast_from_first(
                (found[at].step, manifest.topology.get(KEY, {}) if manifest else {}) if found else None
            )
            answer = read_step(
                self.ranks, found[at] if found else None, lambda raw, world: RankLoadPlan(state, raw, self.ranks.rank, world), held
            )
            if isinstance(answer, str):
                passed_over.append((step, answer))
                continue
            plan, reading = answer
            loaded = load_into_state(self.ranks, step, plan, reading, passed_over)
            apply_state(state, plan.state, plan.keys)
            arrange_buckets(state, buckets)
            self.last_load = dataclasses.replace(loaded, seconds=time.perf_counter() - began)
            self._loaded_step = self._newest_staged = step
            self._tell_passed_over(step, passed_over)
            write_event(self.ranks.rank, "load", step, blocking_seconds=self.last_load.seconds, seconds=self.last_load.seconds,
                 bytes=loaded.storage_bytes + loaded.memory_bytes + loaded.received_bytes, source=loaded.source,
                 why="; ".join(f"step {over} was passed over: {why}" for over, why in passed_over[:3]))  # fmt: skip
            return int(step)
        if passed_over:
            reasons = "; ".join(f"{step}: {why}" for step, why in passed_over[:3])
            hint = f"{reasons}. To begin at step 0 all the same, name another folder, or move these steps away."
            raise SpecError("folder", f"{len(passed_over)} damaged steps", "one that is intact", hint)
        self._loaded_step = self._loaded_step or 0
        self._tell_beginning()
        return None

    def _tell_passed_over(self, step: int, passed_over: list[tuple[int, str]]) -> None:
        """Says on rank 0 which newer steps could not be loaded."""
        newer = [f"step {over:,} ({why})" for over, why in passed_over if over > step]
        if self.ranks.rank == 0 and newer:
            tell(f"training goes on from step {step:,}: passed over {'; '.join(newer[:3])}")

    def _tell_beginning(self) -> None:
        """Says on rank 0 that training begins at step 0 although there are remains of saves; every rank records that it begins."""
        torn: list[int] = self.ranks.run_on_first(lambda: sorted(self.storage.torn_steps()), self.storage.where)
        never = f"no save was ever committed: {', '.join(f'{one:,}' for one in torn[:3])} never ended"
        if torn and self.ranks.rank == 0:
            tell(f"training begins at step 0: {never} in {self.storage.where}")
        write_event(self.ranks.rank, "began", 0, source="", why=never if torn else "no checkpoint")

    def _list_steps(self, found: list[FoundStep]) -> tuple[int, list[tuple[int, str]]]:
        """Puts the committed steps, newest first, into `found`; their number, and the damaged ones. On rank 0 only. SpecError for
        a folder that is no place to begin at step 0."""
        every = self.storage.steps() if self.storage.exists() else []
        found += [one for one in every if one.state == "committed"]
        damaged = [(one.step, one.why[0]) for one in every if one.state == "damaged"]
        if not found and not damaged and (problem := self.storage.problem()):
            allowed = "an empty folder, or steps that windtunnel saved"
            raise SpecError("folder", self.storage.where, allowed, f"It has {problem}. {_OTHERS}")
        return len(found), damaged

    @property
    def failed(self) -> dict[int, str]:
        """Steps of this attempt that were not committed, with the reason, as far as this rank knows."""
        return dict(self._flusher.failed) if self._flusher else {}

    def wait(self) -> int | None:
        """Waits until all saves are committed or have failed; returns the newest committed step, the same on all ranks."""
        if self._flusher is None:
            return self._loaded_step or None
        self._flusher.drain()
        self._tell_failures()
        newest: int | None = self.ranks.broadcast_from_first(self._flusher.committed)
        return newest if newest is not None else self._loaded_step or None

    def close(self) -> None:
        """Waits for all saves and releases the memory. LostSaveError on all ranks, after that, if the last save was not
        committed."""
        newest = self.wait()
        lost = ""
        if self._flusher is not None:
            lost = self.ranks.broadcast_from_first(self._lost_text(newest))
            if lost:  # no rank writes any more, so what the last save left can go too
                self.ranks.all_gather(None)
                if self.ranks.rank == 0:
                    self.storage.remove_leftovers(self.attempt, 0, self._newest_staged, False)
            self._flusher.close()
            self._flusher = None
        self.ranks.close()
        if lost:
            raise LostSaveError(self.storage.where, lost, self.storage.mending)

    def _lost_text(self, newest: int | None) -> str:
        """What was lost, as `close` says it; empty if the newest save was kept. Rank 0 knows."""
        if self._newest_staged <= (newest or 0):
            return ""
        assert self._flusher is not None
        failed = [step for step in self._flusher.failed if step > (newest or 0)] or [self._newest_staged]
        why = self._flusher.failed.get(max(failed), "it was not written")
        return SaveRecord(newest, min(failed), max(failed), why).text

    def _tell_failures(self) -> None:
        """Says on rank 0 which saves have failed since it was last asked."""
        flusher = self._flusher
        if self.ranks.rank != 0 or flusher is None:
            return
        for step in [one for one in flusher.failed if one not in self._told]:
            self._told.add(step)
            kept = SaveRecord(flusher.committed if flusher.committed is not None else self._loaded_step or None).kept_text
            tell(f"the checkpoint of step {step:,} was not kept: {flusher.failed[step]}; {kept}")

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:  # after an error other ranks may be gone, so no collective call; the flush process finishes staged saves
            self.close()


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
