"""Whatever is fed to the importers and table readers ends in a value or in an error of ours."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

from drawn import examples
from hypothesis import example, given
from hypothesis import strategies as st
from row_columns import TRAINING

from windtunnel.base.errors import WindtunnelError
from windtunnel.formats import from_config, from_deepspeed, from_torchtitan, import_job
from windtunnel.formats.jobs.huggingface.config import FAMILIES
from windtunnel.formats.jobs.huggingface.families import COMMON_KEYS
from windtunnel.formats.jobs.megatron.flags import KINDS, OLD_NAMES
from windtunnel.reality.jobs.job import draft
from windtunnel.reality.rows.table import parse
from windtunnel.spec import load_job

KEYS = [
    *(key for keys in COMMON_KEYS.values() for key in keys),
    "sliding_window",
    "attn_config",
    "text_config",
    "no_bias",
    "dropout",
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(1, 256),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["silu", "gelu", "relu"]),
)
VALUES = st.recursive(
    SCALARS, max_leaves=4, extend=lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=4), inner))
)
WORDS = st.one_of(
    st.sampled_from([f"--{flag}" for flag in (*KINDS, *OLD_NAMES)]),
    st.integers(-5, 10**6).map(str),
    st.sampled_from(["$X", "${Y:-3}", "A=(", ")", "torchrun", "x.py", "'", "\\\n", "1e3", "--", "RMSNorm", "t|t"]),
    st.text(max_size=6),
)
BASE = "--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 --micro-batch-size 4 --vocab-size 512 "


@examples(100)
@given(st.sampled_from(sorted(FAMILIES)), st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_configurations(kind: str, config: dict[str, Any]) -> None:
    with suppress(WindtunnelError):
        from_config({"model_type": kind, **config})


@examples(100)
@given(st.booleans(), st.lists(WORDS, max_size=12))
@example(False, ["a{\U000ca3d8\x89"])  # the scanner of the grammar ended the process
@example(False, ["{" + chr(wide) for wide in range(0x100, 0x30000, 0x101)])
@example(True, ["torchrun", "--rotary-percent", "232"])
def test_command_lines(based: bool, words: list[str]) -> None:
    with suppress(WindtunnelError):
        import_job((BASE if based else "\n") + " ".join(words))


@examples(65)
@given(st.one_of(st.text(), VALUES.map(json.dumps)))
def test_any_text(text: str) -> None:
    with suppress(WindtunnelError):
        import_job(text + "\n")


ON = load_job("llama3-8b-8xh100")
TITAN = [
    "tensor_parallel_degree",
    "pipeline_parallel_degree",
    "pipeline_parallel_schedule",
    "data_parallel_shard_degree",
    "pipeline_parallel_layers_per_stage",
    "expert_parallel_degree",
    "fsdp_reshard_after_forward",
]
SPEED = [
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "zero_optimization",
    "bf16",
    "fp16",
    "communication_data_type",
    "optimizer",
    "sequence_parallel_size",
]


@examples(65)
@given(st.dictionaries(st.sampled_from(SPEED), VALUES), st.dictionaries(st.sampled_from(["stage", "overlap_comm"]), VALUES))
@example({"train_micro_batch_size_per_gpu": 125_000_001}, {})
def test_deepspeed_configurations(config: dict[str, Any], zero: dict[str, Any]) -> None:
    with suppress(WindtunnelError):
        from_deepspeed({"zero_optimization": zero, **config}, ON)


@examples(65)
@given(
    st.dictionaries(st.sampled_from(TITAN), st.one_of(VALUES, st.integers(1, 8), st.just("Interleaved1F1B"))),
    st.dictionaries(st.sampled_from(["seq_len", "local_batch_size", "global_batch_size", "compile"]), VALUES),
)
def test_torchtitan_configurations(parallelism: dict[str, Any], training: dict[str, Any]) -> None:
    with suppress(WindtunnelError):
        from_torchtitan({"model": {"name": "llama3", "flavor": "8B"}, "training": training, "parallelism": parallelism}, ON)


CELLS = st.one_of(
    st.just(""),
    st.integers(-3, 300).map(str),
    st.floats().map(str),
    st.text(max_size=4),
    st.sampled_from(["gpt", "llama", "megatron", "a100-sxm-80gb", "ib", "none", "full", "bf16", "8", "1e300"]),
)


@examples(100)
@given(st.lists(CELLS, min_size=len(TRAINING), max_size=len(TRAINING)))
def test_rows_of_a_table(cells: list[str]) -> None:
    quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells)
    table = parse(",".join(TRAINING) + "\n" + quoted + "\n")
    for row in table.training:
        draft(row)


GOOD = (
    "X",
    "F",
    "megatron",
    "gpt",
    "24",
    "1024",
    "16",
    "4096",
    "1024",
    "64",
    "",
    "a100-sxm-80gb",
    "8",
    "8",
    "none",
    "1",
    "2",
    "4",
    "none",
    "full",
    "bf16",
    "0.5",
)
ROW = dict(zip(TRAINING, GOOD, strict=True))


@examples(135)
@given(
    st.dictionaries(
        st.sampled_from(sorted(ROW)),
        max_size=4,
        values=st.one_of(CELLS, st.sampled_from(["0", "999999999999999", "7", "1e6", "-0.0"])),
    )
)
def test_almost_good_rows(changes: dict[str, str]) -> None:
    cells = {**ROW, **changes}
    quoted = ",".join('"' + cell.replace('"', '""') + '"' for cell in cells.values())
    for row in parse(",".join(cells) + "\n" + quoted + "\n").training:
        draft(row)


@examples(65)
@given(st.text())
def test_any_table(text: str) -> None:
    with suppress(WindtunnelError):
        parse(text)
    with suppress(WindtunnelError):
        parse(",".join(TRAINING) + "\n" + text)
