"""Where a save can be killed: functions of the product, wrapped here so that the process, or all of the job's, die inside."""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from windtunnel.fleet import disk
from windtunnel.fleet.checkpoint import commit, folder, manifest
from windtunnel.fleet.checkpoint.stores import local_folder

STAGE = ("stage-half", "stage-done")
FLUSH = ("write", "acknowledge", "acknowledged", "manifest", "manifest-renamed", "rename", "renamed", "latest", "garbage")


def die(pids: Path, whom: str) -> None:
    """Kills this process, or first all of the job's."""
    if whom == "all":
        for line in pids.read_text().split():
            if int(line) != os.getpid():
                try:
                    os.kill(int(line), signal.SIGKILL)
                except ProcessLookupError:
                    continue
    os.kill(os.getpid(), signal.SIGKILL)


def patch_flush(point: str, step: int, act: Callable[[], None]) -> None:
    """Does `act` at `point` of the save of `step`, in this flush process."""

    def at(path: Any) -> bool:
        return f"step-{step:08d}" in str(path)

    def before(module: Any, name: str, when: Callable[..., bool], after: bool = False) -> None:
        real = getattr(module, name)

        def wrapped(*given: Any, **named: Any) -> Any:
            fits = when(*given)
            if fits and not after:
                act()
            result = real(*given, **named)
            if fits and after:
                act()
            return result

        setattr(module, name, wrapped)

    if point == "write":
        real_write = os.write
        count = [0]

        def write(descriptor: int, data: Any) -> int:
            if at(os.readlink(f"/proc/self/fd/{descriptor}")):
                count[0] += 1
                real_write(descriptor, data[: len(data) // 2])
                act()
            return real_write(descriptor, data)

        os.write = write
    elif point in ("acknowledge", "acknowledged"):
        before(local_folder, "acknowledge", lambda save, *_: save.step == step, after=point == "acknowledged")
    elif point in ("manifest", "manifest-renamed"):
        before(commit, "write_durably", lambda path, _: at(path) and path.name == manifest.MANIFEST, after=point != "manifest")
    elif point in ("rename", "renamed"):
        before(os, "rename", lambda old, new: Path(new) == folder.step_folder(Path(new).parent, step), after=point == "renamed")
    elif point == "latest":
        before(disk.os, "rename", lambda old, new: Path(new).name == folder.LATEST and at(Path(old).read_text()))
    elif point == "garbage":
        before(commit.shutil, "rmtree", lambda path, *_: True)


def patch_disk(fault: str, step: int) -> None:
    """Lets writing fail, or be slow, in this flush process."""
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        name = os.readlink(f"/proc/self/fd/{descriptor}")
        if ".distcp" in name:
            if fault == "eio" and f"step-{step:08d}" in name:
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            if fault == "slow":
                began = time.perf_counter()
                written = real(descriptor, data)
                time.sleep(9 * (time.perf_counter() - began) + 0.002)
                return written
        return real(descriptor, data)

    os.write = write


def patch_stage(point: str, step: int, act: Callable[[], None]) -> None:
    """Does `act` in the trainer while it copies the state of `step`."""
    import torch

    from windtunnel.fleet.checkpoint.staging import Slot

    real = Slot.stage

    def stage(slot: Slot, layout: Any, flat: dict[str, Any], objects: list[bytes]) -> None:
        if float(flat["weights.0"].flatten()[0]) != step:
            return real(slot, layout, flat, objects)
        if point == "stage-half":
            some = list(zip(slot._views, layout.tensors, strict=True))
            for view, place in some[: len(some) // 2]:
                torch.Tensor.copy_(view, flat[place.fqn])
            act()
        real(slot, layout, flat, objects)
        act()

    Slot.stage = stage  # type: ignore[method-assign]
