"""What a section of the page knows: the door, who asks, in which language, and the view in the address. Sentences of the page by
key, in the language of whoever reads it. words/ has a file for each section, in which every key has its text in all languages
side by side.
"""

from __future__ import annotations

import contextlib
import re
import time
import tomllib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from nicegui import ui

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import WindtunnelError
from windtunnel.service.door import AnswerError, Asked, JobView, ServiceDoor, StillRunning
from windtunnel.service.page.state import Question, ViewState
from windtunnel.service.store.queue import error_table
from windtunnel.service.web.errors import error_response
from windtunnel.service.web.tokens import Asker, Tokens
from windtunnel.service.work.outcome import explain

LANGUAGES = {"en": "English", "zh": "中文"}
"""Code of a language -> its own name."""


@cache
def words_of(code: str) -> dict[str, str]:
    """Key -> sentence with {facts}, of all files together. A key begins with the name of its file: `compose.title`."""
    return {
        f"{file.stem}.{key}": texts[code]
        for file in sorted((Path(__file__).parent / "words").glob("*.toml"))
        for key, texts in tomllib.loads(file.read_text(encoding="utf-8")).items()
        if code in texts
    }


@dataclass(frozen=True)
class Language:
    """The language of a reader."""

    code: str = "en"

    def say(self, key: str, **facts: object) -> str:
        """The sentence of a key with its facts. KeyError for a key that the language does not have."""
        return words_of(self.code)[key].format(**facts) if facts else words_of(self.code)[key]

    def find(self, key: str) -> str:
        """The same, or nothing for a key that the language does not have."""
        return words_of(self.code).get(key, "")


def language_of(code: str | None, accepted: str = "") -> Language:
    """The language that was picked, else the first that the browser accepts and the page has, else English."""
    if code in LANGUAGES:
        return Language(str(code))
    for wanted in accepted.lower().split(","):
        found = wanted.strip()[:2]
        if found in LANGUAGES:
            return Language(found)
    return Language()


Listener = Callable[[], Awaitable[None] | None]


@dataclass
class PageContext:
    """One opened page. `section`: its name; `dark`: True, False, or None for what the reader's system has.

    Sections ask with `ask` and `submit`, change the view with `show`, and learn of changes by `listen`.
    """

    door: ServiceDoor
    asker: Asker
    language: Language
    section: str
    view: ViewState
    dark: bool | None = None
    runs: Sequence[str] = ()
    """Folders of runs that the operator named."""
    tokens: Tokens | None = None
    """Of the service: a page that is open may ask no longer than its token."""
    _listeners: list[Listener] = field(default_factory=list)
    labels: dict[str, str] = field(default_factory=dict)
    """Option of the command line, such as `--ttft` -> the field of this page that it is."""
    _refused: list[Callable[[], None]] = field(default_factory=list)
    _typed: list[Callable[[ViewState], ViewState]] = field(default_factory=list)

    def say(self, key: str, **facts: object) -> str:
        """The sentence of a key in the reader's language."""
        return self.language.say(key, **facts)

    @property
    def question(self) -> Question:
        """What is asked now."""
        return self.view.question

    def listen(self, listener: Listener) -> None:
        """Calls `listener` whenever the view has changed."""
        self._listeners.append(listener)

    def when_refused(self, forget: Callable[[], None]) -> None:
        """Calls `forget` when a text cannot be read: what is shown beside it is of another job."""
        self._refused.append(forget)

    def refuse(self) -> None:
        """A text could not be read."""
        for forget in self._refused:
            forget()

    def in_fields(self, text: str) -> str:
        """An error of the command line in words of the page: options are its fields, `--set plan.tp=2` is `plan.tp = 2`."""
        text = re.sub(r"--set(?:-[ab])? ([\w.]+)=(\S+)", r"\1 = \2", text)
        labels = {word: f"“{label}”" for word, label in self.labels.items()}
        return re.sub(r"--[a-z][a-z-]*", lambda option: labels.get(option[0], option[0]), text)

    def when_typed(self, take: Callable[[ViewState], ViewState]) -> None:
        """`take` puts what stands in fields into a view. A field is kept when it is left, and a browser may tell that after the
        click on a button."""
        self._typed.append(take)

    async def keep_typed(self) -> None:
        """Puts into the view what stands in the fields now: what a question that is asked now is about."""
        view = self.view
        for take in self._typed:
            view = take(view)
        await self.show(view)

    async def show(self, view: ViewState) -> None:
        """Another view: the address follows, and so does whoever listens. The browser's way back undoes it."""
        if view == self.view:
            return
        self.view = view
        ui.navigate.history.push(self.link(self.section))
        for listener in self._listeners:
            waited = listener()
            if waited is not None:
                await waited

    def link(self, section: str, view: ViewState | None = None) -> str:
        """The address of a section with this view (by default the current one)."""
        query = (self.view if view is None else view).query()
        return f"/ui/{section}" + (f"?{query}" if query else "")

    async def ask(
        self, verb: str, arguments: Mapping[str, Any], files: Mapping[str, Any] | None = None, artefacts: Sequence[str] = (),
        wait: float | None = None,
    ) -> Asked:  # fmt: skip
        """The answer to a question, as of `ServiceDoor.ask`. WindtunnelError for who may not ask, and as the door raises them."""
        self._require_write()
        with self._note_asking(verb):
            return await self.door.ask(verb, arguments, files, artefacts, wait, self.asker.name)

    async def predict(self, artefacts: Sequence[str] = (), wait: float | None = None) -> Asked:
        """The answer to the question of the view, as of `ask`."""
        asked = self.question
        return await self.ask(asked.verb, asked.arguments(), dict(asked.files), artefacts, wait)

    async def submit(
        self, verb: str, arguments: Mapping[str, Any], files: Mapping[str, Any] | None = None, artefacts: Sequence[str] = ()
    ) -> JobView:
        """A question as a job, as of `ServiceDoor.submit`."""
        self._require_write()
        with self._note_asking(verb):
            return await self.door.submit(verb, arguments, files, artefacts, self.asker.name)

    async def cancel(self, job: str) -> JobView | None:
        """Ends a job."""
        self._require_write()
        return await self.door.cancel(job)

    def _require_write(self) -> None:
        if self.tokens is not None:
            self.tokens.refresh()
            refusal = self.tokens.refusal(self.asker)
            if refusal is not None:
                raise AnswerError(error_table(refusal[0], self.say(f"frame.{refusal[0]}")), "")
        if not self.asker.may_write:
            raise AnswerError(error_table("WrongRole", self.say("frame.read_only")), "")

    @contextlib.contextmanager
    def _note_asking(self, verb: str) -> Iterator[None]:
        """A line of the audit log, with the status that the API would have given."""
        began, status = time.monotonic(), 500
        try:
            yield
            status = 200
        except StillRunning:
            status = 202
            raise
        except WindtunnelError as error:
            status = error_response(error).status_code
            raise
        finally:
            self.door.note(self.asker.name, f"PAGE {verb}", "page", status, time.monotonic() - began)


def error_of(error: WindtunnelError) -> Mapping[str, Any]:
    """An error in parts: kind, message, field, allowed, instead."""
    return error.table if isinstance(error, AnswerError) else explain(error)
