"""Serialization of batches and exceptions. The arrays of a batch are used in place.

Pickle's protocol 5 keeps arrays outside of its stream; here they follow it at aligned offsets. Torch tensors are sent as the bytes
of their storage.
"""

from __future__ import annotations

import io
import pickle
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from windtunnel.base.errors import WindtunnelError

_ALIGN = 64
_HEAD = struct.Struct("<QQ")


class ReaderError(WindtunnelError):
    """The node's reader or one of its workers is gone, or an exception of the dataset could not be pickled."""


def _tensor(raw: np.ndarray, dtype: str, shape: tuple[int, ...]) -> Any:
    import torch

    if not raw.size:
        return torch.empty(shape, dtype=getattr(torch, dtype))
    return torch.from_numpy(raw).view(getattr(torch, dtype)).view(shape)


class _Packer(pickle.Pickler):
    def reducer_override(self, thing: Any) -> Any:
        torch = sys.modules.get("torch")
        if (
            torch is None
            or type(thing) is not torch.Tensor
            or thing.layout != torch.strided
            or thing.is_quantized
            or thing.is_complex()
        ):
            return NotImplemented
        flat = thing.detach().cpu().contiguous().reshape(-1)
        return _tensor, (flat.view(torch.uint8).numpy(), str(thing.dtype).removeprefix("torch."), tuple(thing.shape))


def pack(thing: Any) -> list[bytes | memoryview]:
    """Pieces that represent `thing` when written one after the other; the first contains the offsets of the others."""
    buffers: list[pickle.PickleBuffer] = []
    stream = io.BytesIO()
    _Packer(stream, 5, buffer_callback=buffers.append).dump(thing)
    words = stream.getvalue()
    raws = [buffer.raw() for buffer in buffers]
    head = _HEAD.pack(len(words), len(raws)) + struct.pack(f"<{len(raws)}Q", *(raw.nbytes for raw in raws)) + words
    pieces: list[bytes | memoryview] = [head]
    size = len(head)
    for raw in raws:
        pieces += [bytes(-size % _ALIGN), raw]
        size += -size % _ALIGN + raw.nbytes
    return pieces


def unpack(memory: memoryview) -> Any:
    """The packed object. Its arrays are views of `memory` and keep it alive."""
    words, count = _HEAD.unpack_from(memory)
    sizes = struct.unpack_from(f"<{count}Q", memory, _HEAD.size)
    at = _HEAD.size + 8 * count
    stream = memory[at : at + words]
    at += words
    buffers = []
    for size in sizes:
        at += -at % _ALIGN
        buffers.append(memory[at : at + size])
        at += size
    return pickle.loads(stream, buffers=buffers)


def pack_error(error: BaseException) -> bytes:
    """An exception with the text of its traceback."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(words := pickle.dumps(error))
    except Exception:  # it cannot be pickled, but its text can
        words = pickle.dumps(ReaderError(f"{type(error).__name__}: {error}"))
    return pickle.dumps((words, text))


def unpack_error(blob: bytes) -> BaseException:
    """The exception, of its own type, with the reader's traceback as a note."""
    words, text = pickle.loads(blob)
    error: BaseException = pickle.loads(words)
    if isinstance(error, StopIteration):  # it would silently end the rank's loop
        error = RuntimeError("the dataset raised StopIteration")
    error.add_note(f"In the node's reader:\n{text}")
    return error


def stack(samples: list[Any]) -> Any:
    """Stacks samples to a batch of numpy arrays, through nested dicts, lists and tuples; strings stay lists. The default without
    torch.
    """
    first = samples[0]
    if isinstance(first, dict):
        return {key: stack([sample[key] for sample in samples]) for key in first}
    if isinstance(first, tuple):
        parts = [stack(list(part)) for part in zip(*samples, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else tuple(parts)
    if isinstance(first, list):
        return [stack(list(part)) for part in zip(*samples, strict=True)]
    return list(samples) if isinstance(first, (str, bytes)) else np.stack([np.asarray(sample) for sample in samples])


def default_collate() -> Callable[[list[Any]], Any]:
    """Torch's default_collate, or `stack` without torch."""
    try:
        from torch.utils.data import default_collate as collate
    except ImportError:
        return stack
    chosen: Callable[[list[Any]], Any] = collate
    return chosen
