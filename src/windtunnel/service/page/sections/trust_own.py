"""A reader's own measurements, uploaded and scored: a table of measured steps, or the traces and logs of a run beside its job."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from nicegui import events, ui

from windtunnel.base.files import without_gz
from windtunnel.service.page.asking import Asking, Wanted
from windtunnel.service.page.context import PageContext
from windtunnel.service.page.fields import choose_files
from windtunnel.service.page.sheets import SHEET, show_sheet, use_sheets
from windtunnel.service.page.studies import job_arguments

MOST_FILES = 64
"""Uploads of one question."""
COLUMNS = "id,family,framework,model,gpu,gpus,gpus_per_node,tp,pp,dp,seq,gbs,mbs,precision,iter_time_s"
"""Columns of a table that suffice for a model of the catalogue."""
EXAMPLE = f"{COLUMNS}\nmine-1,mine,megatron,llama3-8b,h100-sxm-80gb,8,8,2,1,4,8192,32,1,bf16,4.1\n"


def are_tables(names: Iterable[str]) -> bool:
    """Whether files are tables of measurements by their names, packed or not; others are of a run."""
    return all(without_gz(name).suffix.lower() in (".csv", ".parquet") for name in names)


def most_uploaded(body: int) -> int:
    """Bytes of files that a request of at most `body` bytes holds: they travel in base64, four bytes for three."""
    return body * 3 // 4


class OwnMeasurements:
    """The files of a reader, and what became of them."""

    def __init__(self, context: PageContext) -> None:
        self.context = context
        self.files: dict[str, bytes] = {}
        most = most_uploaded(context.door.settings.body_bytes)
        self.size = f"{most >> 20} MiB"
        with ui.element("div").classes("wt-buttons"):
            self.upload = choose_files(
                context.say("trust.upload", size=self.size), self.take, max_files=MOST_FILES, max_total_size=most,
                on_rejected=self.refuse,
            )  # fmt: skip
            go = ui.button(context.say("trust.score_own"), on_click=self.score, color=None)
            go.classes("wt-go").props("no-caps unelevated")
            ui.button(context.say("trust.clear"), on_click=self.clear, color=None).classes("wt-other").props("no-caps unelevated")
            ui.button(
                context.say("trust.example"), on_click=lambda: ui.download.content(EXAMPLE, "measured.csv"), color=None
            ).props("flat no-caps").classes("wt-other")
        self.told = ui.label("").classes("wt-soft").props('aria-live="polite"')
        self.told.set_visibility(False)
        self.asking = Asking(context, lambda _, asked: show_sheet(context, asked), "own-scored")

    async def take(self, event: events.UploadEventArguments) -> None:
        """Keeps a file of the reader until the page is left."""
        name = event.file.name.replace("\\", "/").rpartition("/")[2]
        self.files[name] = await event.file.read()
        self._tell(", ".join(self.files))

    def refuse(self) -> None:
        """More than may be uploaded."""
        self._tell(self.context.say("trust.too_large", files=MOST_FILES, size=self.size))

    def clear(self) -> None:
        """Forgets the files."""
        self.files.clear()
        self.upload.reset()
        self._tell("")
        self.asking.result.clear()

    async def score(self) -> None:
        """Scores what was uploaded."""
        if not self.files:
            self._tell(self.context.say("trust.no_file"))
            return
        await self.asking.run(self.wanted_question)

    def wanted_question(self) -> Wanted:
        """A table is validated; anything else is a run, and is compared with the job that the page is about."""
        if are_tables(self.files):
            return Wanted("validate", {"tables": list(self.files)}, dict(self.files), SHEET)
        asked = job_arguments(self.context)
        job = asked["job"]
        files: dict[str, Any] = dict(self.files)
        if not isinstance(job, str):
            files["job.json"] = json.dumps(job)
            job = "job.json"
        changes = {"set": asked["set"]} if asked.get("set") else {}
        return Wanted("compare", {"things": [*self.files, job], **changes}, files, SHEET)

    def _tell(self, text: str) -> None:
        self.told.set_text(text)
        self.told.set_visibility(bool(text))


def own_measurements(context: PageContext) -> None:
    """The form of uploads."""
    use_sheets()
    ui.label(context.say("trust.own_how")).classes("wt-soft")
    OwnMeasurements(context)
