"""NVIDIA NIM's containers as jobs: `docker run`, Compose, Kubernetes, its operator's services and Helm's values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from windtunnel.base.errors import WindtunnelError
from windtunnel.formats.jobs.servers.launch import read_launch
from windtunnel.jobs.load import load_described_job

HEAD = "docker run -it --rm --shm-size=16GB -e NGC_API_KEY -v $CACHE:/opt/nim/.cache -u $(id -u) -p 8000:8000"
SERVICE = """apiVersion: apps.nvidia.com/v1alpha1
kind: NIMService
metadata: {name: llama, namespace: nim}
spec:
  image: {repository: nvcr.io/nim/meta/llama-3.1-8b-instruct, tag: "1.3.3"}
  authSecret: ngc-api-secret
  replicas: 2
  resources: {limits: {nvidia.com/gpu: 1}}
  env: [{name: NIM_MAX_MODEL_LEN, value: "16384"}]
"""
VALUES = """image: {repository: nvcr.io/nim/mistralai/mixtral-8x7b-instruct-v01, tag: 2.0.1}
model: {ngcAPISecret: ngc-api}
resources: {limits: {nvidia.com/gpu: 4}}
env: [{name: NIM_PIPELINE_PARALLEL_SIZE, value: "1"}]
"""
COMPOSE = """services:
  nim:
    image: nvcr.io/nim/deepseek-ai/deepseek-r1:1.7.2
    environment: ["NGC_API_KEY=x", "NIM_MODEL_PROFILE=sglang-h200-bf16-tp8-pp2"]
    ports: ["8000:8000"]
"""
FORMS: dict[str, tuple[str, dict[str, Any], str]] = {
    "plain.sh": (f"{HEAD} --gpus all nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8.4\n",
                 {"model": "llama-3.1-8b-instruct", "engine": "trtllm"}, "NIM 1 prefers"),
    "cards.sh": (f"{HEAD} --gpus '\"device=0,1\"' -e NIM_MAX_MODEL_LEN=32768 -e NIM_KVCACHE_PERCENT=0.85 "
                 "nvcr.io/nim/meta/llama-3.3-70b-instruct:latest\n",
                 {"engine": "vllm", "tp": 2, "max_model_len": 32768, "memory": 0.85}, "the container's GPUs (2)"),
    "any_model.sh": (f"export NIM_TENSOR_PARALLEL_SIZE=4\n{HEAD} --gpus=all -e NIM_MODEL_PATH=hf://Qwen/Qwen3-8B "
                     "-e NIM_TENSOR_PARALLEL_SIZE nvcr.io/nim/nvidia/llm-nim:2.0.1 nim-serve --gpu-memory-utilization 0.9\n",
                     {"model": "Qwen/Qwen3-8B", "engine": "vllm", "tp": 4, "memory": 0.9}, "NIM 2 is built on vLLM"),
    "profile.sh": (f"{HEAD} --gpus all -e NIM_MODEL_PROFILE=tensorrt_llm-h100-fp8-tp4-pp1-throughput -e NIM_LOW_MEMORY_MODE=1 "
                   "nvcr.io/nim/meta/llama-3.1-70b-instruct:1.3.3\n",
                   {"engine": "trtllm", "tp": 4, "pp": 1}, "not modelled: NIM_LOW_MEMORY_MODE"),
    "passed.sh": (f"{HEAD} --gpus 8 -e NIM_PASSTHROUGH_ARGS=\"--tensor-parallel-size 8 --max-num-seqs 64\" "
                  "-e NIM_DISABLE_CUDA_GRAPH=1 -e NIM_MAX_GPU_LORAS=8 nvcr.io/nim/openai/gpt-oss-120b:2.1.0\n",
                  {"model": "gpt-oss-120b", "tp": 8, "running": 64, "eager": True}, "not modelled: NIM_MAX_GPU_LORAS"),
    "podman.sh": ("podman run --device nvidia.com/gpu=all --env=NIM_TENSOR_PARALLEL_SIZE=2 nvcr.io/nim/qwen/qwen3-32b:2.0.4\n",
                  {"model": "qwen3-32b", "tp": 2, "engine": "vllm"}, "no engine is named"),
    "service.yaml": (SERVICE, {"tp": 1, "max_model_len": 16384, "copies": 2, "engine": "trtllm"}, "fp8 where its image has one"),
    "values.yaml": (VALUES, {"tp": 4, "pp": 1, "engine": "vllm", "model": "mixtral-8x7b-instruct-v01"}, "the container's GPUs (4)"),
    "compose.yaml": (COMPOSE, {"engine": "sglang", "tp": 8, "pp": 2, "model": "deepseek-r1"}, ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_container_is_a_server(name: str, tmp_path: Path) -> None:
    text, fields, note = FORMS[name]
    (tmp_path / name).write_text(text, encoding="utf-8")
    found = read_launch(tmp_path / name)
    assert found is not None and {key: found.fields.get(key) for key in fields} == fields
    assert note in "\n".join(found.notes(name))
    assert found.quantization == ("fp8" if name == "profile.sh" else "")
    with pytest.raises(WindtunnelError, match="serve-predict"):
        load_described_job(str(tmp_path / name), None, "h100-ib")


def test_a_container_is_answered(tmp_path: Path) -> None:
    (tmp_path / "nim.sh").write_text(FORMS["cards.sh"][0], encoding="utf-8")
    found = wt.serve_predict(tmp_path / "nim.sh", "h200-ib", isl=128, osl=8, concurrency=2, requests=2)
    assert (found.server.model.name, found.server.plan.tp, found.server.engine.name) == ("llama3.1-70b", 2, "vllm")
    assert any("NIM 2 is built on vLLM" in note for note in found.notes)


@pytest.mark.parametrize(
    "text",
    [
        f"{HEAD} -e NIM_TENSOR_PARALLEL_SIZE=two nvcr.io/nim/meta/llama-3.1-8b-instruct:2.0\n",
        f"{HEAD} nvcr.io/nim/nvidia/llm-nim\n",
    ],
)
def test_a_damaged_line_is_told(text: str, tmp_path: Path) -> None:
    (tmp_path / "nim.sh").write_text(text, encoding="utf-8")
    with pytest.raises(WindtunnelError):
        wt.serve_predict(tmp_path / "nim.sh", "h100-ib")
