"""A client of a server that speaks OpenAI's completions: chosen prompts by token ids, sent together, and when each token came.

A thread for each request reads its stream. Connections are opened and requests written but for their last byte before any is sent.
"""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from urllib.parse import urlsplit

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import SpecError

KEY = "WINDTUNNEL_SERVER_KEY"
"""The variable whose value is sent as a bearer's token, if it is set."""

PATIENCE = 10.0
"""s until a question about the server itself is given up."""

_GATE = f"connections not opened within {PATIENCE:.0f} s"

TRIPS = 9
"""Round trips of which the median is the network's and the front end's."""

Clock = Callable[[bytes], float]
"""The moment, in s, at which a line of a stream came; of an empty line: now."""


def now(line: bytes) -> float:
    """The usual clock."""
    return time.perf_counter()


@dataclass(frozen=True)
class ServerRequest:
    """A request: token ids of its prompt, and how many tokens are wanted."""

    prompt: tuple[int, ...]
    tokens: int


@dataclass
class StreamedAnswer:
    """When a request was sent, and when so many of its tokens had come: (moment, tokens)."""

    asked: ServerRequest
    sent: float = 0.0
    came: list[tuple[float, int]] = field(default_factory=list)
    error: Exception | None = None

    @property
    def first_moment(self) -> float:
        """The moment of its first token."""
        return self.came[0][0]

    @property
    def last_moment(self) -> float:
        """The moment of its last token."""
        return self.came[-1][0]

    @property
    def first_seconds(self) -> float:
        """Seconds from sending to its first token."""
        return self.first_moment - self.sent

    @property
    def seconds_each(self) -> float:
        """Seconds of each further token."""
        return (self.last_moment - self.first_moment) / max(self.came[-1][1] - self.came[0][1], 1)


