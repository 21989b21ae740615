"""Lines, scripts and manifests that start inference servers, as served jobs, and served jobs as such lines."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path
from typing import Any

import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import windtunnel as wt
from windtunnel.api.serving import export_server
from windtunnel.base.errors import SpecError, WindtunnelError
from windtunnel.cli import main
from windtunnel.exports.servers import TOOLS, launch_script
from windtunnel.formats.jobs.servers.launch import read_launch, server_tools, started_tool
from windtunnel.jobs.load import load_described_job
from windtunnel.serving.options import ServeOptions
from windtunnel.serving.server import ServePlan, server_of
from windtunnel.serving.speculation import speculation_of
from windtunnel.spec import load_model

QWEN = "Qwen/Qwen3-30B-A3B"
K8S = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: qwen}
spec:
  replicas: 2
  template:
    spec:
      containers:
      - name: server
        image: vllm/vllm-openai:v0.24.0
        args: ["--model", "$(MODEL)", "--tensor-parallel-size=4", "--enable-expert-parallel", "--kv-cache-dtype", "fp8"]
        env: [{name: MODEL, value: Qwen/Qwen3-30B-A3B}]
        resources: {limits: {nvidia.com/gpu: "4"}}
"""
SHELL = """
apiVersion: v1
kind: Pod
spec:
  containers:
  - image: registry.example/any:1
    command: [/bin/bash, -c]
    args:
    - |
      export TP=4
      vllm serve Qwen/Qwen3-30B-A3B --tensor-parallel-size $TP --enable-expert-parallel --kv-cache-dtype fp8
"""
COMPOSE = """
services:
  server:
    image: lmsysorg/sglang:latest
    entrypoint: python3 -m sglang.launch_server
    command: --model-path Qwen/Qwen3-30B-A3B --tp 4 --ep-size 4 --kv-cache-dtype fp8_e4m3
"""
DYNAMO = """
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
spec:
  services:
    Frontend: {replicas: 1, extraPodSpec: {mainContainer: {image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7}}}
    VllmPrefillWorker:
      replicas: 2
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-30B-A3B, --tensor-parallel-size, "2", --is-prefill-worker]
    VllmDecodeWorker:
      replicas: 1
      extraPodSpec:
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:0.7
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-30B-A3B, --tensor-parallel-size, "4", --enable-expert-parallel, --kv-cache-dtype, fp8]
"""
EP4 = {"model": QWEN, "tp": 4, "ep": 4, "kv": "fp8"}

FORMS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "vllm serve": (f"vllm serve {QWEN} -tp 4 --enable-expert-parallel --kv-cache-dtype fp8\n", "vllm", EP4),
    "a module": (
        f"python -m vllm.entrypoints.openai.api_server --model={QWEN} --tensor-parallel-size=4 --enable-expert-parallel "
        "--kv-cache-dtype=fp8_e4m3 --port 8000\n",
        "vllm", EP4,
    ),
    "docker": (
        f"docker run --gpus all -v ~/.cache:/root/.cache -p 8000:8000 --ipc=host vllm/vllm-openai:latest --model {QWEN} "
        "--tensor-parallel-size 4 --enable-expert-parallel --kv-cache-dtype fp8\n",
        "vllm", EP4,
    ),
    "srun and variables": (
        f"#!/bin/bash\n#SBATCH --nodes=1\nexport MODEL_ID={QWEN}\nTP=4\nARGS=(--kv-cache-dtype fp8 --enable-expert-parallel)\n"
        "srun --ntasks=1 vllm serve $MODEL_ID --tensor-parallel-size ${TP} ${ARGS[@]}\n",
        "vllm", EP4,
    ),
    "sglang": (f"python3 -m sglang.launch_server --model-path {QWEN} --tp 4 --ep-size 4 --kv-cache-dtype fp8_e5m2\n",
               "sglang", EP4),
    "sglang in docker": (
        f"docker run --gpus all lmsysorg/sglang:latest python3 -m sglang.launch_server --model-path {QWEN} --tp 4 --ep 4 "
        "--kv-cache-dtype fp8_e4m3 --host 0.0.0.0\n",
        "sglang", EP4,
    ),
    "trtllm-serve with its YAML": (
        "cat > extra.yaml <<EOF\nkv_cache_config:\n  dtype: fp8\n  free_gpu_memory_fraction: 0.8\ncuda_graph_config:\n"
        f"  enable_padding: true\nEOF\nmpirun -n 4 trtllm-llmapi-launch trtllm-serve {QWEN} --tp_size 4 --ep_size 4 "
        "--extra_llm_api_options extra.yaml\n",
        "trtllm", {**EP4, "memory": 0.8, "graphs": "128+", "whole_prompts": True},
    ),
    "dynamo": (f"python -m dynamo.frontend &\npython -m dynamo.vllm --model {QWEN} --tensor-parallel-size 4 "
               "--enable-expert-parallel --kv-cache-dtype fp8\n", "vllm", EP4),
    "lmdeploy": (f"lmdeploy serve api_server {QWEN} --tp 4 --ep 4 --quant-policy 8 --server-port 23333\n", "lmdeploy", EP4),
    "tgi": (f"text-generation-launcher --model-id {QWEN} --num-shard 4 --kv-cache-dtype fp8_e4m3fn\n", "tgi",
            {"model": QWEN, "tp": 4, "kv": "fp8"}),
    "kubernetes": (K8S, "vllm", {**EP4, "copies": 2, "release": "0.24.0"}),
    "a pod with a shell": (SHELL, "vllm", EP4),
    "compose": (COMPOSE, "sglang", EP4),
    "dynamo's graph": (DYNAMO, "vllm", {**EP4, "prefill": "gpus=4,tp=2"}),
}  # fmt: skip
WRITTEN = tomllib.loads(Path(__file__).with_name("server_texts.toml").read_text(encoding="utf-8"))
FORMS |= {name: (said["text"], said["tool"], said["fields"]) for name, said in WRITTEN.items()}


