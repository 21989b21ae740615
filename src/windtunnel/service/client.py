"""The client of a service: the functions of `windtunnel`, answered by another machine. It needs no further package.

import windtunnel as wt

service = wt.connect("https://plans.example.org", token="wt_…")
answer = service.predict(wt.load("llama3-8b-8xh100"))
print(answer.step_time_s, answer.url)

Answers as a client sees them: the JSON of the command line, read-only, with attributes.
"""

from __future__ import annotations

import base64
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from windtunnel.base import errors
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.base.verbs import Verb, all_verbs, load_named


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


Progress = Callable[[float | None, str | None], object]
_KINDS = {kind.__name__: kind for kind in (errors.SpecError, errors.UnknownName, errors.FileError, errors.PlanError)}
_POLL = (0.05, 1.0)
_WAIT = 20.0
_AGAIN = (429, 502, 503, 504)


class RemoteError(WindtunnelError):
    """What a service refuses or fails at, where it is no error of a question: a token, a limit, a fault. `status` of HTTP,
    `table`."""

    def __init__(self, status: int, table: Mapping[str, Any]) -> None:
        message = str(table.get("message", f"the service answered {status}."))
        super().__init__(" ".join([message, *([str(table["instead"])] if table.get("instead") else [])]))
        self.status, self.table = status, dict(table)


def connect(url: str, token: str | None = None, *, timeout: float = 3600.0, patience: float = 60.0) -> RemoteService:
    """The service at `url`. `token`: of the service, by default $WINDTUNNEL_TOKEN; `timeout`: seconds to wait for an answer;
    `patience`: seconds for which a service that does not answer, or is full, is asked again. SpecError for an address
    that is none."""
    return RemoteService(url, token, timeout, patience)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token goes nowhere but where it was sent."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@cache
def asked_verbs() -> dict[str, Verb]:
    """Name of a function of `windtunnel` -> its verb, of those that a service may be asked."""
    verbs = (verb for verb in all_verbs().values() if verb.offered is True and verb.options is not None)
    return {verb.public_name: verb for verb in verbs if "." not in verb.public_name}


class RemoteService:
    """A service; its methods are the functions of `windtunnel` with the same objects, and options that the command line alone has.
    A path of a file or folder of this machine is uploaded, a `Job` is sent as its file. Each returns a `RemoteAnswer`. Raises what
    the function raises, and RemoteError."""

    def __init__(self, url: str, token: str | None = None, timeout: float = 3600.0, patience: float = 60.0) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.username or parts.password:
            raise SpecError("url", url, "an address such as https://plans.example.org, without a token or a query")
        self.url = url.rstrip("/")
        self._token = token if token is not None else os.environ.get("WINDTUNNEL_TOKEN")
        self._timeout, self._patience = timeout, patience
        self._opener = urllib.request.build_opener(_NoRedirects)

    def ask(
        self, verb: str, /, *, files: Mapping[str, str | bytes] | None = None, artefacts: Sequence[str] = (),
        progress: Progress | None = None, **arguments: Any,
    ) -> RemoteAnswer:  # fmt: skip
        """The answer to any verb of the command line, such as `fit power`. `arguments`: its options by their long names, with
        underscores, and its positional arguments; `files`: uploads by name; `artefacts`: options that write files; `progress` is
        called with the finished share and what is done."""
        uploads = {name: _encode_upload(data.encode() if isinstance(data, str) else data) for name, data in (files or {}).items()}
        body = {name: _argument(value, uploads) for name, value in arguments.items() if value is not None}
        body |= {"files": uploads} if uploads else {}
        body |= {"artefacts": list(artefacts)} if artefacts else {}
        until = time.monotonic() + self._timeout
        path = f"/api/v1/{verb.replace(' ', '/')}"
        data = json.dumps(body).encode()
        while True:
            status, headers, answer = self._send("POST", path, data, f"wait={max(0.0, min(_WAIT, until - time.monotonic())):.3f}")
            if status != 202:
                return self._answer(verb, headers, answer)
            self._follow(json.loads(answer), until, progress)

    def _answer(self, verb: str, headers: Mapping[str, str], data: bytes) -> RemoteAnswer:
        key = headers.get("x-windtunnel-key", "")
        url = f"{self.url}/api/v1/answers/{key}"

        def fetch(name: str) -> bytes:
            return self._send("GET", f"/api/v1/answers/{key}/{urllib.parse.quote(name)}")[2]

        return RemoteAnswer(
            data, key, url, verb, headers.get("content-type", ""), headers.get("x-windtunnel-cached") == "true", fetch
        )

    def _follow(self, job: dict[str, Any], until: float, progress: Progress | None) -> None:
        """Waits for the end of a job. Raises its error."""
        pause = _POLL[0]
        while job["state"] in ("queued", "running"):
            if progress is not None:
                progress(job["progress"], job["doing"])
            if time.monotonic() > until:
                raise RemoteError(0, {"message": f"no answer within {self._timeout:g} s; job {job['id']} goes on."})
            time.sleep(pause)
            pause = min(_POLL[1], pause * 1.5)
            job = self.job(job["id"])
        if job["state"] != "done":
            raise _error(0, job["error"] or {"kind": "Cancelled", "message": "the job was cancelled."})

    def job(self, job: str) -> dict[str, Any]:
        """A job by its id, as the service tells it: state, progress, log."""
        found: dict[str, Any] = json.loads(self._send("GET", f"/api/v1/jobs/{urllib.parse.quote(job)}")[2])
        return found

    def cancel(self, job: str) -> dict[str, Any]:
        """Cancels a job; returns it."""
        found: dict[str, Any] = json.loads(self._send("DELETE", f"/api/v1/jobs/{urllib.parse.quote(job)}")[2])
        return found

    def answer(self, key: str) -> RemoteAnswer:
        """A kept answer by its key. RemoteError if it is not kept."""
        _, headers, data = self._send("GET", f"/api/v1/answers/{urllib.parse.quote(key)}")
        return self._answer("", headers, data)

    def _send(
        self, method: str, path: str, data: bytes | None = None, prefer: str | None = None
    ) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
        """One request; it is repeated while the service is away or full: the same question is one job, so that does no harm."""
        request = urllib.request.Request(self.url + path, data, method=method)
        for name, value in (("Content-Type", "application/json" if data else None), ("Prefer", prefer),
                            ("Authorization", f"Bearer {self._token}" if self._token else None)):  # fmt: skip
            if value is not None:
                request.add_header(name, value)
        until, pause = time.monotonic() + self._patience, 0.2
        while True:
            try:
                with self._opener.open(request, timeout=_WAIT + 60.0) as response:
                    return response.status, {k.lower(): v for k, v in response.headers.items()}, response.read()
            except urllib.error.HTTPError as error:
                with error:
                    table = _table(error.read())
                if error.code not in _AGAIN or time.monotonic() > until:
                    raise _error(error.code, table) from None
                pause = float(error.headers.get("Retry-After") or pause)
            except OSError as error:
                if time.monotonic() > until:
                    reason = getattr(error, "reason", error)
                    raise RemoteError(0, {"message": f"{self.url} does not answer: {reason}."}) from error
            time.sleep(max(0.0, min(pause, until - time.monotonic())))
            pause = min(5.0, pause * 2)

    def __getattr__(self, name: str) -> Callable[..., RemoteAnswer]:
        """The method that asks a verb."""
        if name not in asked_verbs():
            raise AttributeError(f"a service has no {name!r}; it has {', '.join(asked_verbs())}")
        return partial(self._ask_stated, asked_verbs()[name])

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *asked_verbs()]

    def _ask_stated(self, verb: Verb, /, *given: Any, **named: Any) -> RemoteAnswer:
        """The answer to a verb. What the class of its options does not have is asked as it stands: `files`, `artefacts` and
        `progress` of `ask`, and options that describe a job (`on`, `set`)."""
        from windtunnel.base.options import options_of, request_of

        kind = load_named(verb.options)
        stated = {one.name: one for one in options_of(kind) if one.name not in ("files", "artefacts", "progress")}
        for option in stated.keys() & named.keys():
            if not (stated[option].shown or stated[option].request):
                raise SpecError(option, named[option], "left out: a service does not take it")
        asked = kind(*given, **{name: value for name, value in named.items() if name in stated})
        said = {name: value for name, value in named.items() if name not in stated}
        return self.ask(" ".join(verb.words), **said, **request_of(asked))

    def compare(self, a: Any, b: Any, *given: Any, **named: Any) -> RemoteAnswer:
        """`wt.compare`: two jobs, or a run and its job."""
        things = [*(a if isinstance(a, (list, tuple)) else [a]), b]
        named |= dict(zip(("network",), given, strict=False))
        return self._ask_stated(asked_verbs()["compare"], things, **named)

    def read(self, *paths: Any, **named: Any) -> RemoteAnswer:
        """`wt.read`."""
        return self._ask_stated(asked_verbs()["read"], paths, **named)


