"""Pickles of a checkpoint, read without running what they name.

A pickle names functions, and loading it calls them. `.metadata` needs the classes of DCP and no others; an object of the state
needs what `torch.load(weights_only=True)` takes, and `plain_classes`. Anything else is refused by its name, both when it is saved
and when it is loaded.
"""

from __future__ import annotations

import functools
import io
import pickle
import re
from typing import IO, Any

from windtunnel.base.errors import SpecError

_DCP = "torch.distributed.checkpoint"
METADATA_NAMES = frozenset(
    {
        "pathlib.PosixPath",
        "pathlib.PurePosixPath",
        "collections.OrderedDict",
        "torch.Size",
        "torch.serialization._get_layout",
        f"{_DCP}.filesystem._StorageInfo",
        f"{_DCP}.filesystem._StorageWriterTransforms",
        *(
            f"{_DCP}.metadata.{name}"
            for name in (
                "BytesStorageMetadata",
                "ChunkStorageMetadata",
                "Metadata",
                "MetadataIndex",
                "StorageMeta",
                "TensorProperties",
                "TensorStorageMetadata",
                "_MEM_FORMAT_ENCODING",
            )
        ),
    }
)
"""What `.metadata` may name, besides torch's dtypes: classes of data, which do nothing when they are made."""
_DTYPE = re.compile(r"torch\.(?:bool|u?int\d{1,2}|float\d{1,2}(?:_[a-z0-9]+)*|bfloat16|complex\d{2,3}|q(?:u?int|uint)\d[a-z0-9]*)")
ARRAY_NAMES = frozenset(
    {"numpy.ndarray", "numpy.dtype", "numpy.core.multiarray._reconstruct", "numpy._core.multiarray._reconstruct"}
)
_REFUSED = re.compile(r"GLOBAL ([\w.]+)")


class RefusedPickle(pickle.UnpicklingError):
    """A pickle that names what no checkpoint needs."""


class MetadataUnpickler(pickle.Unpickler):
    """Loads `.metadata`; RefusedPickle if it names anything but DCP's own classes of data."""

    what = ".metadata"

    def may_name(self, name: str) -> bool:
        """Whether a pickle may have a class by this name: one of METADATA_NAMES, or a dtype."""
        return name in METADATA_NAMES or _DTYPE.fullmatch(name) is not None

    def find_class(self, module: str, name: str) -> Any:
        """The class of an allowed name."""
        self.refuse_others(f"{module}.{name}")
        return super().find_class(module, name)

    def refuse_others(self, name: str) -> None:
        """RefusedPickle for a name that is not allowed."""
        if not self.may_name(name):
            raise RefusedPickle(f"{self.what} names {name}, which no checkpoint needs")


class ArrayUnpickler(MetadataUnpickler):
    """Loads numpy arrays in containers of plain values."""

    what = "a random state"

    def may_name(self, name: str) -> bool:
        """Whether it is what numpy rebuilds an array with."""
        return name in ARRAY_NAMES


class _Stub:
    """Stands for any class of METADATA_NAMES where torch is not needed."""

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


class _StubUnpickler(MetadataUnpickler):
    def find_class(self, module: str, name: str) -> Any:
        self.refuse_others(f"{module}.{name}")
        return _Stub


def read_metadata(raw: bytes) -> Any:
    """DCP's Metadata of a `.metadata` file. RefusedPickle, or another pickle.UnpicklingError where it is no such file."""
    try:
        found = MetadataUnpickler(io.BytesIO(raw)).load()
    except pickle.UnpicklingError:
        raise
    except Exception as error:  # a pickle can raise anything
        raise pickle.UnpicklingError(f".metadata: {type(error).__name__}: {error}") from error
    if not hasattr(found, "state_dict_metadata") or not hasattr(found, "storage_data"):
        raise pickle.UnpicklingError(f".metadata holds a {type(found).__name__}")
    return found


def metadata_error(raw: bytes) -> str:
    """What is wrong with the bytes of a `.metadata` file; empty if it names only what it may. Needs no torch, makes no object."""
    try:
        _StubUnpickler(io.BytesIO(raw)).load()
    except RefusedPickle as error:
        return str(error)
    except Exception as error:  # a pickle can raise anything
        return f".metadata: {type(error).__name__}: {error}"
    return ""


@functools.cache
def plain_classes() -> tuple[Any, ...]:
    """Classes that an object of a state may have beside those of `torch.load(weights_only=True)`: data without code."""
    import argparse
    import collections
    import datetime
    import pathlib
    import types

    listed: list[Any] = [
        collections.defaultdict, collections.deque, list, dict, int, float, str, bytes, bool, complex, frozenset, range, slice,
        datetime.date, datetime.datetime, datetime.time, datetime.timedelta, datetime.timezone, argparse.Namespace,
        types.SimpleNamespace, pathlib.PosixPath, pathlib.PurePosixPath,
    ]  # fmt: skip
    try:
        import numpy as np
    except ImportError:
        return tuple(listed)
    rebuild = np.empty(0).__reduce__()[0]  # numpy._core in numpy 2, numpy.core before
    scalar = np.float64(0).__reduce__()[0]
    made = {"_reconstruct": rebuild, "scalar": scalar}
    both = [(one, f"numpy.{core}.multiarray.{name}") for name, one in made.items() for core in ("_core", "core")]
    return (*listed, np.ndarray, np.dtype, *{type(np.dtype(kind)) for kind in "?bhilqBHILQefdFDUSO"}, *both)


def load_object(raw: IO[bytes]) -> Any:
    """An object as `torch.load` reads it, without running code. SpecError names the first class that is not allowed."""
    import torch

    with torch.serialization.safe_globals(list(plain_classes())):
        try:
            return torch.load(raw, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            raise _refused_class(named[1] if (named := _REFUSED.search(str(error))) else "an object of an own class") from error


def _refused_class(name: str) -> SpecError:
    return SpecError(
        "state", name, "numbers, texts, tensors, arrays and containers of them",
        "A pickle of it could run any code when it is loaded. Give its owner a state_dict and load_state_dict of plain values, "
        f"or type torch.serialization.add_safe_globals([{name.rpartition('.')[2]}]) before the Checkpointer saves and loads.",
    )  # fmt: skip