def _file_of(form: str, folder: Path) -> Path:
    text = FORMS[form][0]
    name = "start.yaml" if "apiVersion" in text or "services:" in text else "start.sh"
    path = folder / WRITTEN.get(form, {}).get("file", name)
    path.write_text(text)
    return path


BALANCED = (
    "cat > extra.yaml <<EOF\nenable_attention_dp: true\nattention_dp_config:\n  enable_balance: {balance}\n{more}EOF\n"
    "trtllm-serve " + QWEN + " --tp_size 4 --extra_llm_api_options extra.yaml\n"
)


def test_flags_of_the_servers_of_prompts_are_listed() -> None:
    """Their degrees are read; what they state else, and the other side does not, is said to be left out."""
    start = "python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2"
    front = f"{start} --disaggregation-mode prefill --chunked-prefill-size 65536 --page-size 64 --max-running-requests 9"
    found = read_launch(f"{front} &\n{start} --disaggregation-mode decode --max-running-requests 9\n")
    assert found is not None and (found.fields["prefill"], found.fields["running"]) == ("gpus=2,tp=2", 9)
    assert found.ignored[-2:] == ["not modelled: --page-size", "not modelled of the servers of prompts: step_tokens 65536"]


@pytest.mark.parametrize(
    "balance, more, polls", [("true", "  timeout_iters: 60\n", 60), ("true", "", 50), ("false", "  timeout_iters: 60\n", None)]
)
def test_ranks_that_balance_prompts_wait_for_them(balance: str, more: str, polls: int | None, tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    path.write_text(BALANCED.format(balance=balance, more=more))
    found = read_launch(path)
    assert found is not None and found.fields["dp"] == 4 and found.fields.get("polls") == polls


@pytest.mark.parametrize(
    "text",
    [
        f"vllm serve {QWEN} -tp 4 --no-async-scheduling\n",
        f"python3 -m sglang.launch_server --model-path {QWEN} --tp 4 --disable-overlap-schedule\n",
        f"cat > extra.yaml <<EOF\ndisable_overlap_scheduler: true\nEOF\ntrtllm-serve {QWEN} --tp_size 4 --config extra.yaml\n",
    ],
)
def test_lines_say_that_nothing_is_scheduled_ahead(text: str, tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    path.write_text(text)
    found = read_launch(path)
    assert found is not None and found.fields["sync"] is True and not any("overlap" in line for line in found.ignored)


@pytest.mark.parametrize(
    ("flag", "fields", "ignored"),
    [
        ('--compilation-config \'{"cudagraph_mode": "FULL_DECODE_ONLY"}\'', {"graphs": "decodes"}, ""),
        ("-O.cudagraph_mode=FULL_DECODE_ONLY", {"graphs": "decodes"}, ""),
        (
            '--compilation-config \'{"cudagraph_mode": "FULL_AND_PIECEWISE", "max_cudagraph_capture_size": 1024}\'',
            {"graphs": "1024+"},
            "",
        ),
        ('--compilation-config \'{"cudagraph_mode": "NONE", "pass_config": {}}\'', {"eager": True}, "pass_config"),
        ("--max-cudagraph-capture-size 2048", {"graphs": "2048+"}, ""),
        ("--compilation-config 3", {}, "--compilation-config"),
    ],
)
def test_which_passes_vllm_captures_is_read(flag: str, fields: dict[str, object], ignored: str) -> None:
    found = read_launch(f"vllm serve Qwen/Qwen3-4B --tensor-parallel-size 1 {flag}")
    assert found is not None
    assert {key: found.fields[key] for key in ("graphs", "eager") if key in found.fields} == fields
    assert ignored in " ".join(found.ignored) and bool(ignored) == bool(found.ignored)


@pytest.mark.parametrize(
    ("options", "graphs", "whole"),
    [
        ("enable_padding: true, max_batch_size: 512", "512+", True),
        ("batch_sizes: [4, 1, 16]", "1,4,16", True),
        ("max_batch_size: 3", "1,2,3", True),
        ("enable_padding: true, batch_sizes: [1, 64]", "64+", False),
    ],
)
def test_options_of_tensorrt_llm_say_its_graphs_and_chunks(options: str, graphs: str, whole: bool, tmp_path: Path) -> None:
    (tmp_path / "extra.yaml").write_text(f"cuda_graph_config: {{{options}}}\nenable_chunked_prefill: {not whole}\n")
    path = tmp_path / "start.sh"
    path.write_text(f"trtllm-serve {QWEN} --tp_size 4 --config extra.yaml\n")
    found = read_launch(path)
    assert found is not None and found.fields["graphs"] == graphs and found.fields.get("whole_prompts", False) is whole


@pytest.mark.parametrize("sizes", ["[1, two]", "8", "[0]", "['4']"])
def test_graphs_of_tensorrt_llm_that_are_no_batches_are_refused(sizes: str, tmp_path: Path) -> None:
    (tmp_path / "extra.yaml").write_text(f"cuda_graph_config:\n  batch_sizes: {sizes}\n")
    path = tmp_path / "start.sh"
    path.write_text(f"trtllm-serve {QWEN} --tp_size 4 --config extra.yaml\n")
    with pytest.raises(SpecError, match="batch_sizes"):
        read_launch(path)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_is_read(form: str, tmp_path: Path) -> None:
    _, tool, expected = FORMS[form]
    found = read_launch(_file_of(form, tmp_path))
    assert found is not None and found.tool.name == tool
    said = {key: value for key, value in found.fields.items() if key not in ("engine",)}
    assert said == expected
    assert not any(line.startswith("not known") for line in found.ignored)


LOADS = ((128, 128, 1), (1024, 256, 16), (4096, 128, 4), (256, 1024, 64), (8192, 64, 2))


@pytest.mark.parametrize(("form", "load"), list(itertools.product(FORMS, LOADS)))
def test_a_line_answers_as_its_options(form: str, load: tuple[int, int, int], tmp_path: Path) -> None:
    """The same answer as the options that it says, load by load."""
    _, tool, expected = FORMS[form]
    isl, osl, users = load
    asked: dict[str, Any] = {"isl": isl, "osl": osl, "concurrency": users, "requests": 2 * users}
    from_line = wt.serve_predict(_file_of(form, tmp_path), "h100-ib", **asked)
    engine = next(one.engine for one in server_tools() if one.name == tool)
    said = {"tp": 1, **{key: value for key, value in expected.items() if key not in ("model", "copies")}}
    said["gpus"] = expected.get("copies", 1) * said["tp"] * said.get("dp", 1)
    stated = wt.serve_predict(expected["model"], "h100-ib", engine=engine, **said, **asked)
    assert from_line.tpot == stated.tpot and from_line.ttft == stated.ttft and from_line.room == stated.room
    assert "starts" in from_line.notes[0] and ("tp" not in expected or f"tp {expected['tp']}" in from_line.notes[0])


def test_what_is_stated_beats_the_line(tmp_path: Path) -> None:
    path = tmp_path / "start.sh"
    path.write_text("vllm serve Qwen/Qwen3-8B -tp 4 --max-num-seqs 8\n")
    answer = wt.serve_predict(path, "h100-ib", tp=2, isl=128, osl=16, concurrency=4, requests=4)
    assert answer.server.plan.tp == 2 and answer.server.engine.running == 8 and answer.server.job.cluster.gpus == 2


def test_the_client_beside_it_says_the_load(tmp_path: Path) -> None:
    path = tmp_path / "bench.sh"
    path.write_text(
        "vllm serve Qwen/Qwen3-8B &\nsleep 90\nvllm bench serve --model Qwen/Qwen3-8B --dataset-name random "
        "--random-input-len 2048 --random-output-len 256 --max-concurrency 32 --num-prompts 64 --random-range-ratio 0.5\n"
    )
    found = read_launch(path)
    assert found is not None
    load = {key: found.fields[key] for key in ("isl", "osl", "concurrency", "requests")}
    assert load == {"isl": "1024-3072", "osl": "128-384", "concurrency": 32, "requests": 64}


SGLANG = "python3 -m sglang.bench_serving --backend sglang"
OLD = "python benchmarks/benchmark_serving.py --backend vllm --model x"


@pytest.mark.parametrize(
    ("client", "load", "assumed"),
    [
        ("vllm bench serve --model x", {"isl": "1024", "osl": "128", "requests": 1000, "concurrency": 1000}, 3),
        ("vllm bench serve --model x --random-input-len 500 --random-output-len 9 --request-rate 4 --num-prompts 80",
         {"isl": "500", "osl": "9", "requests": 80, "rate": 4.0}, 0),
        ("vllm bench serve --model x --random-input-len 1000 --random-output-len 100 --random-range-ratio 0.2 --num-prompts 8",
         {"isl": "800-1200", "osl": "80-120", "requests": 8, "concurrency": 8}, 0),
        ("vllm bench serve --model x --dataset-name sharegpt --num-prompts 50 --request-rate inf",
         {"isl": "228~1.2<1024", "osl": "196~1.0<1024", "requests": 50, "concurrency": 50}, 1),
        (f"{SGLANG} --dataset-name random --random-input 1024 --random-output 256 --num-prompts 300 --request-rate 1",
         {"isl": "1-1024", "osl": "1-256", "requests": 300, "rate": 1.0}, 2),
        (f"{SGLANG} --dataset-name random --random-input 1024 --random-output 256 --random-range-ratio 1 --num-prompts 300",
         {"isl": "1024", "osl": "256", "requests": 300, "concurrency": 300}, 0),
        (f"{SGLANG} --dataset-name random --random-input 1024 --random-output 256 --random-range-ratio 0.5 --max-concurrency 9",
         {"isl": "512-1024", "osl": "128-256", "requests": 1000, "concurrency": 9}, 1),
        (SGLANG, {"isl": "228~1.2<1024", "osl": "196~1.0<1024", "requests": 1000, "concurrency": 1000}, 2),
        (f"{SGLANG} --dataset-name mmmu --num-prompts 20", {"requests": 20, "concurrency": 20}, 0),
        (f"{OLD} --dataset-name random --random-input-len 1024 --random-output-len 1024 --random-range-ratio 0.8 --num-prompts 40",
         {"isl": "819-1024", "osl": "819-1024", "requests": 40, "concurrency": 40}, 0),
        (f"{OLD} --dataset-path ShareGPT_V3_unfiltered_cleaned_split.json --sharegpt-output-len 64 --num-prompts 200",
         {"isl": "228~1.2<1024", "osl": "64", "requests": 200, "concurrency": 200}, 1),
        ("aiperf profile --model x --isl 1000 --isl-stddev 100 --osl 50 --concurrency 4 --request-count 40",
         {"isl": "1000~0.1", "osl": "50", "requests": 40, "concurrency": 4}, 0),
        ("python token_benchmark_ray.py --model x --max-num-completed-requests 20 --num-concurrent-requests 2",
         {"isl": "550~0.273", "osl": "150~0.533", "requests": 20, "concurrency": 2}, 2),
        ("guidellm benchmark --target x --rate-type concurrent --rate 8,64 --data 'prompt_tokens=512,output_tokens=128'",
         {"isl": "512", "osl": "128", "concurrency": 64}, 1),
        ("""guidellm benchmark run --profile poisson --rate 2.5 --max-requests 60 --data '{"prompt_tokens": 256, """
         """"output_tokens": 32, "output_tokens_stdev": 8}'""", {"isl": "256", "osl": "32~0.25", "requests": 60, "rate": 2.5}, 0),
        ("guidellm benchmark --rate-type sweep --max-seconds 30 --data prompt_tokens=256,output_tokens=128",
         {"isl": "256", "osl": "128"}, 0),
        ("evalscope perf --url x --parallel 1 10 50 --number 10 100 500 --rate -1", {"concurrency": 50}, 1),
    ],
)  # fmt: skip
def test_a_client_draws_what_no_flag_says(client: str, load: dict[str, Any], assumed: int) -> None:
    """What a benchmark draws by its own defaults is part of its load, and each is said."""
    found = read_launch(f"vllm serve Qwen/Qwen3-8B &\n{client}\n")
    assert found is not None
    assert {key: found.fields[key] for key in found.fields if key not in ("model", "engine")} == load
    assert sum(line.startswith("load: ") for line in found.assumed) == assumed


def test_every_flag_is_taken_or_listed() -> None:
    line = (
        "vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2 --cpu-offload-gb 10 --enable-lora --port 80 --served-model-name x "
        "--brand-new 3 --max-num-seqs 64\n"
    )
    found = read_launch(line)
    assert found is not None and found.fields["running"] == 64
    words = " ".join((*found.taken, *found.ignored))
    assert all(
        part in words for part in ("tp 2", "--cpu-offload-gb", "--enable-lora", "--port", "--served-model-name", "--brand-new")
    )
    assert [line.partition(":")[0] for line in found.ignored] == ["not modelled", "change nothing", "not known"]


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        ("python -m sglang.launch_server --model-path deepseek-ai/DeepSeek-R1 --tp 8 --dp-size 8 --enable-dp-attention",
         {"tp": 1, "dp": 8}),
        ("python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 --dp 4", {"tp": 2, "copies": 4}),
        ("python -m sglang.launch_server --model deepseek-ai/DeepSeek-R1 --tp 16 --moe-a2a-backend deepep", {"tp": 16, "ep": 16}),
        ("vllm serve deepseek-ai/DeepSeek-R1 --data-parallel-size 8 --enable-expert-parallel", {"dp": 8, "ep": 8}),
        ("vllm serve X/Qwen3-8B --max-model-len 32k --enforce-eager", {"max_model_len": 32000, "eager": True}),
        ("""vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "eagle3", "model": "a/b", "num_speculative_tokens": 3}'""",
         {"speculate": "eagle,drafts=3"}),
        ("vllm serve zai-org/GLM-4.5 --speculative-config.method mtp --speculative-config.num_speculative_tokens 1",
         {"speculate": "mtp,drafts=1"}),
        ("python -m sglang.launch_server --model x/Qwen3-8B --speculative-algorithm EAGLE3 --speculative-num-steps 3",
         {"speculate": "eagle,drafts=3"}),
        ("python -m sglang.launch_server --model x/DeepSeek-R1 --speculative-algorithm EAGLE --speculative-num-draft-tokens 3",
         {"speculate": "mtp,drafts=2"}),
        ("python -m sglang.launch_server --model x/DeepSeek-R1 --speculative-algorithm NEXTN", {"speculate": "mtp,drafts=3"}),
        ("python -m sglang.launch_server --model x/Qwen3-8B --speculative-algorithm NGRAM --speculative-num-draft-tokens 16",
         {"speculate": "ngram,drafts=15"}),
        ("""vllm serve Qwen/Qwen3-8B -sc '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'""",
         {"speculate": "ngram,drafts=5"}),
        ("python -m vllm.entrypoints.openai.api_server --model x/Qwen3-8B --speculative_model '[ngram]' --num_speculative_tokens 5",
         {"speculate": "ngram,drafts=5"}),
        ("vllm serve x/Qwen3-32B --speculative-model Qwen/Qwen3-0.6B --num-speculative-tokens 4",
         {"speculate": "draft=Qwen/Qwen3-0.6B,drafts=4"}),
        ("lmdeploy serve api_server x/DeepSeek-V3 --tp 8 --speculative-algorithm deepseek_mtp --speculative-num-draft-tokens 3",
         {"speculate": "mtp,drafts=3"}),
        ("python3 -m sglang.launch_server --model x/Qwen3-8B --mem-fraction 0.6 --tensor-par 2", {"memory": 0.6, "tp": 2}),
        ("""vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "suffix"}'""", {"speculate": "ngram,drafts=11"}),
        ("""vllm serve Qwen/Qwen3-8B --speculative-config '{"method": "dflash", "model": "z/d", "num_speculative_tokens": 7}'""",
         {"speculate": "eagle,drafts=7"}),
        ("""vllm serve Qwen/Qwen3-8B --speculative-config '{"model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 4}'""",
         {"speculate": "draft=Qwen/Qwen3-0.6B,drafts=4"}),
    ],
)  # fmt: skip
def test_degrees_and_drafts_of_each_tool(line: str, fields: dict[str, Any]) -> None:
    found = read_launch(line + "\n")
    assert found is not None
    assert {key: found.fields.get(key) for key in fields} == fields


