"""Files and options that once ended in a traceback, a hang or gigabytes: each now ends with code 2 and one message."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import main
from windtunnel.formats.jobs.huggingface.hybrids import pattern
from windtunnel.formats.jobs.scripts.command import words
from windtunnel.spec import load_job

JOB = "llama3-8b-8xh100"
FLAGS = (
    "--num-layers 4 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --micro-batch-size 1 --global-batch-size 8"
    " --vocab-size 100 "
)
MIXTURE = FLAGS + "--num-experts 8 --moe-layer-freq "
LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 1000,
}
QWEN = LLAMA | {"model_type": "qwen3_moe", "num_experts": 8, "moe_intermediate_size": 32}
KIMI = LLAMA | {
    "model_type": "kimi_linear",
    "kv_lora_rank": 16,
    "num_experts": 8,
    "num_experts_per_token": 2,
    "moe_intermediate_size": 32,
    "linear_attn_config": {"full_attn_layers": [2], "num_heads": 4},
}
LLAMA4 = LLAMA | {"model_type": "llama4_text", "num_local_experts": 4, "intermediate_size_mlp": 256}
ENCODER = {
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "intermediate_size": 256,
    "image_size": 224,
    "patch_size": 14,
}
TORCHTITAN = {
    "model": {"name": "llama3", "flavor": "70B"},
    "training": {"global_batch_size": 1024, "seq_len": 8192},
    "parallelism": {"pipeline_parallel_degree": 10**9},
}
SIMUMAX = '{"accelerator": {"op": {"matmul": {"tflops": %s, "accurate_efficient_factor": {"b=1, m=8, k=8, n=8, layout=TN": 0.7}}}}}'
PREFILL = "time_stats.attn_prefill.median,n_embd,n_q_head,n_kv_head,num_tensor_parallel_workers,batch_size,prefill_chunk_size,"
HUGE = 10**400


def without(table: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in table.items() if name != key}


IMPORTS: dict[str, tuple[str | dict[str, Any], str]] = {
    # Hugging Face: values that cannot be keys of a table, sizes beyond any network, keys that are missing
    "model_type.json": (LLAMA | {"model_type": ["llama"]}, "model_type: got ['llama']"),
    "model_type_table.json": (LLAMA | {"model_type": {"a": 1}, "vision_config": ENCODER}, "model_type: got {'a': 1}"),
    "size.json": (LLAMA | {"hidden_size": HUGE}, "hidden_size"),
    "layers.json": (
        QWEN | {"num_hidden_layers": 10**8},
        "num_hidden_layers: got 100000000; allowed: a whole number from 1 to 100000",
    ),
    "dense.json": (QWEN | {"num_hidden_layers": 100_000, "mlp_only_layers": [99_999]}, "model.layer_pattern: got 'E99999D'"),
    "only.json": (QWEN | {"mlp_only_layers": [[1]]}, "mlp_only_layers"),
    "expert.json": (without(LLAMA4, "intermediate_size"), "intermediate_size: got nothing"),
    "shared.json": (KIMI | {"num_shared_experts": [1]}, "num_shared_experts: got [1]"),
    "first.json": (KIMI | {"first_k_dense_replace": "x"}, "first_k_dense_replace: got 'x'"),
    "full.json": (KIMI | {"linear_attn_config": {"full_attn_layers": [[2]]}}, "full_attn_layers: got [[2]]"),
    "types.json": (LLAMA | {"model_type": "nemotron_h", "layers_block_type": [[1], "mlp"]}, "layers_block_type: got [1]"),
    "image.json": (
        {"model_type": "gemma3", "text_config": LLAMA, "vision_config": ENCODER, "mm_tokens_per_image": HUGE},
        "mm_tokens",
    ),
    "feature.json": (
        {"model_type": "llava", "text_config": LLAMA, "vision_config": ENCODER, "vision_feature_layer": -9},
        "vision_feature_layer: got -9",
    ),
    # Megatron-LM: expressions, layouts and counts
    "deep.sh": (MIXTURE + "-" * 200_000 + "1", "--moe-layer-freq"),
    "deep_short.sh": (MIXTURE + "-" * 9_000 + "1", "--moe-layer-freq"),
    "sum.sh": (MIXTURE + "+".join(["[0]*9999"] * 900), "--moe-layer-freq"),
    "many.sh": (FLAGS.replace("layers 4", "layers 999999999999"), "--num-layers: got 999999999999; allowed: at most 100000"),
    "ends.sh": (
        FLAGS + "--pipeline-model-parallel-size 999999999999 --world-size 999999999999 --decoder-first-pipeline-num-layers 4",
        "--decoder-first-pipeline-num-layers",
    ),
    "layout.sh": (FLAGS + "--pipeline-model-parallel-layout " + "t*1" * 1_000_000, "--pipeline-model-parallel-layout"),
    "nested.sh": (FLAGS + "--pipeline-model-parallel-layout " + "(" * 500 + "t" + ")*9" * 500, "--pipeline-model-parallel-layout"),
    # scripts
    "bomb.sh": ("A0=xxxxxxxxxx\n" + "".join(f"A{i + 1}={f'$A{i}' * 10}\n" for i in range(9)) + FLAGS + "--x $A9", "variables"),
    "loop.sh": ("A=xxxxxxxxxx\n" + 'A="' + "$A" * 100 + '"\n' + 'A="' + "$A" * 2000 + '"\n' + FLAGS + "--x $A", "variables"),
    "quote.sh": (FLAGS + "--x '" + "a " * 1_000_000, "quotes are closed"),
    # torchtitan
    "stages.json": (TORCHTITAN, "parallelism.pipeline_parallel_degree: got 1000000000"),
}


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    code = main(arguments)
    output = capsys.readouterr()
    assert code == 2 and output.out == "", (code, output.err[-500:])
    assert output.err.startswith("windtunnel: ") and output.err.count("\n") == 1 and len(output.err) < 1200
    return output.err


@pytest.mark.parametrize("name", IMPORTS)
def test_imports(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, expected = IMPORTS[name]
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    assert expected in refused(["import", str(path), "--on", JOB], capsys)


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("x.csv", "op,M,N,K,dtype,phase,time_us\nmatmul,8,8,8,bf16,fwd,4\n", "--format simumax", "a complete JSON document"),
        ("t.csv", "0.0019\n0.0012\n", "--format simumax", "a complete JSON document"),
        ("sys.json", SIMUMAX % HUGE, "", "a positive efficiency"),
        ("list.json", "[1]", "--format simumax", "accelerator"),
        ("attention.csv", PREFILL + "kv_cache_size\n0.5,8192,64,8,4,1,1024\n", "", "fewer cells than columns"),
        ("attention.csv", PREFILL + "x\n0.5,8192,64,8,4,1,1024,1\n", "--format vidur", "there is no column 'kv_cache_size'"),
        ("d.parquet", "PAR1" + "\x15" * 60 + "PAR1", "", "cut off or damaged"),
    ],
)
def test_measurements(
    name: str, content: str, options: str, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_text(content)
    arguments = ["profile", "import", str(path), "-o", str(tmp_path / "o.parquet"), "--gpu", "h100-sxm-80gb", *options.split()]
    assert expected in refused(arguments, capsys)


@pytest.mark.parametrize("format", ["table", "simumax", "vidur", "llmcompass"])
def test_a_device_is_not_read(format: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["profile", "import", "/dev/zero", "-o", str(tmp_path / "o.parquet"), "--gpu", "h100-sxm-80gb", "--format", format]
    assert "a device" in refused([*arguments, "--dtype", "bf16"], capsys)


def test_a_parquet_file_that_unpacks_to_gigabytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    blank = pa.table({"op": pa.nulls(10**7 + 1, pa.string()), "time_us": pa.nulls(10**7 + 1, pa.float64())})
    pq.write_table(blank, path, compression="zstd")
    assert path.stat().st_size < 10**6
    arguments = ["profile", "import", str(path), "-o", str(tmp_path / "o.parquet"), "--gpu", "h100-sxm-80gb", "--dtype", "bf16"]
    assert "10000001 rows" in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("plan.document=8193", "a divisor of plan.seq = 8192: documents of equal length. Try 8192."),
        ("plan.document=3000", "Try 4096."),
    ],
)
def test_documents(override: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert expected in refused(["predict", JOB, "--set", override], capsys)


@pytest.mark.parametrize("fields", [{"runtime": {"base": np.array([1, 2])}}, {"plan": {"dp": np.array([1, 2])}}])
def test_arrays_in_a_table(fields: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        load_job({"base": JOB, **fields})


def test_long_words_are_read_in_one_pass() -> None:
    """Parentheses, quotes and unknown variables by the million."""
    assert words("--x " + "(" * 10**6, "text") == ["--x", "(" * 10**6]
    assert words('--x "' + "a" * 10**6 + '"', "text") == ["--x", "a" * 10**6]
    assert words("--x " + "${A:-" * 10**5, "text") == ["--x", "${A:-" * 10**5]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"""--a 'x y' "b \"c\" \d" e\ f # --g""", ["--a", "x y", r'b "c" \d', "e f"]),
        ("--a x# no\n--b", ["--a", "x", "--b"]),
        ("--a \\\n  1", ["--a", "1"]),
        ("A=4\n--a ${A} --b ${B:-7} --c $C", ["--a", "4", "--b", "7", "--c", "$C"]),
        ("ARGS=(--a 1\n --b 2)\nrun ${ARGS[@]}", ["run", "--a", "1", "--b", "2"]),
        ("--a ([0]*3+[1]*58)", ["--a", "([0]*3+[1]*58)"]),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text, "text") == expected


def test_a_backslash_at_the_end_is_refused() -> None:
    with pytest.raises(FileError, match="backslash"):
        words("--a \\", "text")


@pytest.mark.parametrize("letters", ["D", "DE", "DDDE", "DEDED", "DDEDDE", "DEDD", "EEEEEEED" * 3 + "EE", "LLLLLG" * 4 + "LL"])
def test_the_shortest_pattern(letters: str) -> None:
    """Against trying every length."""
    size = next(n for n in range(1, len(letters) + 1) if all(a == letters[i % n] for i, a in enumerate(letters)))
    runs = "".join(letter if count == 1 else f"{letter}{count}" for letter, count in _runs(letters[:size]))
    assert pattern(letters) == runs


def _runs(letters: str) -> list[tuple[str, int]]:
    runs: list[tuple[str, int]] = []
    for letter in letters:
        if runs and runs[-1][0] == letter:
            runs[-1] = (letter, runs[-1][1] + 1)
        else:
            runs.append((letter, 1))
    return runs


def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.toml"
    os.mkfifo(path)
    for verb in ("predict", "import"):
        assert "a pipe" in refused([verb, str(path)], capsys)
