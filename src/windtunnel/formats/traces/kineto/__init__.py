"""Profiler traces as Chrome JSON: Kineto (PyTorch), pipeline traces of Megatron and its relatives."""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.files import GZIP
from windtunnel.formats.head import Head, unpack_head
from windtunnel.formats.reading import Context, Reading

_EVENT = re.compile(r'[\[,]\s*\{[^{}]*"(?:ph|ts)"\s*:')
_MEMBER = 512  # bytes of a tar header, and what members begin at multiples of


def recognises(head: Head) -> bool:
    """Trace events of Chrome's JSON, as an object or as a bare array, also inside a tar file, where each may be packed."""
    data = head.data
    if data[257:262] == b"ustar":
        packed = next((at for at in range(_MEMBER, len(data), _MEMBER) if data.startswith(GZIP, at)), None)
        data = data[max(data.find(b"{", _MEMBER), 0) :] if packed is None else _unpack_member(data[packed:])
    text = data.decode("utf-8", "replace")  # names in traces are not always UTF-8
    start = text[:4096].lstrip("\ufeff \t\r\n")[:1]
    if start == "{":
        return '"traceEvents"' in text or ('"deviceProperties"' in text and '"schemaVersion"' in text)
    return start == "[" and _EVENT.search(text[:65536]) is not None


def _unpack_member(member: bytes) -> bytes:
    try:
        return unpack_head(member)
    except zlib.error:
        return b""


def read(files: Sequence[Path], context: Context) -> Reading:
    """A run from the traces of its ranks. WindtunnelError for files that hold no events."""
    from windtunnel.formats.traces.kineto.reader import read_traces

    return read_traces(files, context)