def test_a_format_of_the_server_and_of_the_checkpoint(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"isl": 128, "osl": 8, "concurrency": 2, "requests": 2}
    online = wt.serve_predict("vllm serve Qwen/Qwen3-8B --quantization fp8", "h100-ib", **asked)
    assert online.server.weights == "fp8"
    own = wt.serve_predict("vllm serve Qwen/Qwen3-8B-AWQ --quantization awq_marlin", "h100-ib", **asked)
    assert own.server.weights == "int4" and any("on the hub" in note or "the name" in note for note in own.notes)
    odd = wt.serve_predict("vllm serve Qwen/Qwen3-8B --quantization holographic", "h100-ib", **asked)
    assert odd.server.weights == "bf16" and any("holographic" in note for note in odd.notes)


def test_a_context_that_no_cache_holds_is_refused() -> None:
    with pytest.raises(WindtunnelError, match="--max-model-len"):
        line = "vllm serve meta-llama/Llama-3.1-70B-Instruct -tp 2 --max-num-seqs 64 --max-model-len 131072"
        wt.serve_predict(line, "h100-ib", isl=128, osl=8)


@pytest.mark.parametrize("text", ["python train.py --model x --tp 2\n", "echo vllm is nice\n", "vllm bench serve --model x\n"])
def test_a_text_that_starts_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.sh"
    path.write_text(text)
    with pytest.raises(SpecError, match="starts vLLM"):
        wt.serve_predict(path, "h100-ib")


