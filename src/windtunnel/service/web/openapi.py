"""The OpenAPI description of the service, derived from the verbs' own options."""

from __future__ import annotations

from typing import Any

from windtunnel.service.questions.offered import AskedOption, OfferedVerb, offered_verbs

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
