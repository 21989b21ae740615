"""Answers as a client sees them: the JSON of the command line, read-only, with attributes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any


class AnswerTable(Mapping[str, Any]):
    """A table of an answer: `table.step_time_s` and `table["step_time_s"]` are the same. Lists are tuples, tables are tables."""

    __slots__ = ("_table",)

    def __init__(self, table: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_table", table)

    def __getitem__(self, name: str) -> Any:
        return view_of(self._table[name])

    def __getattr__(self, name: str) -> Any:
        try:
            return view_of(self._table[name])
        except KeyError:
            raise AttributeError(f"the answer has no {name!r}; it has {', '.join(map(str, self._table))}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("an answer is read-only")

    def __iter__(self) -> Iterator[str]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._table)})"

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return dict(self._table)

    to_json = as_dict


def view_of(value: Any) -> Any:
    """A value of JSON, read-only."""
    if isinstance(value, Mapping):
        return AnswerTable(value)
    return tuple(view_of(one) for one in value) if isinstance(value, list) else value


class RemoteAnswer(AnswerTable):
    """An answer of a service: the data of what the function of `windtunnel` returns, as its command prints it.

    `bytes`: exactly what `command` prints; `key`: of the question, the same for everybody; `url`: the answer's own link. Fields are
    attributes (`answer.step_time_s`). An answer that is a list has it in `rows`, one that is text in `text`. It is no `Prediction`:
    the JSON leaves out what only a local run has, such as the spans of the timeline.
    """

    __slots__ = ("_fetch", "bytes", "cached", "key", "media", "url", "verb")

    def __init__(
        self, data: bytes, key: str, url: str, verb: str, media: str, cached: bool, fetch: Callable[[str], bytes]
    ) -> None:  # fmt: skip
        found = json.loads(data) if media.startswith("application/json") and data else None
        super().__init__(found if isinstance(found, dict) else {"rows": found} if found is not None else {})
        said = {"bytes": data, "key": key, "url": url, "verb": verb, "media": media, "cached": cached, "_fetch": fetch}
        for name, value in said.items():
            object.__setattr__(self, name, value)

    @property
    def text(self) -> str:
        """The answer as text."""
        return bytes(self.bytes).decode("utf-8", "replace")

    def artefact(self, name: str) -> bytes:
        """A file that was asked for beside the answer, such as `html` or `trace`. WindtunnelError if it was not."""
        fetch: Callable[[str], bytes] = self._fetch
        return fetch(name)

    def write_html(self, path: str | Path) -> None:
        """Writes the page that was asked for with `artefacts=["html"]`."""
        Path(path).write_bytes(self.artefact("html"))

    def write_trace(self, path: str | Path) -> None:
        """Writes the timeline that was asked for with `artefacts=["trace"]`."""
        Path(path).write_bytes(self.artefact("trace"))

    def as_dict(self) -> Any:
        """What the command prints, as plain data."""
        return json.loads(self.bytes) if self.media.startswith("application/json") else self.text

    to_json = as_dict