@pytest.mark.parametrize("tool", ["llama.cpp", "Ollama", "Triton Inference Server"])
def test_a_server_that_is_not_read_is_named(tool: str, tmp_path: Path) -> None:
    texts = tomllib.loads(Path(__file__).with_name("tool_texts.toml").read_text(encoding="utf-8"))
    (tmp_path / "x.sh").write_text(texts[tool]["sh"], encoding="utf-8")
    with pytest.raises(SpecError, match=f"It looks like {tool}'s.*serve-predict MODEL"):
        wt.serve_predict(tmp_path / "x.sh", "h100-ib")


@pytest.mark.parametrize(
    "line", ["vllm serve Qwen/Qwen3-8B -tp two\n", "vllm serve\n", "vllm serve A/B --speculative-config {oops\n"]
)
def test_a_damaged_line_is_told(line: str) -> None:
    with pytest.raises(WindtunnelError):
        wt.serve_predict(line, "h100-ib")


@pytest.mark.parametrize("form", FORMS)
def test_predict_names_the_tool(form: str, tmp_path: Path) -> None:
    """A line of a server is never read as Megatron-LM's."""
    tool, path = FORMS[form][1], _file_of(form, tmp_path)
    title = next(one.title for one in server_tools() if one.name == tool)
    with pytest.raises(WindtunnelError, match=f"(?s){title}.*serve-predict"):
        load_described_job(str(path), None, "h100-ib")


