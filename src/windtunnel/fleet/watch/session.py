"""The running monitor of this process, from start to stop.

Heartbeat of a process: a thread that writes the current time into the ring.

Work that the monitor cannot record; stored with the run so that gaps are not reported as findings.

Times the wait for the next batch, and checkpoint saves.
"""

from __future__ import annotations

import atexit
import os
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import get_ident
from typing import Any

from windtunnel.fleet.fence import Fence
from windtunnel.fleet.ring import RingWriter
from windtunnel.fleet.rings import ring_path
from windtunnel.fleet.watch.adapters import ADAPTERS, WatchContext
from windtunnel.fleet.watch.answers import DumpAnswers, TraceTaker
from windtunnel.fleet.watch.calls import CallWatch, adopt, watch_reducers
from windtunnel.fleet.watch.ends import EndWatch, memory_facts
from windtunnel.fleet.watch.functional_collectives import FunctionalCalls
from windtunnel.fleet.watch.groups import GroupRegistry, JoinWatch
from windtunnel.fleet.watch.import_hooks import AfterImport
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.printed import PrintedLines
from windtunnel.fleet.watch.recorder import Recorder
from windtunnel.fleet.watch.resume import ResumeWatch
from windtunnel.fleet.watch.settings import PREFIX, WatchSettings
from windtunnel.fleet.watch.steps import ModuleWatch, StepWatch
from windtunnel.records.sections import Section

_RINGS: dict[Path, tuple[RingWriter, GroupRegistry]] = {}
"""Rings of this process: a monitor that is started again continues in its ring, with its steps and call numbers."""


