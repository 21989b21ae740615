"""The JobSet manifest: its fields by a statement of the used part of the schema, and by the CRD itself where CRD names its file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from windtunnel.base.errors import SpecError
from windtunnel.cli import app
from windtunnel.fleet.engines.kubernetes import JobSetRequest, jobset, jobset_text

ASKED = JobSetRequest("llama", "registry/train:1", 4, ("torchrun", "train.py", "--text", "a b; c"), spares=1)

USED: Any = {
    "apiVersion": str, "kind": str, "metadata": {"name": str},
    "spec": {
        "network": {"enableDNSHostnames": bool, "subdomain": str, "publishNotReadyAddresses": bool},
        "successPolicy": {"operator": str, "targetReplicatedJobs": [str]},
        "failurePolicy": {"maxRestarts": int},
        "replicatedJobs": [{
            "name": str, "replicas": int,
            "template": {"spec": {
                "parallelism": int, "completions": int, "completionMode": str, "backoffLimit": int,
                "template": {"spec": {
                    "restartPolicy": str, "affinity": dict,
                    "containers": [{
                        "name": str, "image": str, "command": [str], "args": [str], "env": [{"name": str, "valueFrom": dict}],
                        "ports": [{"containerPort": int}], "resources": {"limits": dict},
                        "volumeMounts": [{"name": str, "mountPath": str}],
                    }],
                    "volumes": [{"name": str, "emptyDir": dict, "persistentVolumeClaim": {"claimName": str}}],
                }},
            }},
        }],
    },
}  # fmt: skip
"""The part of jobset.x-k8s.io/v1alpha2 that is used, by name and type."""


def conforms(value: Any, schema: Any, at: str = "") -> None:
    if isinstance(schema, dict):
        assert isinstance(value, dict), at
        for name, each in value.items():
            assert name in schema, f"{at}.{name}"
            conforms(each, schema[name], f"{at}.{name}")
    elif isinstance(schema, list):
        assert isinstance(value, list), at
        for each in value:
            conforms(each, schema[0], f"{at}[]")
    else:
        assert type(value) is schema, at


def test_only_fields_of_the_schema_are_used() -> None:
    conforms(yaml.safe_load(jobset_text(ASKED)), USED)
    assert yaml.safe_load(jobset_text(ASKED)) == jobset(ASKED)


@pytest.mark.skipif("CRD" not in os.environ, reason="CRD names no file of kubernetes-sigs/jobset's config/components/crd/bases")
def test_the_crd_accepts_it() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    crd = yaml.safe_load(Path(os.environ["CRD"]).read_text())
    (version,) = (one for one in crd["spec"]["versions"] if one["name"] == "v1alpha2")
    schema = strict(version["schema"]["openAPIV3Schema"])
    jsonschema.validate(jobset(ASKED), schema)
    wrong = jobset(ASKED)
    wrong["spec"]["replicatedJobs"][0]["template"]["spec"]["paralelism"] = 1
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def strict(schema: Any) -> Any:
    """The schema with unknown fields refused, as the API server warns of them, and Kubernetes' own types written out."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    made = {key: strict(each) for key, each in schema.items() if not key.startswith("x-kubernetes")}
    if isinstance(schema.get("properties"), dict) and schema["properties"] and schema.get("type") == "object":
        made["additionalProperties"] = False
    return made


def test_pods_of_nodes_and_spares_with_the_driver_by_name() -> None:
    driver, agents = jobset(ASKED)["spec"]["replicatedJobs"]
    assert agents["template"]["spec"]["parallelism"] == agents["template"]["spec"]["completions"] == 5
    arguments = agents["template"]["spec"]["template"]["spec"]["containers"][0]["args"]
    assert arguments[arguments.index("--driver") + 1] == "llama-driver-0-0.llama:8480"
    assert driver["template"]["spec"]["parallelism"] == 1


def test_the_command_is_an_argument_list_and_no_secret_is_in_the_manifest() -> None:
    driver, agents = (one["template"]["spec"]["template"]["spec"] for one in jobset(ASKED)["spec"]["replicatedJobs"])
    assert driver["containers"][0]["args"][-4:] == ["torchrun", "train.py", "--text", "a b; c"]
    assert "/run/windtunnel/llama/driver/secrets.json" in agents["containers"][0]["args"]
    assert "kind: Secret" not in jobset_text(ASKED)


def test_the_verb_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "jobset.yaml"
    words = [
        "fleet",
        "jobset",
        "llama",
        "--image",
        "i",
        "--nodes",
        "4",
        "--spares",
        "1",
        "--out",
        str(file),
        "--",
        "python",
        "t.py",
    ]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 0, ran.output
    assert yaml.safe_load(file.read_text()) == jobset(JobSetRequest("llama", "i", 4, ("python", "t.py"), spares=1))


def test_the_programs_know_the_options_of_the_pods() -> None:
    """Of the driver by its verb's help; of the agent by its parser, which is asked in a process of its own."""
    known = CliRunner().invoke(app, ["fleet", "run", "--help"]).output
    agent = subprocess.run(
        [sys.executable, "-m", "windtunnel.fleet.agent", "--help"], capture_output=True, text=True, check=True
    ).stdout
    for one, help_text in zip(jobset(ASKED)["spec"]["replicatedJobs"], (known, agent), strict=True):
        arguments = one["template"]["spec"]["template"]["spec"]["containers"][0]["args"]
        ours = arguments[: arguments.index("--")] if "--" in arguments else arguments
        for option in (word for word in ours if word.startswith("--")):
            assert option in help_text


@pytest.mark.parametrize(
    "change", [{"name": "Llama"}, {"name": "a" * 41}, {"nodes": 0}, {"spares": -1}, {"command": ()}], ids=lambda one: str(one)[:24]
)
def test_what_kubernetes_would_refuse_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        JobSetRequest(**{"name": "llama", "image": "i", "nodes": 2, "command": ("true",), **change})
