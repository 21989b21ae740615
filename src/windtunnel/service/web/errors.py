"""Errors as HTTP tells them: the message of the command line, in parts, with a status; never a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from windtunnel.base.errors import SpecError, UnknownName, WindtunnelError
from windtunnel.service.door import AnswerError
from windtunnel.service.store.database import StoreFull
from windtunnel.service.store.queue import QueueFull, QuotaSpent, error_table
from windtunnel.service.work.outcome import explain

STATUS = {"UsageError": 422, "StoreFull": 507, "QueueFull": 503, "Cancelled": 409, "InternalError": 500, "WorkerLost": 500,
          "WorkerEnded": 500, "WorkerKilled": 422, "UploadLost": 409, "Lost": 409}  # fmt: skip
"""Kind of an error -> its status; 422 for the others."""


class RequestError(Exception):
    """A request that is refused before it is a question."""

    def __init__(self, status: int, kind: str, message: str, instead: str = "", headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.table, self.headers = status, error_table(kind, message, instead=instead), dict(headers or {})


def error_response(error: Exception) -> Response:
    """The response for an error of a question or of a request."""
    if isinstance(error, RequestError):
        return table_response(error.status, error.table, error.headers)
    if isinstance(error, AnswerError):
        return table_response(STATUS.get(str(error.table.get("kind")), 422), error.table)
    if isinstance(error, StoreFull):
        return table_response(507, error_table("StoreFull", str(error)), {"Retry-After": "60"})
    if isinstance(error, QueueFull):
        return table_response(503, error_table("QueueFull", str(error)), {"Retry-After": "10"})
    if isinstance(error, QuotaSpent):
        return table_response(429, error_table("QuotaSpent", str(error)), {"Retry-After": str(max(1, round(error.wait)))})
    if isinstance(error, UnknownName) and error.path == "verb":
        return table_response(404, explain(error))
    if isinstance(error, (SpecError, WindtunnelError)):
        return table_response(422, explain(error))
    raise error


def table_response(status: int, table: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Response:
    """{"error": table} with a status."""
    text = json.dumps({"error": dict(table)}, ensure_ascii=False, sort_keys=True)
    data = text.encode("utf-8", "replace") + b"\n"
    return Response(data, status, dict(headers or {}), "application/json")
