"""Times the wait for the next batch, and checkpoint saves."""

from __future__ import annotations

from functools import partial
from threading import get_ident
from typing import Any

from windtunnel.fleet.watch.import_hooks import AfterImport
from windtunnel.fleet.watch.patches import Patches
from windtunnel.fleet.watch.recorder import Recorder
from windtunnel.records.sections import Section


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
