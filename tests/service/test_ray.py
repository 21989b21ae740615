"""A Ray cluster as the workers of a service: one of this machine, which the test starts and ends with the service."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.service.served import ServedProcess, error_of
from windtunnel.cli import main

pytest.importorskip("ray")
pytestmark = pytest.mark.ray


def test_a_ray_cluster_gives_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["predict", "llama3-8b-8xh100", "--json", "-"]) == 0
    wanted = capsys.readouterr().out.encode()
    with ServedProcess(tmp_path / "kept", workers="ray:local") as service:
        status, _, data = service.ready().ask("predict", job="llama3-8b-8xh100", files={"note": "x"})
        if status == 202:
            job = service.until(json.loads(data)["id"], "done")
            status, _, data = service.send("GET", job["answer"])
        assert (status, data) == (200, wanted)
        refused = service.ask("predict", job="job.toml", files={"job.toml": 'base = "/etc/passwd"'})
        assert refused[0] == 202 or error_of(refused)["kind"] in ("UnknownName", "FileError")