def test_other_lines_start_no_server() -> None:
    assert started_tool("torchrun --nproc-per-node 8 train.py --model vllm\n") is None
    assert started_tool("pip install vllm && vllm serve x\n") is not None


PLANS = st.sampled_from([(1, 1, 1, 1), (2, 1, 1, 1), (4, 2, 1, 1), (4, 1, 1, 4), (1, 1, 8, 8), (2, 1, 4, 8), (8, 1, 1, 1)])


@examples(40)
@given(
    tool=st.sampled_from(list(TOOLS)), engine=st.sampled_from(["vllm", "sglang", "trtllm"]), plan=PLANS,
    kv=st.sampled_from(["bf16", "fp8"]), running=st.sampled_from([None, 32]), tokens=st.sampled_from([None, 4096]),
    memory=st.sampled_from([None, 0.8]), eager=st.booleans(), context=st.sampled_from([None, 16384]),
    drafts=st.sampled_from([0, 3]), sync=st.booleans(), polls=st.sampled_from([None, 30]),
)  # fmt: skip
def test_a_plan_comes_back(
    tool: str, engine: str, plan: tuple[int, ...], kv: str, running: int | None, tokens: int | None, memory: float | None,
    eager: bool, context: int | None, drafts: int, sync: bool, polls: int | None,
) -> None:  # fmt: skip
    """What is written and read is the same served job, for every tool, plan and limit."""
    engine = engine if tool == "dynamo" else tool
    model = load_model("deepseek-v3")
    drafted = speculation_of(f"mtp,drafts={drafts},rate=0.7", model, load_model) if drafts else None
    degrees = ServePlan(*plan)
    server = server_of(
        model, "h200-ib", degrees.gpus, engine, degrees, kv=kv, step_tokens=tokens, running=running, memory=memory, eager=eager,
        speculation=drafted, sync=sync, polls=polls,
    )  # fmt: skip
    try:
        written = launch_script(server, "deepseek-ai/DeepSeek-V3", tool, context=context)
    except WindtunnelError as error:
        assert engine == "trtllm" and plan[2] > 1 and plan[0] > 1 or engine == "vllm" and "experts" in str(error)
        return
    (text,) = written.files.values()
    found = read_launch(text)  # type: ignore[arg-type]
    assert found is not None and found.tool.engine == engine and not any("not known" in line for line in found.ignored)
    fields = found.fields
    back = ServePlan(*(int(fields.get(name, 1)) for name in ("tp", "pp", "dp", "ep")))
    assert back == degrees and fields.get("kv", "bf16") == kv and fields.get("sync", False) is sync
    assert fields.get("polls") == (polls if engine == "sglang" or (engine == "trtllm" and degrees.dp > 1) else None)
    assert (fields.get("running"), fields.get("step_tokens"), fields.get("memory"), fields.get("max_model_len")) == (
        running, tokens, memory, context,
    )  # fmt: skip
    assert bool(fields.get("eager")) == eager
    assert fields.get("speculate") == (None if drafted is None else "mtp,drafts=3")


