"""Verbs of a job on what `windtunnel capture` wrote: its folder or its files in the place of the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.common import show_spinner, write
from windtunnel.cli.shared.outputs import said_command

if TYPE_CHECKING:
    from windtunnel.api.capture import Captured
    from windtunnel.cli.shared.job import JobSource
    from windtunnel.cli.shared.outputs import Outputs


def is_capture(source: str | None) -> bool:
    """Whether the job of a command line is what `capture` wrote."""
    from windtunnel.records.capture_file import captured_files

    return source is not None and bool(captured_files([source]))


def load_captured(source: JobSource, network: str, verb: str, said: Sequence[object] = ()) -> Captured:
    """The captured job of a command line, replayed. SpecError for options, `said`, that only a job of our graphs has, and for
    fields of a plan: what a script does is in the script."""
    from windtunnel.api.capture import read_capture

    if any(said) or source.model is not None or source.megatron is not None:
        allowed = f"a job beside these options: {verb} takes of a capture --on, --set cluster.…, --network"
        raise SpecError("JOB", source.job, allowed)
    for text in source.sets:
        if not text.startswith("cluster."):
            raise SpecError("--set", text, "fields of the cluster", "What the job does is in its script: capture it again.")
    with show_spinner("replaying the capture"):
        return read_capture(str(source.job), source.on, source.sets, network)


def answer_memory(source: JobSource, picture: str | None, outputs: Outputs) -> None:
    """Memory of a captured job."""
    from windtunnel.api.capture_sheet import memory_of_capture_sheet, memory_picture

    captured = load_captured(source, "closed", "memory")
    sheet = memory_of_capture_sheet(captured)
    if picture is not None and picture.lower().endswith(".svg"):
        from windtunnel.draw.page.painters import memory_svg

        write(memory_svg(memory_picture(captured)), picture, "--picture")
    elif picture is not None:
        from windtunnel.draw.page.sheet import write_page

        write_page(sheet, picture, said_command(), option="--picture")
    outputs.show(sheet, captured.memory_dict())
