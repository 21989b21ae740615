"""Command lines, scripts and manifests that start inference servers; as an importer of files: what they say of a served job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from windtunnel.base.errors import SpecError
from windtunnel.formats.head import Head
from windtunnel.formats.jobs.servers.launch import read_launch, started_tool
from windtunnel.formats.reading import Content, Context, Reading


def recognises(head: Head) -> bool:
    """Whether a text starts a server."""
    return started_tool(head.text, str(head.path), head.path) is not None


def read(files: Sequence[Path], context: Context) -> Reading:
    """The fields of the served job. SpecError for a file that starts no server; else as `read_launch`."""
    if len(files) != 1:
        raise SpecError("FILE", f"{len(files)} files", "one script or manifest at a time")
    found = read_launch(files[0])
    if found is None:
        raise SpecError("FILE", str(files[0]), "a line that starts an inference server")
    facts = {"starts": found.tool.title, **found.fields}
    if found.quantization:
        facts["quantization"] = found.quantization
    return Reading("server", Content.SERVER, found, facts, tuple(found.taken), tuple(found.ignored), tuple(found.assumed))
