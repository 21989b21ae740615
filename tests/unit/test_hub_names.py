"""Names of the Hugging Face hub as models of the catalogue: what each means, what is said of it, and what none means."""

from __future__ import annotations

import random
import re

import pytest

from tests.unit.hub_ids import MEANT, UNKNOWN
from windtunnel.base.errors import SpecError
from windtunnel.base.files import CATALOG
from windtunnel.formats.jobs.hub_names import canonical, find_named, nearest_names, words_of
from windtunnel.formats.jobs.trainer import import_table
from windtunnel.jobs.load import load_described_job
from windtunnel.spec import load_model, names
from windtunnel.spec.loading.files import read_table
from windtunnel.workload import parameter_count

HUB = read_table(CATALOG / "hub.toml")
LISTED = {
    name: model
    for section in ("same", "language_alone", "own_indexers")
    for model, listed in HUB[section].items()
    for name in listed
} | {name: row["like"] for row in HUB["differing"] if "name" not in row["fields"] for name in row["names"]}


@pytest.mark.parametrize("name", MEANT)
def test_a_name_of_the_hub_means_a_model(name: str) -> None:
    found = find_named(name)
    assert found is not None and found.model.name == MEANT[name]


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_size_or_a_family_that_is_not_known_means_none(name: str) -> None:
    assert find_named(name) is None
    assert len(set(nearest_names(name))) == 3


def test_every_line_of_the_list_names_an_entry_once() -> None:
    assert set(LISTED.values()) <= set(names("models"))
    keys: dict[str, str] = {}
    for name, model in LISTED.items():
        key = name.rpartition("/")[0].lower() + "/" + canonical(words_of(name.rpartition("/")[2]))
        assert keys.setdefault(key, name) == name, f"{name} stands twice"
        found = find_named(name)
        assert found is not None and found.model.name == model, name


OWNERS = ("", "unsloth/", "mlx-community/", "NousResearch/", "/models/", "~/ckpt/", "some-body/")
TUNED = ("", "-Instruct", "-it", "-chat", "-Base", "-hf", "-Thinking", "-SFT", "-DPO", "-Chat-v1.0")
DATES = ("", "-2507", "-0324", "-128k", "-2024-08-06", "-20240806")
FORMATS = (
    "",
    "-AWQ",
    "-GPTQ-Int4",
    "-FP8",
    "-bnb-4bit",
    "-unsloth-bnb-4bit",
    "-GGUF",
    "-4bit",
    "-mcore",
    "-BF16",
    "-8bit",
    "-Q4_K_M.gguf",
)


def test_law_words_around_a_name_do_not_change_what_it_means() -> None:
    """2,000 names of the catalogue and of the list, dressed up at random: the entry is the same, in any letters."""
    known = {**{name: name for name in names("models")}, **{n: m for n, m in LISTED.items() if "/" not in n}}
    draw = random.Random(43)
    for _ in range(2000):
        name = draw.choice(sorted(known))
        spelled = draw.choice((name, name.lower(), name.upper(), name.replace("-", "_") if "." not in name else name))
        ends = [] if re.search(r"vision|gpt-\d|mpt", name) else [draw.choice(TUNED), draw.choice(FORMATS)]
        dressed = draw.choice(OWNERS) + spelled + "".join(ends)
        found = find_named(dressed)
        assert found is not None, dressed
        assert parameter_count(found.model) == pytest.approx(parameter_count(load_model(known[name])), rel=2e-3), dressed


def test_law_another_size_is_another_name() -> None:
    """The size of every known name changed to one that no known name has: none is meant."""
    known = {canonical(words_of(name)) for name in (*names("models"), *(n.rpartition("/")[2] for n in LISTED))}
    draw, tried = random.Random(44), 0
    for name in sorted(n for n in (*names("models"), *LISTED) if "/" not in n):
        found = re.search(r"(?<![\w.])(\d+(?:\.\d+)?)(b|m)(?![\w.])", name.lower())
        if found is None:
            continue
        size = draw.choice(["9.7", "41", "5.3", "777"])
        other = name[: found.start()] + size + found[2] + name[found.end() :] + draw.choice(TUNED) + draw.choice(FORMATS)
        tried += 1
        if canonical(words_of(other)) not in known:
            assert find_named(other) is None, other
    assert tried > 200


