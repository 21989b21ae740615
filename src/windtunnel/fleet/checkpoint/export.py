"""Exports the weights of a committed step as one safetensors file."""

from __future__ import annotations

import pickle
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta, TensorStorageMetadata
from torch.distributed.checkpoint.state_dict_loader import load

from windtunnel.base.errors import FileError, UnknownName
from windtunnel.fleet.checkpoint.folder import is_url
from windtunnel.fleet.checkpoint.manifest import METADATA, hash_errors, read_manifest
from windtunnel.fleet.checkpoint.pickles import read_metadata
from windtunnel.fleet.checkpoint.stores.object_store import fetch_step


class PlainFileReader(FileSystemReader):
    """DCP's reader, which unpickles `.metadata` with `read_metadata` instead of without limits."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        """The step's Metadata. FileError if it names what no checkpoint needs."""
        path = Path(self.path) / METADATA
        try:
            found: Metadata = read_metadata(path.read_bytes())
        except pickle.UnpicklingError as error:
            raise FileError(
                str(path), str(error), "what a save wrote", "Type `windtunnel fleet checkpoints verify FOLDER`."
            ) from error
        found.storage_meta = found.storage_meta or StorageMeta()
        found.storage_meta.load_id = self.load_id
        return found


def export_weights(step: str | Path, file: Path, key: str = "model") -> tuple[int, int]:
    """Writes the tensors under `key` with their names; returns their number and bytes. All of them are in memory at once, and those
    of a step in a store (`step` is a URL) in a temporary folder. The attempt may be left out of the URL.

    FileError if the step is not intact; UnknownName if it has no such key.
    """
    if is_url(str(step)):
        with tempfile.TemporaryDirectory(prefix="windtunnel-export-") as folder:
            fetch_step(str(step), Path(folder))
            return export_weights(folder, file, key)
    step = Path(step)
    manifest = read_manifest(step)
    wrong = hash_errors(step, manifest)
    if wrong:
        raise FileError(str(step), wrong[0], "an intact step", "Type `windtunnel fleet checkpoints verify FOLDER`.")
    reader = PlainFileReader(step)
    known = reader.read_metadata().state_dict_metadata
    prefix = f"{key}."
    tensors = {
        name: torch.empty(about.size, dtype=about.properties.dtype)
        for name, about in known.items()
        if name.startswith(prefix) and isinstance(about, TensorStorageMetadata)
    }
    if not tensors:
        raise UnknownName("--key", key, sorted({name.split(".")[0] for name in known}))
    with warnings.catch_warnings():  # a single process is intended
        warnings.filterwarnings("ignore", message=".*load in a single process")
        load(tensors, storage_reader=reader, no_dist=True)
    save_file({name[len(prefix) :]: one for name, one in tensors.items()}, file,
              metadata={"format": "pt", "step": str(manifest.step)})  # fmt: skip
    return len(tensors), sum(one.nbytes for one in tensors.values())