class WatchSession:
    """A running monitor. It needs the process's rank: from RANK, or from an existing process group."""

    def __init__(self, settings: WatchSettings) -> None:
        self.settings, self.pid = settings, os.getpid()
        self.ring, groups = self._ring()
        self.fence = Fence(on_fault=self._end_unwatched)
        self._end_patches = Patches(Fence("how this rank ends is not recorded"))  # what ended the watching leaves it alone
        self._printed_patches = Patches(Fence("what this rank prints is not examined"))
        self.patches, self.imports = Patches(self.fence), AfterImport(self.fence.hook)
        self._last_act = self._end_patches.fence.hook(self._at_exit)
        try:
            self._install(groups)
        except BaseException:  # half a monitor is none
            self.fence.intact = self._end_patches.fence.intact = False
            self.imports.stop()
            self._printed_patches.restore()
            self._end_patches.restore()
            self.patches.restore()
            self.ring.mark_ended(0)
            raise

    def _install(self, groups: GroupRegistry) -> None:
        import torch

        settings = self.settings
        self.recorder = Recorder(self.ring, settings)
        self._calls = CallWatch(self.recorder, groups, self.patches)
        self._functional = FunctionalCalls(self.recorder, groups, self.patches)
        self.steps = StepWatch(self.recorder, self._sweep)
        self.steps.at_every_step = self.fence.hook(TraceTaker(settings.folder / settings.run, self.ring.meta.rank).end_step)
        self.context = WatchContext(self.recorder, self.steps, groups, self.patches, self.imports)
        ResumeWatch(self.ring.meta.rank, self.steps, self.patches, self.imports)  # before the next line: it ends steps
        self.steps.watch_optimizers(self.patches)
        self.steps.watch_garbage(self.patches)
        self.patches.wrap(torch.autograd, "backward", self.steps.around_backward)
        JoinWatch(self.recorder, self.patches, self.imports)
        watch_reducers(self.patches, self._calls)
        watch_batches(self.recorder, self.patches)
        watch_saves(self.recorder, self.patches, self.imports)
        self.modules = ModuleWatch(self.steps, self.fence, self._record_unrecorded_work)
        for adapter in ADAPTERS:
            adapter(self.context)
        self._cuda: Any = torch.cuda if settings.device == "auto" and torch.cuda.is_available() else None
        self._ends = EndWatch(self.ring, self._end_patches)
        if settings.printed != "none":
            PrintedLines(self.ring.path, self._printed_patches, everything=settings.printed == "all")
        answers = DumpAnswers(settings.folder / settings.run, self.ring.meta.rank)
        self.beat = BeatThread(self.ring, settings.beat_seconds, self.fence, answers.look)
        atexit.register(self._last_act)
        self.steps.begin()

    def stop(self) -> None:
        """Restores everything and leaves the ring on disk."""
        self._put_back()
        self.steps.finish()
        self.beat.stop()
        self.ring.mark_ended(0)

    def detach_child(self) -> None:
        """Called in a forked child: restores everything; the ring remains that of the parent."""
        self._put_back()

    def _put_back(self) -> None:
        self.recorder.stop()
        self.imports.stop()
        self.modules.stop()
        self._printed_patches.restore()
        self._end_patches.restore()
        self.patches.restore()
        atexit.unregister(self._last_act)

    def _end_unwatched(self, why: str) -> None:
        """After a fault of the monitor: the rank counts as one that the script has stopped watching, so its silence is no hang."""
        self.recorder.stop()
        beat = getattr(self, "beat", None)  # a fault may come before it is made
        if beat is not None:
            beat.end()
        self.ring.mark_ended(0)
        self.ring.text("fact", {"unseen": [f"everything after step {self.recorder.step}: the monitor ended by {why}"]})

    def _ring(self) -> tuple[RingWriter, GroupRegistry]:
        import torch
        import torch.distributed as dist

        joined = dist.is_available() and dist.is_initialized()
        rank = dist.get_rank() if joined else int(os.environ.get("RANK", "0"))
        world = dist.get_world_size() if joined else int(os.environ.get("WORLD_SIZE", "1"))
        path = ring_path(self.settings.folder / self.settings.run, rank).absolute()
        known = _RINGS.get(path)
        if known is not None:
            known[0].mark_resumed()
            return known
        on_gpu = torch.cuda.is_available() and torch.cuda.is_initialized()
        facts = {"torch": str(torch.__version__), "policy": self.settings.detail, "cores": _cores(), **memory_facts()}
        facts |= {"attempt": attempt} if (attempt := _attempt()) else {}
        ring = RingWriter(
            path, self.settings.run, rank, world, int(os.environ.get("LOCAL_RANK", "0")),
            device=torch.cuda.get_device_name() if on_gpu else "cpu",
            host=os.environ.get(PREFIX + "HOST", "") or socket.gethostname(), rows=self.settings.rows, facts=facts,
            skew=self.settings.clock,
        )  # fmt: skip
        _RINGS[path] = ring, GroupRegistry(ring)
        return _RINGS[path]

    def _record_unrecorded_work(self, module: Any) -> None:
        """Records the work of an outermost module that cannot be recorded."""
        try:
            work = unrecorded_in(module)
        except Exception:  # an unusual module; an error of the monitor must not end the training
            return
        if work:
            self.ring.text("fact", {"unseen": work})

    def _sweep(self) -> None:
        """Called once per step: closes calls that ended without a wait in Python."""
        if self.recorder.events is None and self._cuda is not None and self._cuda.is_initialized():
            self._use_device()
        if self._calls.pending or self._calls.buckets.last is not None:
            self._calls.sweep(on_host=self.recorder.events is None)
        if self._functional.pending:
            self._functional.sweep()
        if self.recorder.events is not None:
            self.recorder.events.poll()

    def _use_device(self) -> None:
        from windtunnel.fleet.watch.device import DeviceEvents

        self.ring.text("fact", {"device": self._cuda.get_device_name()})
        self.recorder.use_device(DeviceEvents(self.ring, self._cuda))

    def _at_exit(self) -> None:
        if os.getpid() == self.pid:
            self.recorder.stop()
            self.fence.hook(self.steps.finish)()
            self._ends.finish()
            self._printed_patches.restore()
            self._end_patches.restore()
            self.patches.restore()


def _attempt() -> int:
    """How often the launcher has started the ranks again."""
    text = os.environ.get("TORCHELASTIC_RESTART_COUNT", "")
    return int(text) if text.isdecimal() else 0