def test_dates_are_dropped_only_where_the_name_with_them_is_unknown() -> None:
    with_date, without = find_named("Qwen/Qwen3-4B-Instruct-2507"), find_named("Qwen/Qwen3-4B")
    assert with_date is not None and without is not None
    assert (with_date.model.max_seq, without.model.max_seq) == (262144, 40960)
    assert with_date.model.numerics is not None and with_date.model.numerics.rope_base == 5e6
    for date in DATES:
        found = find_named(f"Qwen/Qwen3-8B{date}")
        assert found is not None and found.model.name == "qwen3-8b"


def test_what_differs_from_the_entry_is_stated() -> None:
    code, math = find_named("codellama/CodeLlama-7b-hf"), find_named("Qwen/Qwen2.5-Math-7B")
    assert code is not None and code.model.vocab == 32016
    assert math is not None and math.model.numerics is not None and math.model.numerics.rope_base == 1e4
    assert load_model("qwen2.5-7b").numerics != math.model.numerics


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Qwen/Qwen3-VL-8B-Instruct", "the language model alone"),
        ("unsloth/Qwen2.5-VL-72B-Instruct-bnb-4bit", "the language model alone"),
        ("google/gemma-3-27b-it", "gemma3-27b-vision has it"),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", "llama4-scout-vision has it"),
        ("zai-org/GLM-5.2", "an indexer in each layer"),
    ],
)
def test_what_is_left_out_is_said(name: str, said: str) -> None:
    loaded = load_described_job(name, ["cluster.gpus=1024"], "h100-ib")
    assert any(said in note for note in loaded.assumed)
    assert loaded.job.model.vision is None


def test_a_name_with_its_encoder_has_it() -> None:
    found = find_named("Qwen/Qwen2.5-VL-7B-Instruct")
    assert found is not None and found.model.vision is not None and not found.notes


def test_an_unknown_name_says_three_near_ones_and_how_to_give_any_other() -> None:
    with pytest.raises(SpecError, match=r"Nearest: \S+, \S+, \S+\. Or `hf download Qwen/Qwen3-9B config.json`"):
        load_described_job("Qwen/Qwen3-9B", [], "h100-ib")
    with pytest.raises(SpecError, match="qwen3-8b"):
        load_described_job("h100-ib", [], None, model="Qwen/Qwen3-9B")
    with pytest.raises(SpecError, match="There is no such file"):
        load_described_job("runs/Qwen3-9B.toml", [], "h100-ib")


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("Qwen/Qwen3-8B", ""),
        ("unsloth/Qwen3-8B-unsloth-bnb-4bit", "nf4"),
        ("Qwen/Qwen3-8B-AWQ", "int4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4", "int4"),
        ("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8", "int8"),
        ("Qwen/Qwen3-8B-FP8", "fp8"),
        ("Qwen_Qwen3-8B-Q4_K_M.gguf", "gguf"),
        ("openai/gpt-oss-20b-BF16", "16"),
    ],
)
def test_how_the_weights_are_packed(name: str, packed: str) -> None:
    found = find_named(name)
    assert found is not None and found.packed == packed


def _tuned(name: str, **more: object) -> tuple[str, str]:
    table = {"base_model": name, "micro_batch_size": 1, "sequence_len": 2048, "adapter": "lora", "lora_r": 16,
             "lora_target_linear": True, "num_processes": 8, **more}  # fmt: skip
    done = import_table(table)
    return (done.model.lora.base if done.model.lora else "whole"), " ".join(done.assumed)


def test_adapters_on_a_packed_name_have_its_base() -> None:
    assert _tuned("unsloth/Qwen3-8B-bnb-4bit")[0] == "nf4"
    base, said = _tuned("Qwen/Qwen3-8B-AWQ")
    assert base == "nf4" and "in place of AWQ's or GPTQ's 4 bits" in said
    assert _tuned("Qwen/Qwen2.5-7B-Instruct-GPTQ-Int8")[0] == "int8"
    base, said = _tuned("Qwen/Qwen3-8B-FP8")
    assert base == "none" and "fp8 of the model's name is unpacked" in said
    assert _tuned("Qwen/Qwen3-8B")[0] == "none"
    base, said = _tuned("unsloth/Qwen3-8B-bnb-4bit", adapter=None)
    assert base == "whole" and "packed weights are not trained" in said
