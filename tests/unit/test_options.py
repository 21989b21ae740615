"""A verb's options are said once: the command line, the function of Python, the client, the OpenAPI and the page have the same."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any

import pytest
import typer

import windtunnel as wt
from windtunnel.base.options import argument, asks, option, options_of, request_of
from windtunnel.base.verbs import OTHERWISE, Verb, all_verbs, load_named
from windtunnel.cli import app
from windtunnel.cli.shared.options import JOB
from windtunnel.cli.shared.outputs import Outputs
from windtunnel.service.client import RemoteService
from windtunnel.service.questions import offered_verbs
from windtunnel.service.web.api import describe

BARE = {
    "serve": "a process: the options are those of its settings, and no function has them",
    "fleet run": "the words behind its own are a command; no function has its options",
    "fleet trace": "no function has its options",
    "fleet driver": "goes on with what a folder keeps; no function has its options",
    "fleet ship": "no function has its options: a policy has them in other units",
    "fleet incidents": "no function has its options",
    "fleet dashboard": "it has no options",
    "fleet hang": "its function takes what it is about alone",
    "fleet diagnose": "its function takes options of each test, which this verb makes of a cluster",
    "fleet monitor": "an option of it is read from the environment",
    "fleet collect": "its function takes a policy, which this verb makes of days and GiB",
    "fleet checkpoints ls": "no function has its options",
    "fleet checkpoints verify": "a folder of checkpoints is all that it is about",
    "fleet checkpoints rm": "steps stand as words behind the folder",
    "fleet checkpoints export": "its function needs torch to be imported",
    "profile run": "its function takes cases and settings as objects, which this verb makes of words",
    "profile sweep": "its function takes cases as objects, which this verb makes of words",
    "profile show": "its function takes what it is about alone",
    "profile export": "its function takes what it is about alone",
    "profile gains": "its function takes what it is about alone",
    "runs show": "its function takes what it is about alone",
}
"""Verbs whose options stand in the command's own signature, from which the OpenAPI derives -> why a class would add nothing."""

APART = ("compare",)
"""Verbs whose class for the command line is not that of the function: names or files of both jobs are one list of words."""
NO_ARGUMENTS = ("fit power",)
"""Verbs whose function takes nothing."""


COMMANDS = {" ".join(verb.words): verb for verb in all_verbs().values()}
STATED: dict[str, type[Any]] = {name: load_named(verb.options) for name, verb in COMMANDS.items() if verb.options is not None}
"""Verb -> the class of its options."""
OUTPUTS = {one.name for one in fields(Outputs) if one.metadata.get("option", True)}


def _function_of(verb: str) -> Callable[..., Any] | None:
    """The function of Python that answers a verb; None where there is none, or torch is missing."""
    try:
        return None if COMMANDS[verb].process else COMMANDS[verb].answers
    except (AttributeError, ImportError):
        return None


def _defaults(function: Callable[..., Any]) -> dict[str, Any]:
    empty = inspect.Parameter.empty
    return {name: MISSING if one.default is empty else one.default for name, one in inspect.signature(function).parameters.items()}


def _command_of_typer(words: str) -> Any:
    command: Any = typer.main.get_command(app)
    for word in words.split():
        command = command.get_command(None, word)
    return command.get_command(None, OTHERWISE) if hasattr(command, "list_commands") else command


def test_every_verb_says_its_options_in_a_class_or_is_named_with_a_reason() -> None:
    assert set(COMMANDS) == {*STATED, *BARE} and not set(STATED) & set(BARE)
    assert all(len(why) > 15 for why in BARE.values())
    assert all(
        (_function_of(name) is None) == bool(verb.process) for name, verb in COMMANDS.items() if name != "fleet checkpoints export"
    )


@pytest.mark.parametrize("verb", BARE)
def test_a_verb_without_a_class_says_no_default_otherwise_than_its_function(verb: str) -> None:
    function = _function_of(verb)
    if function is None:
        return
    own = _defaults(load_named(COMMANDS[verb].command))
    plain = {name: value for name, value in _defaults(function).items() if isinstance(value, (str, int, float, bool))}
    assert {name: own[name] for name in plain if name in own} == {name: plain[name] for name in plain if name in own}


@pytest.mark.parametrize("verb", STATED)
def test_the_command_line_has_them(verb: str) -> None:
    stated = [one for one in options_of(STATED[verb]) if one.shown]
    parameters = {one.name: one for one in _command_of_typer(verb).params if one.name != "help"}
    of_job = [one for one in stated if one.kind == "job"]
    known = {word for one in stated for word in (one.word.split("/") if one.word else [])}
    assert not of_job or set(JOB) <= set(parameters) or "on" in {one.name for one in stated}
    for one in stated:
        if one.kind == "job":
            continue
        name = "sets" if of_job and one.word == "--set" else one.name if one.word else one.request_name
        typed = parameters.pop(name)
        assert typed.help == one.help and typed.required == (one.is_required and not one.allowed)
        assert not one.word or known & {*typed.opts, *typed.secondary_opts}
        assert not one.short or one.short in typed.opts
    assert set(parameters) <= OUTPUTS | (set(JOB) if of_job else set())


