"""A verb's options are said once: the command line, the function of Python, the client, the OpenAPI and the page have the same."""

from __future__ import annotations

import inspect
import json
from dataclasses import MISSING, dataclass, fields
from importlib import import_module
from typing import Any, get_args

import pytest

import windtunnel as wt
from windtunnel.base.options import argument, asks, option, options_of, request_of
from windtunnel.cli import VERBS
from windtunnel.cli.shared.options import JOB
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.cli.shared.verbs import verb_module
from windtunnel.goodput.options import GoodputCommandOptions
from windtunnel.memory.options import MemoryCommandOptions
from windtunnel.rl.options import RLPredictOptions
from windtunnel.search.options import SensitivityOptions
from windtunnel.service.client import RemoteService
from windtunnel.service.questions.offered import offered_verb
from windtunnel.service.web.openapi import describe
from windtunnel.serving.options import ServeOptions, ServeSearchOptions

VERBS_STATED: dict[str, type[Any]] = {
    "goodput": GoodputCommandOptions,
    "memory": MemoryCommandOptions,
    "sensitivity": SensitivityOptions,
    "serve-predict": ServeOptions,
    "serve-search": ServeSearchOptions,
    "rl-predict": RLPredictOptions,
}
"""Verb -> its options."""
OUTPUTS = [one.name for one in fields(Outputs) if one.metadata.get("option", True)]


@pytest.mark.parametrize("verb", VERBS_STATED)
def test_the_command_line_has_them(verb: str) -> None:
    stated = [one for one in options_of(VERBS_STATED[verb]) if one.shown]
    command = inspect.signature(verb_module(VERBS[verb][0]).command)
    source = {name for name, _ in JOB} if any(one.kind == "job" for one in stated) else set()
    named = [one for one in stated if one.kind != "job"]
    assert [name for name in command.parameters if name not in source] == [*(one.name for one in named), *OUTPUTS]
    assert source <= set(command.parameters)
    for one in named:
        typed = next(part for part in get_args(command.parameters[one.name].annotation) if hasattr(part, "help"))
        assert typed.help == one.help and (not one.word or one.word in (typed.default, *(typed.param_decls or ())))


@pytest.mark.parametrize("verb", VERBS_STATED)
def test_python_has_them(verb: str) -> None:
    function = getattr(wt, verb.replace("-", "_"))
    stated = {one.name: one for one in options_of(VERBS_STATED[verb])}
    parameters = inspect.signature(function).parameters
    assert set(parameters) <= set(stated) and set(stated) - set(parameters) <= {"splits", "closed", "snapshot", "picture"}
    for name, parameter in parameters.items():
        default = MISSING if parameter.default is inspect.Parameter.empty else parameter.default
        assert default == stated[name].default and f"`{name}`: {stated[name].help}" in (function.__doc__ or "")


@pytest.mark.parametrize("verb", VERBS_STATED)
def test_a_service_offers_them(verb: str) -> None:
    offered = {one.name.replace("-", "_"): one for one in offered_verb(verb).options}
    schema = describe()["paths"][f"/api/v1/{verb}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    for one in options_of(VERBS_STATED[verb]):
        if not one.shown or one.writes or one.request_name == "jobs":
            continue
        assert one.kind == "job" or offered[one.request_name].help == one.help
        names = {name.replace("-", "_") for name in json.loads(json.dumps(schema))["properties"]}
        assert one.request_name in names


def test_the_client_sends_what_differs_from_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(RemoteService, "ask", lambda self, verb, **asked: sent.append((verb, asked)))
    service = RemoteService("http://127.0.0.1:1")
    service.serve_predict("llama3.1-8b", "h100-ib", 8, tp=4, overrides=["cluster.gpus=8"], artefacts=["html"])
    service.serve_search("llama3.1-8b", "h100-ib", engines=("vllm", "sglang"), users=(1, 8), isl=512)
    assert sent == [
        ("serve-predict", {"artefacts": ["html"], "model": "llama3.1-8b", "on": "h100-ib", "gpus": 8, "tp": 4,
                           "set": ["cluster.gpus=8"]}),
        ("serve-search", {"model": "llama3.1-8b", "on": "h100-ib", "engine": "vllm,sglang", "users": "1,8", "isl": 512}),
    ]  # fmt: skip
    sent.clear()
    service.goodput("llama3-8b-8xh100", days=10, on="b200-ib", set={"plan.tp": 2})
    assert sent == [("goodput", {"on": "b200-ib", "set": {"plan.tp": 2}, "job": "llama3-8b-8xh100", "days": 10})]


@dataclass(frozen=True)
class ToyOptions:
    number: int = argument("Any number.", metavar="NUMBER", allowed="a number", example="41")
    times: float = option("How often.", 1.0, least=0.0)
    tags: tuple[str, ...] | None = option("Names.", None)


def test_a_function_takes_what_its_options_say() -> None:
    @asks(ToyOptions)
    def double(asked: ToyOptions) -> float:
        """Twice a number."""
        return 2.0 * asked.number * asked.times

    assert double(4, times=3.0) == 24.0
    assert str(inspect.signature(double)).startswith("(number: 'int', times: 'float' = 1.0")
    assert double.__doc__ == "Twice a number.\n\n`number`: Any number.\n`times`: How often.\n`tags`: Names."
    assert request_of(ToyOptions(4)) == {"number": 4}
    assert [(one.kind, one.word, one.is_required) for one in options_of(ToyOptions)] == [
        ("whole", "", True), ("number", "--times", False), ("text", "--tags", False),
    ]  # fmt: skip
    assert import_module("windtunnel.base.options") is not None