def _argument(value: Any, uploads: dict[str, Any]) -> Any:
    """An argument as JSON; files, folders and objects become uploads."""
    if isinstance(value, Mapping):
        return {str(key): _plain_value(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_argument(one, uploads) for one in value]
    if isinstance(value, Path) or (isinstance(value, str) and ("." in value or "/" in value) and os.path.exists(value)):
        return _upload(Path(value), uploads)
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    return _upload_text(f"{type(value).__name__.lower()}.toml", _dump_noun(value), uploads)


def _plain_value(value: Any) -> Any:
    return [_plain_value(one) for one in value] if isinstance(value, (list, tuple)) else value


def _dump_noun(value: Any) -> str:
    """A noun as its file. TypeError for an object that has none."""
    from windtunnel.spec import Job, dump_job

    if isinstance(value, Job):
        return dump_job(value)
    raise TypeError(f"a {type(value).__name__} cannot be sent: give a name, a table, a Job or a path")


def _upload_text(name: str, text: str, uploads: dict[str, Any]) -> str:
    stem, suffix = os.path.splitext(name)
    number, data = 1, _encode_upload(text.encode())
    while uploads.get(name, data) != data:
        number += 1
        name = f"{stem}{number}{suffix}"
    uploads[name] = data
    return name


def _upload(path: Path, uploads: dict[str, Any]) -> str:
    """A file, or all files of a folder, under the last part of its name. FileError if it is not there."""
    try:
        if not path.is_dir():
            uploads[path.name] = _encode_upload(path.read_bytes())
            return path.name
        for inner in sorted(path.rglob("*")):
            if inner.is_file():
                uploads[f"{path.resolve().name}/{inner.relative_to(path).as_posix()}"] = _encode_upload(inner.read_bytes())
    except OSError as error:
        raise errors.FileError("path", str(path), "a file that can be read", f"{error.strerror}.") from error
    return path.resolve().name


def _encode_upload(data: bytes) -> Any:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def _table(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _error(status: int, table: Mapping[str, Any]) -> WindtunnelError:
    """The error that the function of `windtunnel` raises, where it is one."""
    kind = _KINDS.get(str(table.get("kind")))
    if kind is None:
        return RemoteError(status, table)
    error = kind.__new__(kind)
    error.args = (str(table.get("message", "")),)
    error.path, error.got = str(table.get("field", "")), None
    error.allowed, error.hint = str(table.get("allowed", "")), str(table.get("instead", ""))
    return error