class ServerClient:
    """A server by its address, such as http://127.0.0.1:8000; a path in front of /v1 is kept.

    SpecError, with what to type, for another text, and from its methods where nothing answers, a key is wanted, the model is
    another, tokens do not stream, an answer ends early, or token ids are refused. `ends`: when requests are given up, by
    `time.monotonic`.
    """

    def __init__(self, url: str, clock: Clock | None = None) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError("--server", url, "the address of a server", "Such as --server http://127.0.0.1:8000.")
        try:
            self.port = parts.port
        except ValueError as error:
            raise SpecError("--server", url, "an address with a port from 1 to 65535") from error
        self.url, self.clock, self.host, self.secure = url, clock or now, parts.hostname, parts.scheme == "https"
        self.path = parts.path.rstrip("/").removesuffix("/v1")
        self.ends = float("inf")

    def get(self, path: str) -> str | None:
        """What the server says under `path`; None where it has nothing there. SpecError where nothing answers or a key is
        wanted."""
        try:
            with closing(self._connect(PATIENCE)) as line:
                line.request("GET", self.path + path, headers=self._headers())
                with line.getresponse() as answer:
                    text = answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            raise self._no_answer(error) from error
        if answer.status in (401, 403):
            raise self._key_error(answer.status)
        return text if answer.status == 200 else None

    def round_trip(self) -> float:
        """Median seconds of a question that needs no pass: what network, HTTP and client take."""
        took = []
        for _ in range(TRIPS):
            began = self.clock(b"")
            if self.get("/health") is None:
                self.get("/v1/models")
            took.append(self.clock(b"") - began)
        return sorted(took)[TRIPS // 2]

    def send(self, model: str, asked: Sequence[ServerRequest], began: threading.Semaphore | None = None) -> list[StreamedAnswer]:
        """Requests sent together, answered to the end; `began`: released at the first token of each. Raises
        as the class says."""
        answers = [StreamedAnswer(one) for one in asked]
        gate = threading.Barrier(len(asked))
        threads = [
            threading.Thread(target=self._follow, args=(model, one, gate, began), daemon=True, name="windtunnel-stream")
            for one in answers
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        errors = [one.error for one in answers if one.error is not None]
        if errors:  # that of the request which broke the gate, before those that waited there
            raise min(errors, key=lambda error: getattr(error, "got", "") == _GATE)
        return answers

    def _follow(self, model: str, answer: StreamedAnswer, gate: threading.Barrier, began: threading.Semaphore | None) -> None:
        """Sends a request when all threads of the gate are ready, and reads its stream."""
        try:
            with closing(self._connect(max(0.1, min(self.ends - time.monotonic(), 3600.0)))) as line:
                self._write(line, model, answer.asked)
                gate.wait(PATIENCE)
                answer.sent = self.clock(b"")
                line.send(b"}")
                with line.getresponse() as said:
                    self._read(model, said, answer, began)
        except threading.BrokenBarrierError:
            answer.error = SpecError("--server", _GATE, "a server with room for them")
        except (OSError, http.client.HTTPException) as error:
            gate.abort()
            answer.error = TimeoutError("no time left") if time.monotonic() > self.ends - 0.01 else self._no_answer(error)
        except Exception as error:  # of any kind: the sender raises it
            gate.abort()
            answer.error = error

    def _write(self, line: http.client.HTTPConnection, model: str, asked: ServerRequest) -> None:
        """Writes a request but for its last byte."""
        wanted = {
            "model": model, "prompt": list(asked.prompt), "max_tokens": asked.tokens, "ignore_eos": True, "temperature": 0.0,
            "stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        }  # fmt: skip
        body = json.dumps(wanted).encode()
        line.putrequest("POST", f"{self.path}/v1/completions")
        for name, value in {**self._headers(), "Content-Type": "application/json", "Content-Length": str(len(body))}.items():
            line.putheader(name, value)
        line.endheaders(body[:-1])

    def _read(self, model: str, answer: http.client.HTTPResponse, into: StreamedAnswer, began: threading.Semaphore | None) -> None:
        """The stream of an answer: when how many tokens had come."""
        if answer.status != 200:
            raise self._refusal_of(model, answer.status, answer.read().decode("utf-8", "replace"))
        if "event-stream" not in answer.getheader("Content-Type", ""):
            hint = "A proxy may hold streams back: give the engine's own address."
            raise SpecError("--server", self.url, "a server that streams its tokens", hint)
        count = 0
        while line := answer.readline():
            if not line.startswith(b"data:") or line[5:].strip() == b"[DONE]":
                continue
            moment = self.clock(line)
            try:
                said = json.loads(line[5:])
                if said.get("error"):
                    raise self._refusal_of(model, 0, json.dumps(said["error"]))
                usage = said.get("usage") or {}
                seen = min(int(usage.get("completion_tokens", count + bool(said.get("choices")))), into.asked.tokens)
            except (ValueError, TypeError, AttributeError) as error:
                got = line[:60].decode("utf-8", "replace")
                raise SpecError("--server", got, "chunks of JSON, as OpenAI's API streams them") from error
            if seen > count:
                count = seen
                into.came.append((moment, count))
                if began is not None and len(into.came) == 1:
                    began.release()
            if time.monotonic() > self.ends:
                raise TimeoutError("no time left")
        if count < into.asked.tokens:
            got = f"{count} of {into.asked.tokens} tokens"
            raise SpecError(
                "--server", got, "a server that takes ignore_eos and max_tokens", "vLLM and SGLang do; a proxy may not."
            )

    def _refusal_of(self, model: str, status: int, text: str) -> Exception:
        """The error of an answer that is none."""
        said = text
        try:
            table = json.loads(text)
            said = str(table.get("message") or (table.get("error") or {}).get("message") or text)
        except (ValueError, AttributeError):
            pass
        said = " ".join(said.split())[:160]
        if status in (401, 403):
            return self._key_error(status)
        if status == 404:
            return SpecError("--server", f"{model}: {said}", "a model that the server has", f"See {self.url}/v1/models.")
        if status in (400, 422):
            hint = "Prompts are sent as token ids, with ignore_eos and stream, as vLLM and SGLang take them under /v1/completions."
            return SpecError("--server", said, "a server that takes such requests", hint)
        return SpecError("--server", f"{status or 'an error in the stream'}: {said}", "answers", "See the server's log.")

    def _no_answer(self, error: Exception) -> SpecError:
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        return SpecError("--server", f"{self.url}: {why}", "a server that answers", f"Type: curl {self.url}/v1/models.")

    def _key_error(self, status: int) -> SpecError:
        return SpecError("--server", f"{self.url}: {status}", "a key that the server takes", f"Type: export {KEY}=THE_KEY.")

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.secure else http.client.HTTPConnection
        return kind(self.host, self.port, timeout=timeout)

    def _headers(self) -> dict[str, str]:
        key = os.environ.get(KEY)
        return {"Authorization": f"Bearer {key}"} if key else {}
