"""Every option of serve-predict acts alike in serve-fleet and serve-search, or is refused by name: what a new option does there is
asked here, since a case for it is missing."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import fields
from typing import Any

import pytest

import windtunnel as wt
from windtunnel.base.errors import PlanError, SpecError, same_option
from windtunnel.base.options import options_of
from windtunnel.cli import main
from windtunnel.rl.spec import RolloutSpec
from windtunnel.serving.engine import EngineSettings
from windtunnel.serving.options import ServeFleetOptions, ServeOptions, ServeSearchOptions

CASES: dict[str, tuple[Any, dict[str, Any]]] = {
    "engine": ("trtllm", {"rate": 14.0}),
    "weights": ("fp8", {}),
    "attention_weights": ("bf16", {"weights": "fp8", "rate": 20.0}),
    "kv": ("fp8", {"memory": 0.3, "rate": 20.0}),
    "isl": ("4000~0.2", {}),
    "osl": ("400~0.2", {}),
    "tp": (2, {}),
    "pp": (2, {}),
    "step_tokens": (2048, {"isl": 6000}),
    "running": (4, {}),
    "polls": (40, {}),
    "memory": (0.3, {"rate": 20.0}),
    "max_model_len": (1024, {"isl": "1500~0.8"}),
    "eager": (True, {}),
    "sync": (True, {}),
    "ahead": (True, {"release": "0.11.0"}),
    "graphs": ("1,2,4", {}),
    "whole_prompts": (True, {"engine": "trtllm", "step_tokens": 2000, "isl": 1998}),
    "release": ("0.3.0", {}),
    "expert_kernel": (
        "cutlass",
        {"model": "qwen3-30b-a3b", "on": "b200-ib", "engine": "trtllm", "weights": "nvfp4", "rate": 20.0},
    ),
    "burstiness": (0.3, {"rate": 14.0}),
    "turns": (3, {}),
    "think": ("20", {"turns": 5, "rate": 20.0}),
    "shared_prefix": ("1200", {"rate": 20.0}),
    "seed": (7, {"isl": "1500~2", "osl": "100~2"}),
}
"""Option -> what is stated, and what it takes beside it that this moves a latency by a tenth."""

ELSEWHERE = {"model", "on", "gpus", "overrides", "requests_out"}
"""Options that say no engine and no load."""

BY_FILES = {"trace", "speed", "sessions"}
"""Loads of files: `test_serving_sessions.py` and `test_serving_fleet.py` read them with both verbs."""

OWN_MEANING = {"requests", "rate", "prefill", "ttft", "tpot"}
"""Options that a fleet or a search has under the same name for its whole load."""

SEARCHED = {"seed", "isl", "osl", "weights", "kv", "attention_weights", *(one.name for one in fields(EngineSettings))}
BASE: dict[str, Any] = {"model": "llama3.1-8b", "on": "h100-ib", "tp": 1, "isl": "1500~0.5", "osl": "100~0.5"}


def _latencies(served: Any) -> tuple[float, float]:
    return served.ttft.mean, served.tpot.mean


def _predicted(**said: Any) -> tuple[float, float]:
    return _latencies(wt.serve_predict(**{**BASE, "rate": 6.0, "requests": 80, **said}))


def _of_a_fleet(**said: Any) -> tuple[float, float]:
    asked = {**BASE, "rate": 6.0, "requests": 80, **said}
    return _latencies(wt.serve_fleet(replicas=1, router="round-robin", **asked))


def _moved(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return any(abs(a / b - 1.0) > 0.1 for a, b in zip(one, other, strict=True))


def _shared(verb: type[Any]) -> set[str]:
    return {one.name for one in options_of(ServeOptions)} & {one.name for one in options_of(verb)}


def test_every_option_that_a_fleet_shares_has_a_case() -> None:
    assert _shared(ServeFleetOptions) - ELSEWHERE - BY_FILES - OWN_MEANING - {"dp", "ep"} <= set(CASES)
    assert _shared(ServeSearchOptions) - ELSEWHERE - OWN_MEANING - {"speculate", "burstiness"} == SEARCHED | {"max_model_len"}
    assert {one.name for one in fields(EngineSettings)} <= _shared(ServeFleetOptions) & _shared(ServeSearchOptions)


@pytest.mark.parametrize("name", CASES)
def test_an_option_moves_a_fleet_as_it_moves_a_server(name: str) -> None:
    value, beside = CASES[name]
    found, plain = _predicted(**beside, **{name: value}), _predicted(**beside)
    assert _moved(found, plain), "the case shows nothing"
    assert _of_a_fleet(**beside, **{name: value}) == pytest.approx(found, rel=0.04)


@pytest.mark.parametrize("name", sorted(SEARCHED - {"seed"}))
def test_an_option_moves_a_search_as_it_moves_a_server(name: str) -> None:
    """One copy with 32 users, whose load a search draws as serve-predict does."""
    value, beside = CASES[name]
    said = {**BASE, **beside, name: value}
    users = 64 if name in ("kv", "memory") else 32
    said.pop("rate", None)
    alone = wt.serve_predict(gpus=1, **said, concurrency=users, requests=3 * users)
    del said["tp"]
    several = {
        key: (said.pop(word),) for word, key in (("engine", "engines"), ("weights", "weights"), ("kv", "kv")) if word in said
    }
    front = wt.serve_search(gpus=1, users=[users], processes=1, **several, **said)
    assert _latencies(front.choices[0].served) == pytest.approx(_latencies(alone))


@pytest.mark.parametrize(("verb", "kind"), [("serve-fleet", ServeFleetOptions), ("serve-search", ServeSearchOptions)])
def test_an_option_that_a_verb_does_not_have_is_refused_by_name(
    verb: str, kind: type[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    own = {one.word for one in options_of(kind)}
    others = [one.word for one in options_of(ServeOptions) if one.shown and one.word not in own and one.word.startswith("--")]
    assert "--tier" in others
    for word in others:
        assert main([verb, "llama3.1-8b", "--on", "h100-ib", word, "1"]) == 2
        said = capsys.readouterr().err
        instead = f"Did you mean {same}?" if (same := same_option(word, own)) else "`windtunnel serve-predict` has it"
        assert word in said and instead in said


def test_a_rollout_has_an_option_or_refuses_it_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    for one in options_of(ServeOptions):
        if one.name not in RolloutSpec.model_fields:
            assert main(["rl-predict", "qwen2.5-7b", "--on", "h100-ib", "--set", f"rl.rollout.{one.name}=1"]) == 2
            assert f"rl.rollout.{one.name}: got" in capsys.readouterr().err


LINE = "trtllm-serve meta-llama/Llama-3.1-8B-Instruct --tp_size 1 --max_num_tokens 2000"
"""Prompts are whole without chunked context, and batches up to the default are captured."""


def test_commands_of_a_search_say_its_settings(capfd: pytest.CaptureFixture[str]) -> None:
    """The command of the best point answers as the point, and the one that starts it writes a line with these settings."""
    said = ["--sync", "--graphs", "1,2,4,8", "--step-tokens", "2000", "--whole-prompts", "--set", "model.max_seq=4000"]
    asked = ["llama3.1-8b", "--on", "h100-ib", "--isl", "256", "--osl", "32"]
    words = ["serve-search", *asked, "--gpus", "1", "--engine", "trtllm", "--users", "8", "--jobs", "1", *said]
    assert main([*words, "--sheet", "-"]) == 0
    text = capfd.readouterr().out
    best = wt.serve_search(
        "llama3.1-8b", "h100-ib", gpus=1, engines=["trtllm"], users=[8], isl=256, osl=32, sync=True, graphs="1,2,4,8",
        step_tokens=2000, whole_prompts=True, overrides=["model.max_seq=4000"], processes=1,
    ).front[0]  # fmt: skip
    predict, export = (re.search(rf"windtunnel ({verb} [^\"]*)", text) for verb in ("serve-predict", "export"))
    assert predict is not None and export is not None
    assert main([*shlex.split(predict[1]), "--json", "-"]) == 0
    assert json.loads(capfd.readouterr().out)["tpot"]["mean"] == pytest.approx(best.served.tpot.mean)
    assert main([*shlex.split(export[1]), "-o", "-"]) == 0
    line = capfd.readouterr().out
    assert "--max_num_tokens 2000" in line and "disable_overlap_scheduler" in line and "enable_chunked_prefill" not in line


def test_a_search_knows_what_a_request_may_have() -> None:
    with pytest.raises(PlanError):
        wt.serve_search("llama3.1-8b", "h100-ib", gpus=1, users=[4], isl=900, osl=200, max_model_len=1024, processes=1)
    assert wt.serve_search("llama3.1-8b", "h100-ib", gpus=1, users=[4], isl=800, osl=200, max_model_len=1024, processes=1).choices


def test_a_line_says_to_a_fleet_and_a_search_what_its_options_say() -> None:
    load = {"isl": BASE["isl"], "osl": BASE["osl"]}
    said = {"step_tokens": 2000, "graphs": ",".join(map(str, [*range(1, 33), 64, 128])), "whole_prompts": True}
    fleets = [
        wt.serve_fleet(LINE, "h100-ib", 1, rate=6.0, requests=60, **load),
        wt.serve_fleet("llama3.1-8b", "h100-ib", 1, "trtllm", tp=1, rate=6.0, requests=60, **load, **said),
        wt.serve_fleet("llama3.1-8b", "h100-ib", 1, "trtllm", tp=1, rate=6.0, requests=60, **load),
    ]
    assert _latencies(fleets[0]) == _latencies(fleets[1]) != _latencies(fleets[2])
    searched = [
        wt.serve_search(LINE, "h100-ib", gpus=1, users=[32], processes=1, **load),
        wt.serve_search("llama3.1-8b", "h100-ib", gpus=1, users=[32], engines=["trtllm"], processes=1, **load, **said),
        wt.serve_search("llama3.1-8b", "h100-ib", gpus=1, users=[32], engines=["trtllm"], processes=1, **load),
    ]
    found = [_latencies(front.choices[0].served) for front in searched]
    assert found[0] == found[1] != found[2]


def test_prompts_apart_of_a_line_are_apart_in_a_fleet() -> None:
    text = "\n".join(f"vllm serve Qwen/Qwen3-8B -tp {tp} --is-{side}-worker &" for tp, side in ((2, "prefill"), (1, "decode")))
    text = text.replace("vllm serve", "python -m dynamo.vllm --model")
    found = wt.serve_fleet(text, "h100-ib", 1, rate=2.0, requests=30, isl=512, osl=64)
    assert found.prompts is not None and found.prompts.server.plan.tp == 2


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ({"whole_prompts": True}, "whole_prompts"),
        ({"graphs": "x"}, "graphs"),
        ({"weights": ["fp7"]}, "weights"),
        ({"attention_weights": "fp7"}, "attention_weights"),
        ({"memory": 1.5}, "memory"),
        ({"release": "new"}, "release"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_a_search(said: dict[str, Any], error: str) -> None:
    """It is no copy that does not fit."""
    with pytest.raises(SpecError, match=error):
        wt.serve_search("llama3.1-8b", "h100-ib", gpus=1, users=[4], isl=64, osl=8, processes=1, **said)
