"""Requests that the description of the service allows, and some that it does not: none is a fault of the service.

Some hundreds in `make test`; `make fuzz-service` sends 100,000.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path

import pytest

from tests.service.served import ServedProcess

schemathesis = pytest.importorskip("schemathesis")
REQUESTS = int(os.environ.get("SERVICE_REQUESTS", "400"))


def test_no_request_is_a_fault(tmp_path: Path) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis.errors import Unsatisfiable
    from schemathesis import GenerationMode

    options = ["--per-minute", "100000000", "--job-seconds", "2", "--job-memory", "1GB"]
    with ServedProcess(tmp_path / "kept", options) as service:
        service.ready()
        schema = schemathesis.openapi.from_url(f"{service.url}/api/v1/openapi.json")
        operations = [found.ok() for found in schema.get_all_operations()]
        assert len(operations) > 40
        sent, faults = 0, []
        each = max(2, REQUESTS // (2 * len(operations)))
        for operation in operations:
            for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

                @given(case=operation.as_strategy(generation_mode=mode))
                @settings(
                    max_examples=each, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                    suppress_health_check=list(HealthCheck),
                )  # fmt: skip
                def send(case: object) -> None:
                    nonlocal sent
                    answer = case.call(headers={"Prefer": "wait=0"}, timeout=60)  # type: ignore[attr-defined]
                    sent += 1
                    if answer.status_code >= 500 and answer.status_code != 503:
                        faults.append((answer.status_code, case.as_curl_command(), answer.content[:300]))  # type: ignore[attr-defined]

                with contextlib.suppress(Unsatisfiable):  # nothing can be wrong with a path that takes nothing
                    send()
        assert not faults, faults[:3]
        assert sent > REQUESTS / 4
        failed = settled(service)
        assert [job for job in failed if job["error"]["kind"] in ("InternalError", "WorkerEnded")] == []


def settled(service: ServedProcess) -> list[dict[str, object]]:
    """The jobs that failed, when none waits any more; those that are left after a while are cancelled."""
    until = time.monotonic() + 20.0
    while True:
        left = [
            job["id"]
            for state in ("queued", "running")
            for job in json.loads(service.send("GET", f"/api/v1/jobs?state={state}&limit=200")[2])["jobs"]
        ]
        if not left:
            break
        if time.monotonic() > until:
            for job in left:
                service.send("DELETE", f"/api/v1/jobs/{job}")
        time.sleep(0.2)
    failed: list[dict[str, object]] = []
    following = ""
    while True:
        page = json.loads(service.send("GET", f"/api/v1/jobs?state=failed&limit=200{following}")[2])
        failed += page["jobs"]
        if page["next"] is None:
            return failed
        following = f"&before={page['next']}"
