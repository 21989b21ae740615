"""`windtunnel memory JOB`."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from windtunnel.base.errors import SpecError
from windtunnel.cli.shared.captured import answer_memory, is_capture
from windtunnel.cli.shared.common import show_spinner, write
from windtunnel.cli.shared.outputs import Outputs, said_command
from windtunnel.memory.options import MemoryCommandOptions

if TYPE_CHECKING:
    from windtunnel.api.memory import MemoryReport


def command(asked: MemoryCommandOptions, outputs: Outputs) -> None:
    from windtunnel.api.memory import check_stage
    from windtunnel.api.step import memory

    source = outputs.source
    assert source is not None
    if asked.picture is not None and not asked.picture.lower().endswith((".svg", ".html")):
        raise SpecError("--picture", asked.picture, "a name that ends in .svg or .html")
    if is_capture(source.job):
        if asked.replay or asked.stage is not None or asked.snapshot is not None:
            raise SpecError("JOB", source.job, "a job beside --replay, --stage and --snapshot", "A capture is always replayed.")
        answer_memory(source, asked.picture, replace(outputs, source=None))
        return
    asked = replace(asked, job=source.load().job)
    check_stage(asked.job, asked.stage)
    with show_spinner(f"counting the memory of {asked.job.name}"):
        counted = memory(asked.job, replay=asked.replay, over_time=asked.picture is not None, stage=asked.stage)
        if asked.picture is not None:
            _write_picture(counted, asked.picture)
        if asked.snapshot is not None:
            counted.snapshot(asked.snapshot, asked.stage)
    from windtunnel.api.memory import memory_sheet

    outputs.show(partial(memory_sheet, counted), counted.as_dict)


def _write_picture(counted: MemoryReport, path: str) -> None:
    """The picture as a file, .svg or .html; FileError where it cannot be written."""
    from windtunnel.api.memory import memory_sheet, over_time_picture

    if not path.lower().endswith(".svg"):
        from windtunnel.draw.page.sheet import write_page

        write_page(memory_sheet(counted), path, said_command(), option="--picture")
        return
    from windtunnel.draw.page.painters import memory_svg

    write(memory_svg(over_time_picture(counted.moments, counted.job.name)), path, "--picture")
