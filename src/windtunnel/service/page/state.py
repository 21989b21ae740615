"""What of a view is in its address: a link to it shows the same to somebody else.

The address is `/ui/SECTION?job=NAME&on=MACHINE&set=plan.tp=4&…`: readable where it can be. A job or a text that was pasted is
packed into `packed`. Further fields belong to a section (`sort`, `key`, …).

Links of the page.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from nicegui import ui

from windtunnel.base.dataclasses import dataclass, field, replace

MOST_PACKED, MOST_TABLE = 6000, 1 << 20
"""Characters of a packed table in an address, and bytes of what is unpacked."""
_QUESTION = ("verb", "job", "on", "packed", "set")


@dataclass(frozen=True)
class PageQuestion:
    """What is asked now. `job`: a name of the catalogue or of one of `files`, or a table as in a job file; `on`: a machine;
    `changes`: field -> value, as `--set` has them; `files`: name -> pasted text."""

    job: str | Mapping[str, Any] = ""
    changes: Mapping[str, str] = field(default_factory=dict)
    verb: str = "predict"
    on: str = ""
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_asked(self) -> bool:
        return bool(self.job)

    def arguments(self) -> dict[str, Any]:
        """As the door takes them."""
        found: dict[str, Any] = {"job": self.job}
        if self.on:
            found["on"] = self.on
        if self.changes:
            found["set"] = dict(self.changes)
        return found

    def with_change(self, name: str, value: str | None) -> PageQuestion:
        """The same with one field changed, or (None) as the job has it."""
        others = {key: one for key, one in self.changes.items() if key != name}
        return replace(self, changes=others if value is None else {**others, name: value})


Question = PageQuestion
"""The short name of it inside the page."""


@dataclass(frozen=True)
class ViewState:
    """A view: its question and the fields of its section."""

    question: Question = Question()
    more: Mapping[str, str] = field(default_factory=dict)

    def with_question(self, question: Question) -> ViewState:
        """The same view of another question."""
        return replace(self, question=question)

    def with_field(self, name: str, value: str | None) -> ViewState:
        """The same view with a field of its section set, or (None) left out."""
        others = {key: one for key, one in self.more.items() if key != name}
        return replace(self, more=others if value is None else {**others, name: value})

    def query(self) -> str:
        """The view as the query of an address; empty for an empty view."""
        asked = self.question
        pairs: list[tuple[str, str]] = []
        if asked.verb != "predict":
            pairs.append(("verb", asked.verb))
        if isinstance(asked.job, str) and asked.job:
            pairs.append(("job", asked.job))
        if asked.on:
            pairs.append(("on", asked.on))
        pasted: dict[str, Any] = {} if isinstance(asked.job, str) else {"job": asked.job}
        pasted |= {"files": asked.files} if asked.files else {}
        if pasted and (packed := pack_table(pasted)):
            pairs.append(("packed", packed))
        pairs += [("set", f"{name}={value}") for name, value in asked.changes.items()]
        pairs += sorted(self.more.items())
        return urlencode(pairs, safe="=,./:")


def read_view(pairs: Sequence[tuple[str, str]]) -> ViewState:
    """The view of the pairs of a query. What cannot be read is left out: an address may have been cut."""
    verb, job, on = "predict", "", ""
    changes: dict[str, str] = {}
    more: dict[str, str] = {}
    pasted: Mapping[str, Any] = {}
    for name, value in pairs:
        if name == "verb":
            verb = value[:40]
        elif name == "job":
            job = value[:300]
        elif name == "on":
            on = value[:300]
        elif name == "packed":
            pasted = unpack_table(value) or {}
        elif name == "set" and "=" in value:
            changes[value.partition("=")[0].strip()[:200]] = value.partition("=")[2][:2000]
        elif name not in _QUESTION:
            more[name[:60]] = value[:4000]
    table, files = pasted.get("job"), pasted.get("files")
    kept = {str(key): one for key, one in files.items() if isinstance(one, str)} if isinstance(files, dict) else {}
    return ViewState(Question(table if isinstance(table, dict) else job, changes, verb, on, kept), more)


def pack_table(table: Mapping[str, Any]) -> str:
    """A table as text for an address; empty if it is too long for one."""
    raw = json.dumps(table, sort_keys=True, separators=(",", ":")).encode()
    packed = base64.urlsafe_b64encode(zlib.compress(raw, 9)).decode().rstrip("=")
    return packed if len(packed) <= MOST_PACKED else ""


def unpack_table(text: str) -> Mapping[str, Any] | None:
    """What `pack_table` packed; None for text that is none of its."""
    if len(text) > MOST_PACKED:
        return None
    try:
        raw = zlib.decompressobj().decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), MOST_TABLE)
        found = json.loads(raw)
    except (ValueError, zlib.error, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def anchor(text: str, address: str, download: str = "") -> ui.element:
    """A link to an address of the service (from its root, such as /ui/answer). `download`: the name of the file that it gives."""
    link = ui.element("a")
    link.props["href"] = address
    if download:
        link.props["download"] = download
    with link:
        ui.label(text).style("display: inline")
    return link