@pytest.mark.parametrize("verb", [verb for verb in STATED if verb not in NO_ARGUMENTS and _function_of(verb) is not None])
def test_python_has_them(verb: str) -> None:
    function = _function_of(verb)
    assert function is not None
    kind = getattr(function, "options", function if inspect.isclass(function) else None)
    assert kind is not None, f"wt.{function.__name__} states the options of `{verb}` once more: make it with `asks`"
    assert verb in APART or issubclass(STATED[verb], kind)
    stated = {one.name: one for one in options_of(kind)}
    assert list(_defaults(function)) == [name for name in inspect.signature(kind).parameters]
    for name, default in _defaults(function).items():
        spread = inspect.signature(function).parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        assert spread or default == stated[name].default
        assert inspect.isclass(function) or f"`{name}`: {stated[name].help}" in (function.__doc__ or "")


def test_every_function_of_a_verb_is_made_from_its_options() -> None:
    for verb in COMMANDS:
        if verb not in (*BARE, *NO_ARGUMENTS) and (function := _function_of(verb)) is not None:
            assert hasattr(function, "options") or inspect.isclass(function), verb


@pytest.mark.parametrize("verb", [verb for verb in STATED if COMMANDS[verb].offered is True])
def test_a_service_offers_them(verb: str) -> None:
    offered = offered_verbs()[verb]
    taken = {one.name.replace("-", "_"): one for one in offered.options}
    written = {name.replace("-", "_") for name, *_ in offered.outputs}
    path = f"/api/v1/{verb.replace(' ', '/')}"
    schema = describe()["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"]
    for one in options_of(STATED[verb]):
        if not one.shown or one.request_name in written or one.request_name in ("json", "quiet", "write", "jobs"):
            continue
        if one.word.lstrip("-") in COMMANDS[verb].withheld:
            continue
        told = taken[one.request_name.replace("-", "_")]
        if one.kind == "job":
            continue
        property = schema[told.name]
        assert told.help == one.help == property["description"]
        assert one.is_required and not one.allowed or told.required is False
        if not one.commas and not one.reads and not one.many and one.default not in (MISSING, None, ()):
            assert property.get("default") == one.default
        for limit, key in ((one.least, "minimum"), (one.most, "maximum")):
            assert limit is None or one.commas or property[key] == limit


def test_the_client_asks_with_the_classes_of_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    service = RemoteService("http://127.0.0.1:1")
    alone = {name for name, verb in COMMANDS.items() if " " not in name and verb.offered is True}
    assert {name.replace("-", "_").replace("import", "read") for name in alone} <= {*dir(service)}
    with pytest.raises(AttributeError, match="has no 'capture'"):  # it runs a script of whoever asks
        _ = service.capture
    sent: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(RemoteService, "ask", lambda self, verb, **asked: sent.append((verb, asked)))
    service.serve_predict("llama3.1-8b", "h100-ib", 8, tp=4, overrides=["cluster.gpus=8"], artefacts=["html"])
    service.serve_search("llama3.1-8b", "h100-ib", engines=("vllm", "sglang"), users=(1, 8), isl=512)
    service.goodput("llama3-8b-8xh100", days=10, on="b200-ib", set={"plan.tp": 2})
    service.search("llama3-8b-8xh100", {"plan.tp": (4, 8)}, ("time", "dollars"), top=3, jobs=2)
    service.collective("h100-ib", sizes=(1e6, 2e6), settings={"NCCL_ALGO": "Ring"}, network="flow", progress=print)
    service.whatif(Path("run"), "fp8", gpu="a100-sxm-80gb")
    service.compare(["rank0.json", "rank1.json"], "job.toml", set_b={"plan.tp": 2})
    service.read("config.json", on="h100-ib", format="hf")
    service.export("llama3-8b-8xh100", "megatron", {"version": "core"})
    assert sent == [
        ("serve-predict", {"artefacts": ["html"], "model": "llama3.1-8b", "on": "h100-ib", "gpus": 8, "tp": 4,
                           "set": ["cluster.gpus=8"]}),
        ("serve-search", {"model": "llama3.1-8b", "on": "h100-ib", "engine": "vllm,sglang", "users": "1,8", "isl": 512}),
        ("goodput", {"on": "b200-ib", "set": {"plan.tp": 2}, "job": "llama3-8b-8xh100", "days": 10}),
        ("search", {"jobs": 2, "job": "llama3-8b-8xh100", "set": {"plan.tp": (4, 8)}, "objective": "time,dollars", "top": 3}),
        ("collective", {"progress": print, "cluster": "h100-ib", "bytes": "1000000.0,2000000.0", "env": ["NCCL_ALGO=Ring"],
                        "network": "flow"}),
        ("whatif", {"paths": [Path("run")], "change": ["fp8"], "from": "a100-sxm-80gb"}),
        ("compare", {"things": ["rank0.json", "rank1.json", "job.toml"], "set_b": {"plan.tp": 2}}),
        ("import", {"paths": ["config.json"], "on": "h100-ib", "as": "hf"}),
        ("export", {"job": "llama3-8b-8xh100", "form": "megatron", "option": ["version=core"]}),
    ]  # fmt: skip
    with pytest.raises(wt.SpecError, match="a service does not take it"):
        service.search("llama3-8b-8xh100", limits=wt.SearchLimits(0.1, 5.0))


