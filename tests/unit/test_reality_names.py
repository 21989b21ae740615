"""Other people's names of GPUs and frameworks."""

from __future__ import annotations

import pytest

from windtunnel.base.errors import UnknownName
from windtunnel.reality.jobs.machine import gpu_named
from windtunnel.reality.jobs.software import NamedFramework, attention_said, framework_cited, framework_named
from windtunnel.reality.rows.publications import releases, spellings
from windtunnel.spec import names


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("h200-sxm-141gb", "h200-sxm-141gb"),  # the id
        ("NVIDIA H100 80GB HBM3", "h100-sxm-80gb"),  # what the driver prints
        ("b200-sxm-192gb", "b200-sxm-180gb"),  # two ways to count the same memory
        ("H100-SXM-96GB-HBM2e (Meta Grand Teton)", "h100-sxm-96gb-hbm2e"),
        ("h100-nvl", "h100-nvl-94gb"),
        ("TPU Trillium v6e", "tpu-v6e"),
        ("H200", "h200-sxm-141gb"),
        ("H20", "h20"),
    ],
)
def test_a_part_number_is_matched_as_a_whole_word(said: str, meant: str) -> None:
    assert gpu_named(said).id == meant


@pytest.mark.parametrize("said", ["h100", "a100-80gb", "v100"])
def test_of_several_parts_none_is_taken(said: str) -> None:
    with pytest.raises(UnknownName, match=said.split("-")[0]):
        gpu_named(said)


def test_an_unknown_gpu_is_refused() -> None:
    with pytest.raises(UnknownName, match="trn2"):
        gpu_named("trn2")


def test_frameworks_by_other_names() -> None:
    assert framework_named("torchtitan") == NamedFramework("torchtitan", span="torchtitan")
    assert framework_named("Megatron_LM").name == "megatron-lm"
    bridge = framework_named("Megatron-Bridge")
    assert bridge.name == "nemo" and bridge.why == "framework Megatron-Bridge is the catalogue's nemo"
    assert bridge.span == "megatron-bridge"
    unknown = framework_named("inhouse")
    assert unknown.name == "unnamed" and unknown.why is not None and "not in the catalogue" in unknown.why
    assert framework_named("").why == "framework not published: taken as unnamed"


@pytest.mark.parametrize(
    ("said", "name", "version", "date"),
    [
        ("megatron-bridge 26.02", "nemo", "26.02", (2026, 2)),
        ("megatron-bridge 26.04.01", "nemo", "26.04", (2026, 4)),
        ("nemo-launcher 24.05", "nemo-launcher", "24.05", (2024, 5)),
        ("neuronx (2.16.0)", "neuron", "2.16.0", None),
        ("megatron (e156d2fe, 2022)", "megatron", None, (2022, 6)),
        ("xtuner 0.1 (DeepSpeed ZeRO-3 + Ulysses)", "xtuner", "0.1", None),
        ("levanter 1.0 (jax)", "maxtext", "1.0", None),
        ("libai", "libai", None, None),
    ],
)
def test_a_name_may_state_a_version_or_a_year(said: str, name: str, version: str | None, date: tuple[int, int] | None) -> None:
    named = framework_named(said)
    assert (named.name, named.version, named.date) == (name, version, date)


def test_no_spelling_hides_an_entry() -> None:
    spelled = [other for others in spellings().values() for other in others]
    assert len(spelled) == len(set(spelled))
    assert not set(spelled) & set(names("frameworks")) - {"megatron-lm"}
    assert set(spellings()) <= {*names("frameworks"), *releases()}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("pytorch/torchtune README.md (optimization ladder)", "torchtune"),
        ("PaddlePaddle/PaddleFleetX projects/gpt/docs/single_card.md", "paddlefleetx"),
        ("NVIDIA/Megatron-LM@23e00ed0 README", "megatron-lm"),
        ("Korthikanti 2022 Fig 1 as transcribed in calculon-ai/calculon", None),  # who transcribes did not run it
        ("MooreThreads/SimuMax docs/b200", None),  # a simulator
        ("", None),
        (None, None),
    ],
)
def test_a_citation_of_a_frameworks_own_repository_names_the_framework(source: str | None, name: str | None) -> None:
    assert framework_cited(source) == name


@pytest.mark.parametrize(
    ("notes", "attention", "library"),
    [
        ("flash attention 2, GAS 8", "flash", "fa2"),
        ("FlashAttention-3; bf16", "flash", "fa3"),
        ("with flash-attn v2", "flash", "fa2"),
        ("cuDNN attention", "flash", "cudnn"),
        ("grad_accum 1; FlashAttention; MFU", "flash", None),
        ("no flash attention (author says so)", "unfused", None),
        ("attention heads 32", None, None),
        (None, None, None),
    ],
)
def test_notes_say_the_attention_of_a_run(notes: str | None, attention: str | None, library: str | None) -> None:
    said = attention_said(notes)
    assert (said.get("attention"), said.get("attention_library")) == (attention, library)
