"""Does every model of the catalogue run, and does its graph hold as many parameters as were published?"""

from __future__ import annotations

import pytest

from windtunnel.predict import predict
from windtunnel.spec import load_job, load_model, names
from windtunnel.workload import build, parameter_count

FAMILIES = {
    "dense": "llama3-8b",
    "grouped queries and biases": "qwen2.5-7b",
    "parallel block": "palm-8b",
    "windows": "gemma3-4b",
    "experts": "mixtral-8x7b",
    "shared experts and latent attention": "deepseek-v2-lite",
    "further tokens": "deepseek-v3",
    "attention sinks": "gpt-oss-20b",
    "experts in every second layer": "llama4-maverick",
    "norms after": "grok-1",
    "one sub-module a layer": "nemotron-h-8b",
    "Mamba-2 and experts": "nemotron-3-nano-30b-a3b",
    "narrow experts": "nemotron-3-super-120b-a12b",
    "gated delta rule": "qwen3-next-80b-a3b",
    "Kimi delta attention": "kimi-linear-48b-a3b",
    "images": "qwen2.5-vl-7b",
    "a frozen encoder": "llava-1.5-7b",
}


def job_of(name: str) -> list[str]:
    model = load_model(name)
    ep = 8 if model.experts else 1
    return [f"model={name}", "plan.seq=1024", f"plan.ep={ep}", "plan.recompute=none"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_of_each_family_is_predicted(family: str) -> None:
    found = predict(load_job("llama3-8b-8xh100", job_of(FAMILIES[family]) + (["plan.seq=2048"] if family == "images" else [])))
    assert 0 < found.mfu < 1
    assert sum(found.breakdown.values()) == pytest.approx(found.step_time_s)


@pytest.mark.parametrize("name", names("models"))
def test_the_graph_holds_the_published_parameters(name: str) -> None:
    """Of one GPU with all layers: the same as counted apart from the graph."""
    model = load_model(name)
    overrides = [f"model={name}", "plan.seq=2048" if model.vision else "plan.seq=512", "runtime.pad_vocab=1", "model.mtp_layers=0"]
    workload = build(load_job("llama3-8b-8xh100", [*overrides, "plan.recompute=none"]))
    held = workload.stage_parameters[0] + workload.stage_frozen[0]
    assert held == pytest.approx(parameter_count(model), rel=1e-4)
