"""JSON Schema of a job file, for editors and form generators."""

from __future__ import annotations

from typing import Any

from windtunnel.spec.job import Job
from windtunnel.spec.loading.files import names

_KIND_OF = {
    "Model": "models",
    "Cluster": "clusters",
    "Node": "nodes",
    "Fabric": "fabrics",
    "GPU": "gpus",
    "Runtime": "frameworks",
    "Reliability": "reliability",
}


def schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of what `load_job` accepts: nouns may be names; tables may have a `base` and leave fields to it."""
    schema = Job.model_json_schema()
    for title, kind in _KIND_OF.items():
        noun = schema["$defs"][title]
        noun["properties"]["base"] = _base(kind)
        noun.pop("required", None)
        by_name = {"type": "string", "examples": list(names(kind)), "title": f"{title} by name"}
        schema["$defs"][title] = {"anyOf": [by_name, noun]}
    schema["$defs"]["Duration"] = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}, schema["$defs"]["Duration"]]}
    schema["$defs"]["Host"].pop("required", None)
    schema["$defs"]["Plan"].pop("required", None)
    schema["properties"]["base"] = _base("jobs")
    schema.pop("required", None)
    return schema


def _base(kind: str) -> dict[str, Any]:
    return {"type": "string", "examples": list(names(kind)), "description": "catalogue entry to start from"}