def test_the_search_says_how_to_start_its_best(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The command under the best point writes a script; read again, it is that point."""
    assert (
        main(["serve-search", "Qwen/Qwen3-8B", "--on", "h100-ib", "--gpus", "2", "--users", "8", "--kv", "fp8", "--jobs", "1"]) == 0
    )
    shown = " ".join(capfd.readouterr().out.split())
    words = shown.partition("windtunnel export ")[2].partition(" record ")[0].partition(" tried ")[0].split()
    script = tmp_path / "start.sh"
    assert main(["export", *words, "-o", str(script)]) == 0
    found = read_launch(script)
    assert found is not None and found.fields["model"] == "Qwen/Qwen3-8B" and found.fields["kv"] == "fp8"
    assert f"tp{found.fields['tp']}" in shown.partition(" best ")[2].partition("with")[0]


@pytest.mark.parametrize("words", [["--option", "foo=1"], ["--option", "running=many"], ["--option", "experts=gpus=2"], []])
def test_an_export_that_cannot_be_is_told(words: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    machine = ["--on", "h100-ib"] if words else []
    assert main(["export", "vllm", "Qwen/Qwen3-8B", *machine, *words]) != 0
    assert "--o" in capfd.readouterr().err


def test_a_catalogue_name_is_written_as_its_repository(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "sglang", "deepseek-v3", "--on", "h200-ib", "--tp", "8"]) == 0
    captured = capfd.readouterr()
    assert "--model-path deepseek-ai/DeepSeek-V3 --tp-size 8" in captured.out and "assumed" in captured.err
    assert export_server("sglang", ServeOptions("deepseek-v3", "h200-ib", tp=8)).files["launch_sglang.sh"] in captured.out