def _cores() -> list[list[int]]:
    """Ranges (first, last) of the cores that this process may use; empty if the system does not tell."""
    ranges: list[list[int]] = []
    for core in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else ():
        if ranges and ranges[-1][1] == core - 1:
            ranges[-1][1] = core
        else:
            ranges.append([core, core])
    return ranges


class BeatThread:
    """Writes a heartbeat every `seconds` while Python threads can run.

    A stopped process, or one that holds the interpreter lock, stops beating; one that waits in a collective does not.
    """

    def __init__(
        self, ring: RingWriter, seconds: float, fence: Fence | None = None, at_each: Callable[[], object] = lambda: None
    ) -> None:  # fmt: skip
        self._ring, self._seconds, self._at_each = ring, seconds, at_each
        self._ended = threading.Event()
        self._thread = threading.Thread(target=(fence or Fence()).hook(self._run), name="windtunnel-beat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops the thread, and waits for it."""
        self._ended.set()
        self._thread.join(timeout=5)

    def end(self) -> None:
        """Stops the thread soon; it may be the one that calls this."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            self._ring.beat()
            self._at_each()


DDP = "all-reduces of a DistributedDataParallel that was made before the monitor started"
COMPILED = "collectives inside graphs of torch.compile that run without Python (CUDA graphs, a wrapper in C++)"


def unrecorded_in(module: Any) -> list[str]:
    """The calls of an outermost module that cannot be recorded. Examines each of its submodules once.

    Reducers that were created before the monitor started are adopted here.
    """
    from torch.nn.parallel import DistributedDataParallel

    found = []
    if not all([adopt(one) for one in module.modules() if isinstance(one, DistributedDataParallel)]):
        found.append(DDP)
    if any(_is_compiled(one) for one in module.modules()) and _may_leave_python():
        found.append(COMPILED)
    return found


def _is_compiled(module: Any) -> bool:
    return getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule"


def _may_leave_python() -> bool:
    """Whether a compiled graph may run without calling its operators from Python; such calls are not recorded."""
    import torch

    inductor = sys.modules.get("torch._inductor.config")
    return torch.cuda.is_available() or bool(getattr(inductor, "cpp_wrapper", False))


def watch_batches(recorder: Recorder, patches: Patches) -> None:
    """Wraps `next` of a DataLoader's iterator."""
    from torch.utils.data import dataloader

    section = int(Section.DATA)

    def make(original: Any) -> Any:
        def following(iterator: Any) -> Any:
            if not recorder.live:
                return original(iterator)
            mark = recorder.open(section)
            try:
                return original(iterator)
            finally:
                recorder.close(mark)

        return following

    patches.wrap(dataloader._BaseDataLoaderIter, "__next__", make)


def watch_saves(recorder: Recorder, patches: Patches, imports: AfterImport) -> None:
    """Times saves in the thread that starts the monitor: torch.save, and, once imported, save and async_save of
    torch.distributed.checkpoint and save_file of safetensors.
    """
    import torch

    inside, home = [False], get_ident()

    def make(name: str, original: Any) -> Any:
        def save(*args: Any, **options: Any) -> Any:
            elsewhere = inside[0] or get_ident() != home  # a save in another thread does not block training
            mark = None if elsewhere else recorder.open_range(Section.CHECKPOINT, recorder.name(name))
            if mark is None:
                return original(*args, **options)
            inside[0] = True
            try:
                return original(*args, **options)
            finally:
                inside[0] = False
                recorder.close(mark)

        return save

    patches.wrap(torch, "save", partial(make, "torch.save"))

    def checkpoint(module: Any) -> None:
        for name in ("save", "async_save"):
            patches.wrap(module, name, partial(make, f"checkpoint.{name}"))

    def weights(module: Any) -> None:
        patches.wrap(module, "save_file", partial(make, "safetensors.save_file"))

    imports.when("torch.distributed.checkpoint", checkpoint)
    imports.when("safetensors.torch", weights)
