"""The HTTP interface: Starlette over a `ServiceDoor`.

| path | what |
|---|---|
| POST /api/v1/VERB | a question; 200 with the answer, 202 with a job where it takes longer than `Prefer: wait=SECONDS` |
| GET /api/v1/answers/KEY | a kept answer; /about what is known of it, /NAME an artefact such as `html` |
| GET /api/v1/jobs, /api/v1/jobs/ID, /api/v1/jobs/ID/events | jobs, the newest first; one; its progress as server-sent events |
| DELETE /api/v1/jobs/ID | cancels |
| GET /api/v1/openapi.json | all of this |
| GET /metrics | Prometheus |
| GET /healthz, /readyz | whether the service lives; whether its database answers |

The OpenAPI description of the service, derived from the verbs' own options.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import asdict
from typing import Any

from sqlalchemy.exc import DBAPIError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from windtunnel.base.errors import WindtunnelError
from windtunnel.service.door import Asked, JobView, ServiceDoor, StillRunning
from windtunnel.service.questions import AskedOption, OfferedVerb, offered_verb, offered_verbs
from windtunnel.service.store.queue import error_table
from windtunnel.service.web.errors import RequestError, error_response, table_response
from windtunnel.service.web.guard import ASKER, METRICS, PAGE_POLICY, too_large
from windtunnel.service.web.metrics import MEDIA, ServiceMetrics
from windtunnel.service.web.tokens import Asker

_ERROR = {"$ref": "#/components/responses/Error"}
_ERRORS = ("400", "401", "403", "404", "409", "413", "415", "421", "422", "429", "503", "507")


def describe() -> dict[str, Any]:
    """OpenAPI 3.1, as plain data."""
    paths: dict[str, Any] = {f"/api/v1/{verb.path}": {"post": _verb(verb)} for verb in offered_verbs().values()}
    paths |= _other_paths()
    return {
        "openapi": "3.1.0",
        "info": {"title": "windtunnel", "version": "1", "description": "Every verb of `windtunnel` as an endpoint."},
        "paths": paths,
        "components": {"schemas": {"Job": _JOB, "Error": _ERROR_SCHEMA, "Uploads": _UPLOADS}, 
                       "responses": {"Error": _ERROR_RESPONSE},
                       "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"token": []}],
    }  # fmt: skip


def _verb(verb: OfferedVerb) -> dict[str, Any]:
    properties = {option.name: _option(option) for option in verb.options}
    properties["files"] = {"$ref": "#/components/schemas/Uploads"}
    if verb.outputs:
        names = [name for name, *_ in verb.outputs]
        properties["artefacts"] = {"type": "array", "items": {"enum": names}, "description": "What is written beside the answer."}
    required = [option.name for option in verb.options if option.required]
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = required
    media = "application/json" if verb.json else "*/*"
    return {
        "summary": verb.help,
        "operationId": verb.path.replace("/", "_"),
        "parameters": [_PREFER],
        "requestBody": {"required": bool(required), "content": {"application/json": {"schema": schema}}},
        "responses": {
            "200": {"description": f"What `windtunnel {verb.name}` prints.", "content": {media: {"schema": {}}}},
            "202": {"description": "It takes longer: the job that answers it.", "content": _JOB_CONTENT},
            **{status: _ERROR for status in _ERRORS},
        },
    }


def _option(option: AskedOption) -> dict[str, Any]:
    one: dict[str, Any] = {"type": option.kind}
    if option.kind == "string":
        one = {"type": ["string", "number"]}
    if option.least is not None:
        one["minimum"] = option.least
    if option.most is not None:
        one["maximum"] = option.most
    if option.name == "job":
        one = {"type": ["string", "number", "object"]}
    if option.name in ("set", "set-a", "set-b"):
        schema: dict[str, Any] = {"type": ["string", "array", "object"], "items": {"type": "string"}}
    elif option.many:
        schema = {"anyOf": [one, {"type": "array", "items": one}]}
    else:
        schema = one
    schema = {**schema, "description": option.help}
    if option.default is not None and not option.many:
        schema["default"] = option.default
    return schema


_UPLOADS = {
    "type": "object",
    "description": "Uploads by name; an argument may name them. A text, or bytes as base64.",
    "additionalProperties": {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"base64": {"type": "string"}}, "required": ["base64"], "additionalProperties": False},
        ]
    },
}
_NULLABLE = {name: {"type": ["number", "null"]} for name in ("progress", "started", "finished", "position")}
_JOB = {
    "type": "object",
    "properties": {
        **{name: {"type": "string"} for name in ("id", "key", "verb", "command", "state", "log", "asker")},
        **_NULLABLE,
        "doing": {"type": ["string", "null"]},
        "answer": {"type": ["string", "null"]},
        "error": {"type": ["object", "null"]},
        "attempt": {"type": "integer"},
        "created": {"type": "number"},
    },
    "required": ["id", "key", "verb", "state"],
}
_JOB_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Job"}}}
_ERROR_SCHEMA = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("kind", "message", "field", "allowed", "instead")},
            "required": ["kind", "message"],
        }
    },
    "required": ["error"],
}
_ERROR_RESPONSE = {
    "description": "What is wrong, and what to write instead.",
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
}
_PREFER = {
    "name": "Prefer",
    "in": "header",
    "required": False,
    "schema": {"type": "string", "examples": ["wait=10", "respond-async"]},
    "description": "How many seconds to wait for the answer before the job is answered.",
}


def _path(name: str, description: str, kind: str = "string") -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": kind}, "description": description}


def _query(name: str, schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": description}


def _get(summary: str, parameters: list[dict[str, Any]], content: dict[str, Any], **more: Any) -> dict[str, Any]:
    responses = {"200": {"description": summary, "content": content}, **more, **{status: _ERROR for status in _ERRORS}}
    return {"summary": summary, "parameters": parameters, "responses": responses}


def _other_paths() -> dict[str, Any]:
    key, job = _path("key", "Key of a question."), _path("job", "Id of a job.")
    anything: dict[str, Any] = {"*/*": {"schema": {}}}
    table: dict[str, Any] = {"application/json": {"schema": {"type": "object"}}}
    states = {"enum": ["queued", "running", "done", "failed", "cancelled"]}
    page = [
        _query("state", states, "Only jobs in this state."),
        _query("limit", {"type": "integer", "minimum": 1, "maximum": 200, "default": 50}, "Jobs of a page."),
        _query("before", {"type": "integer", "minimum": 1}, "`next` of the page before."),
    ]
    return {
        "/api/v1/answers/{key}": {
            "get": _get("A kept answer.", [key], anything, **{"304": {"description": "It has not changed."}})
        },
        "/api/v1/answers/{key}/about": {"get": _get("What is known of an answer.", [key], table)},
        "/api/v1/answers/{key}/{name}": {"get": _get("An artefact.", [key, _path("name", "Such as html.")], anything)},
        "/api/v1/jobs": {"get": _get("Jobs, the newest first.", page, table)},
        "/api/v1/jobs/{job}": {"get": _get("A job.", [job], _JOB_CONTENT), "delete": _get("Cancels a job.", [job], _JOB_CONTENT)},
        "/api/v1/jobs/{job}/events": {
            "get": _get("Progress of a job.", [job], {"text/event-stream": {"schema": {"type": "string"}}})
        },
    }


Handler = Callable[[Request], Awaitable[Response]]
STATES = ("queued", "running", "done", "failed", "cancelled")
_DEPTH = 64
_KEY = re.compile(r"[0-9a-f]{64}")
_EVENT_SECONDS, _STREAM_SECONDS = 0.5, 600.0
_MOST_PAGE = 200


class ServiceApi:
    """The routes of the API over `door`."""

    def __init__(self, door: ServiceDoor) -> None:
        self._door, self.metrics = door, ServiceMetrics(door)
        self._described: bytes | None = None

    def app(self) -> Starlette:
        """The ASGI application; other routes may be mounted on it."""
        routes = [
            Route("/healthz", self._with_errors(self._tell_health)),
            Route("/readyz", self._with_errors(self._tell_ready)),
            Route(METRICS, self._with_errors(self._tell_metrics)),
            Route("/api/v1/openapi.json", self._with_errors(self._openapi)),
            Route("/api/v1/jobs", self._with_errors(self._jobs)),
            Route("/api/v1/jobs/{job}", self._with_errors(self._job)),
            Route("/api/v1/jobs/{job}", self._with_errors(self._cancel), methods=["DELETE"]),
            Route("/api/v1/jobs/{job}/events", self._with_errors(self._events)),
            Route("/api/v1/answers/{key}", self._with_errors(self._answer)),
            Route("/api/v1/answers/{key}/about", self._with_errors(self._about)),
            Route("/api/v1/answers/{key}/{name:path}", self._with_errors(self._artefact)),
            Route("/api/v1/{verb:path}", self._with_errors(self._ask), methods=["POST"]),
        ]
        return Starlette(routes=routes, exception_handlers={HTTPException: _http_error, Exception: _fault})

    def _with_errors(self, handler: Handler) -> Handler:
        """Errors as tables."""

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except (RequestError, WindtunnelError) as error:
                return error_response(error)
            except ClientDisconnect:
                return Response(status_code=499)  # nobody reads it
            except DBAPIError:
                table = error_table("StoreAway", "the database of the service does not answer: ask again later.")
                return table_response(503, table, {"Retry-After": "5"})

        return handle

    async def _ask(self, request: Request) -> Response:
        asker = _asker(request)
        verb = offered_verb(request.path_params["verb"])
        if not asker.may_write:
            raise RequestError(403, "WrongRole", "this token may read answers, and not ask.", "Use a token with the role write.")
        body = await _body(request, self._door.settings.body_bytes)
        files, artefacts = body.pop("files", None) or {}, body.pop("artefacts", None) or []
        wait = _wait(request, self._door.settings.wait_seconds)
        try:
            asked = await self._door.ask(verb.name, body, files, artefacts, wait, asker.name)
        except StillRunning as running:
            headers = {"Location": f"/api/v1/jobs/{running.job.id}", "Retry-After": "1"}
            return _json(job_table(running.job), 202, headers)
        return _answer_response(asked)

    async def _answer(self, request: Request) -> Response:
        return _answer_response(await self._find_answer(request), request.headers.get("if-none-match"))

    async def _about(self, request: Request) -> Response:
        asked = await self._find_answer(request)
        table = {
            "key": asked.key, "verb": asked.verb, "command": asked.command, "version": asked.version, "seconds": asked.seconds,
            "media": asked.media, "bytes": len(asked.bytes), "artefacts": dict(asked.artefacts), "log": asked.log,
        }  # fmt: skip
        return _json(table)

    async def _find_answer(self, request: Request) -> Asked:
        key = request.path_params["key"]
        asked = await self._door.answer(key) if _KEY.fullmatch(key) else None
        if asked is None:
            raise RequestError(404, "NoAnswer", "no answer of this key is kept.", "Ask the question again.")
        return asked

    async def _artefact(self, request: Request) -> Response:
        key, name = request.path_params["key"], request.path_params["name"]
        found = await self._door.artefact(key, name) if _KEY.fullmatch(key) else None
        if found is None:
            instead = 'Ask the question with "artefacts": ["html"], or another name of its verb.'
            raise RequestError(404, "NoArtefact", "no artefact of this name and key is kept.", instead)
        data, media = found
        headers = {"Cache-Control": "private, max-age=3600"}
        if media.startswith("text/html") or media == "image/svg+xml":
            headers["Content-Security-Policy"] = PAGE_POLICY
        else:
            headers["Content-Disposition"] = "attachment"
        return Response(data, 200, headers, media)

    async def _jobs(self, request: Request) -> Response:
        state = request.query_params.get("state")
        if state is not None and state not in STATES:
            raise RequestError(400, "BadQuery", f"state is one of {', '.join(STATES)}.")
        limit = _number(request, "limit", 50, _MOST_PAGE)
        before = _number(request, "before", None, 2**62)
        found, following = await self._door.jobs(state, before, limit or 50)
        return _json({"jobs": [job_table(job) for job in found], "next": following})

    async def _job(self, request: Request) -> Response:
        return _json(job_table(_require_job(await self._door.job(_job_id(request)))))

    async def _cancel(self, request: Request) -> Response:
        asker = _asker(request)
        if not asker.may_write:
            raise RequestError(
                403, "WrongRole", "this token may read jobs, and not cancel them.", "Use a token with the role write."
            )
        return _json(job_table(_require_job(await self._door.cancel(_job_id(request)))))

    async def _events(self, request: Request) -> Response:
        first = _require_job(await self._door.job(_job_id(request)))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(self._stream(first), 200, headers, "text/event-stream")

    async def _stream(self, job: JobView) -> AsyncIterator[bytes]:
        until, last = time.monotonic() + _STREAM_SECONDS, ""
        while True:
            text = json.dumps(job_table(job), sort_keys=True)
            if text != last:
                last = text
                yield f"event: {'end' if job.has_ended else 'job'}\ndata: {text}\n\n".encode()
            if job.has_ended or time.monotonic() > until:
                return
            found = await self._door.wait(job.id, _EVENT_SECONDS)
            if found is None:
                return
            job = found

    async def _openapi(self, request: Request) -> Response:
        if self._described is None:
            described = await asyncio.to_thread(describe)
            self._described = json.dumps(described, sort_keys=True).encode()
        return Response(self._described, media_type="application/json")

    async def _tell_health(self, request: Request) -> Response:
        return _json({"status": "ok"})

    async def _tell_metrics(self, request: Request) -> Response:
        return Response(await self.metrics.text(), headers={"Content-Type": MEDIA})

    async def _tell_ready(self, request: Request) -> Response:
        await asyncio.to_thread(self._door.shelf.counts)
        pool = self._door.pool
        if pool is None or not pool.ready.is_set():
            raise RequestError(503, "Starting", "the workers are starting.", headers={"Retry-After": "1"})
        return _json({"status": "ready"})


def job_table(job: JobView) -> dict[str, Any]:
    """A job as JSON."""
    return {**asdict(job), "answer": f"/api/v1/answers/{job.key}" if job.state == "done" else None}


def _answer_response(asked: Asked, known: str | None = None) -> Response:
    tag = f'"{asked.key[:32]}"'
    headers = {
        "ETag": tag, "X-Windtunnel-Key": asked.key, "X-Windtunnel-Cached": str(asked.cached).lower(),
        "Link": f'</api/v1/answers/{asked.key}>; rel="canonical"', "Cache-Control": "private, no-cache",
    }  # fmt: skip
    if known == tag:
        return Response(status_code=304, headers=headers)
    return Response(asked.bytes, 200, headers, asked.media)


def _json(table: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(
        json.dumps(table, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace"), status, headers, "application/json"
    )


def _asker(request: Request) -> Asker:
    asker: Asker = request.scope["state"][ASKER]
    return asker


def _require_job(job: JobView | None) -> JobView:
    if job is None:
        raise RequestError(404, "NoJob", "no job of this id is known.")
    return job


def _job_id(request: Request) -> str:
    return str(request.path_params["job"])[:64]


def _number(request: Request, name: str, otherwise: int | None, most: int) -> int | None:
    text = request.query_params.get(name)
    if text is None:
        return otherwise
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and 1 <= int(text) <= most):
        raise RequestError(400, "BadQuery", f"{name} is a whole number from 1 to {most}.")
    return int(text)


def _wait(request: Request, otherwise: float) -> float:
    """The seconds of `Prefer: wait=N`, and of `respond-async` none."""
    prefer = request.headers.get("prefer", "")
    found = re.search(r"\bwait\s*=\s*\"?(\d{1,6}(?:\.\d{1,3})?)", prefer)
    if found is not None:
        return float(found[1])
    return 0.0 if "respond-async" in prefer else otherwise


async def _body(request: Request, most: int) -> dict[str, Any]:
    """The object of a request. RequestError for a body that is none."""
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > most:
        raise too_large(most)
    kind = request.headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise RequestError(415, "WrongMedia", "a question is JSON.", "Send the header Content-Type: application/json.")
    raw = b"".join([part async for part in request.stream()])
    return await asyncio.to_thread(parse_object, raw)


def parse_object(raw: bytes) -> dict[str, Any]:
    """A JSON object of bounded depth, without what JSON does not have (NaN, Infinity). RequestError for anything else."""
    try:
        found = json.loads(raw.decode("utf-8") or "{}", parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise RequestError(400, "BadJson", f"the body is no JSON: {why}.") from error
    if not isinstance(found, dict):
        raise RequestError(400, "BadJson", "the body is no JSON object.", 'Send an object such as {"job": "llama3-8b-8xh100"}.')
    if _too_deep(found):
        raise RequestError(400, "BadJson", f"the body is nested more than {_DEPTH} deep.")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")


def _too_deep(value: Any) -> bool:
    level = [value]
    for _ in range(_DEPTH):
        level = [
            inner
            for one in level
            if isinstance(one, (dict, list))
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


async def _http_error(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    kinds = {404: ("NoPath", "there is nothing at this path."), 405: ("WrongMethod", "this path does not take this method.")}
    kind, message = kinds.get(status, ("Refused", "the request was refused."))
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    return table_response(status, error_table(kind, message), headers)


async def _fault(request: Request, error: Exception) -> Response:
    return table_response(500, error_table("InternalError", "the service met a fault of its own; its log says where."))
