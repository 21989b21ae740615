"""Files of `deploy/`: Kubernetes' own schema takes the manifests, and what they name exists."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from windtunnel.service.web.guard import HEALTH_PATHS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
MANIFESTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "windtunnel.yaml").read_text(encoding="utf-8")))


def options() -> set[str]:
    """Options of `windtunnel serve`."""
    import typer

    from windtunnel.cli import app

    serve = typer.main.get_command(app).get_command(None, "serve")  # type: ignore[attr-defined,arg-type]
    return {option for parameter in serve.params for option in parameter.opts}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: str(manifest["kind"]))
def test_the_schema_of_kubernetes_takes_it(manifest: dict[str, Any]) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(manifest, "1.30", strict=True)


def test_the_manifests_fit_together() -> None:
    claim, deployment, service = MANIFESTS
    pod = deployment["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert volumes["kept"]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert deployment["spec"]["selector"]["matchLabels"] == pod["metadata"]["labels"] == service["spec"]["selector"]
    assert {container["readinessProbe"]["httpGet"]["path"], container["livenessProbe"]["httpGet"]["path"]} == set(HEALTH_PATHS)
    assert {word for word in container["args"] if word.startswith("--")} <= options()
    assert container["ports"][0]["containerPort"] == 8480 and not container["securityContext"]["allowPrivilegeEscalation"]


def test_the_unit_and_the_container_start_what_is_there() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "windtunnel.service", encoding="utf-8")
    started = unit["Service"]["ExecStart"]
    container = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
    entry = container[container.index("ENTRYPOINT") :]
    for text in (started, entry):
        assert "serve" in text and set(re.findall(r"--[a-z-]+", text)) <= options()
    assert re.findall(r"^ARG PYTHON=(\S+)", container, re.MULTILINE) == ["docker.io/library/python:3.12-slim"]
    assert re.findall(r"^FROM (\S+)", container, re.MULTILINE) == ["${PYTHON}"] * 2