SECTIONS = {
    "choose.WholeRunCard": ("goodput",),
    "choose.build_search": ("search",),
    "choose.build_sheet": ("plan",),
    "network.build_flows": ("flows",),
    "network.build_sweep": ("collective",),
    "network._machine_fields": ("flows", "collective"),
    "network.build_fabric": ("collective",),
    "serving._shared_fields": ("serve-predict", "serve-search"),
    "serving.build_front": ("serve-search",),
    "serving.build_server": ("serve-predict",),
    "serving.build_fleet": ("serve-fleet",),
    "serving.build_rl": ("rl-predict",),
    "trust.PublishedView": ("validate",),
}
"""Part of the page that makes a form -> the verbs that it asks."""


def _parts_with_options() -> dict[str, ast.AST]:
    """Classes and functions of the page's files that make a field of an option."""
    folder = Path(wt.__file__).parent / "service" / "page" / "sections"
    return {
        f"{path.stem}.{part.name}": part
        for path in folder.glob("*.py")
        for part in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(part, ast.ClassDef | ast.FunctionDef) and ".option(" in ast.unparse(part)
    }


PARTS = _parts_with_options()


@pytest.mark.parametrize("section", SECTIONS)
def test_a_form_has_its_fields_from_the_options(section: str) -> None:
    known = {one.request_name for verb in SECTIONS[section] for one in options_of(STATED[verb])}
    named: dict[str, set[str]] = {"option": set(), "text": set(), "choice": set(), "lines": set()}
    for call in ast.walk(PARTS[section]):
        match call:
            case ast.Call(func=ast.Attribute(attr=made), args=[ast.Constant(value=name), *_]) if made in named:
                named[made].add(str(name))
    assert named["option"] <= known and (named["option"] or section == "serving.build_fleet")  # which names them in a loop
    assert named["text"] & known <= {"set"}  # changes of a job are words there
    assert not named["choice"] & known and named["lines"] & known <= {"job", "log"}  # both are written out


def test_every_form_of_a_verb_is_looked_at() -> None:
    assert PARTS.keys() == {*SECTIONS, "verbs._build_form"}  # which has all options of any verb


def test_a_field_of_a_form_reads_what_its_option_allows() -> None:
    from windtunnel.service.page.fields import first_of, read_percent, reads_of, why_unread

    search = {one.name: one for one in options_of(STATED["search"])}
    serve = {one.name: one for one in options_of(STATED["serve-predict"])}
    assert [first_of(one) for one in (serve["model"], serve["isl"], serve["tp"], search["gap"])] == ["llama3.1-8b", "1024", "", "0"]
    assert reads_of(serve["isl"]) is None and reads_of(search["on"]) is None
    percent = reads_of(search["margin"], read_percent, 100)
    assert percent is not None and percent("5.5 %") == 5.5
    assert why_unread(percent, "91") == "from 0 to 90"
    gpus = reads_of(serve["gpus"])
    assert gpus is not None and gpus("8") == 8 and why_unread(gpus, "0") == "from 1"


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
    assert double.options is ToyOptions  # type: ignore[attr-defined]


def test_an_option_stated_twice_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def double(number: int, times: float = 2.0) -> float:
        return number * times

    monkeypatch.setitem(COMMANDS, "double", Verb("Twice a number.", "double", function=double))
    with pytest.raises(AssertionError):
        test_every_verb_says_its_options_in_a_class_or_is_named_with_a_reason()
    monkeypatch.setitem(STATED, "double", ToyOptions)
    with pytest.raises(AssertionError, match="once more"):
        test_python_has_them("double")
    with pytest.raises(AssertionError):
        test_every_function_of_a_verb_is_made_from_its_options()
