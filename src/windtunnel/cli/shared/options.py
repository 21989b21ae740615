"""A verb's command made from its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.base.options import StatedOption, options_of
from windtunnel.base.verbs import Verb, load_named
from windtunnel.cli.shared import amounts
from windtunnel.cli.shared.common import TYPES, Megatron, ModelFile, On, Sets, Source, annotation_of, bar, show_spinner, writable
from windtunnel.cli.shared.outputs import Outputs, with_outputs

if TYPE_CHECKING:
    from windtunnel.cli.shared.job import JobSource


def command_of(verb: Verb) -> Callable[..., None]:
    """The function that typer makes a verb's command of.

    Its parameters are the verb's options, and those of `Outputs` where its own function takes `outputs`. A job is described by the
    options of `JOB`, unless the class has its own; what is told of its source goes with the outputs, or is the function's `source`.
    """
    run: Callable[..., None] = _answer if verb.command is None else load_named(verb.command)
    takes = [*inspect.signature(run).parameters]
    if verb.options is None:
        return with_outputs(run) if "outputs" in takes else run
    run, takes = (partial(run, verb), takes[2:]) if run is _answer else (run, takes[1:])
    read, parameters = _reader(load_named(verb.options), verb)
    if takes != ["outputs"]:
        return _with_parameters(lambda **given: run(*read(given)[: 1 + len(takes)]), parameters)

    def command(*, outputs: Outputs, **given: Any) -> None:
        values, source = read(given)
        run(values, outputs if source is None else replace(outputs, source=source))

    last = inspect.Parameter("outputs", inspect.Parameter.KEYWORD_ONLY, annotation=Outputs)
    return with_outputs(_with_parameters(command, [*parameters, last]))


def _answer(verb: Verb, asked: Any, outputs: Outputs) -> None:
    """Asks a verb's function, and shows what it answers; meanwhile its progress, or that it is busy."""
    ask: Any = verb.answers
    text = verb.busy.format(**vars(asked))
    with bar(text) if hasattr(asked, "progress") else show_spinner(text) if text else nullcontext() as shown:
        answer = getattr(ask, "of_options", ask)(replace(asked, progress=shown) if hasattr(asked, "progress") else asked)
    table = getattr(answer, "as_dict", None)
    if table is None:
        from windtunnel.api.data import as_dict  # here: windtunnel-fleet has no such verb

        table = as_dict(answer)
    outputs.show(load_named(verb.sheet)(answer), table)


JOB: dict[str, Any] = {"job": Source, "sets": Sets, "on": On, "model": ModelFile, "megatron": Megatron}
"""Options that describe a job: the first two stand before those of a verb, the others behind them."""


def _reader(
    options: Callable[..., Any], verb: Verb
) -> tuple[Callable[[dict[str, Any]], tuple[Any, JobSource | None]], list[inspect.Parameter]]:
    """What makes options of a command line's values, with the source of their job; and the parameters of the command."""
    kind: Any = options
    order, shown = verb.first.split(), [one for one in options_of(kind) if one.shown]
    job = next((one.name for one in shown if one.kind == "job"), None)
    own = {one.name: one for one in shown if one.kind != "job"}
    names = {_parameter_name(one, job is not None): one for one in own.values()}
    of_job = {name: annotation for name, annotation in JOB.items() if name not in names} if job is not None else {}

    def read(given: dict[str, Any]) -> tuple[Any, JobSource | None]:
        values = {one.name: _value(one, given[name]) for name, one in names.items()}
        writable(*((one.word, values[one.name]) for one in own.values() if one.writes))
        if job is None:
            return options(**values), None
        from windtunnel.cli.shared.job import JobSource, load_numpy  # here: windtunnel-fleet has no jobs

        load_numpy()
        said = {name: given[name] for name in of_job}
        source = JobSource(**{**said, "sets": said.get("sets") or ()}, of_a_run=verb.of_a_run)
        values[job] = source.load().job if verb.loads else None
        return options(**values), source

    parameters = {name: _parameter(name, _default(one), annotation_of(one)) for name, one in names.items()}
    parameters |= {name: _parameter(name, None, annotation) for name, annotation in of_job.items()}
    first, last = ([name for name in part if name in of_job] for part in (list(JOB)[:2], list(JOB)[2:]))
    called = {one.name: name for name, one in names.items()}
    listed = dict.fromkeys([*(() if "job" in order else first), *(called.get(name, name) for name in order), *names, *last])
    return read, [parameters[name] for name in listed]


def _parameter_name(one: StatedOption, of_job: bool) -> str:
    return "sets" if of_job and one.word == "--set" else one.name if one.word else one.request_name


def _with_parameters(command: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """A function that typer takes for one with these parameters."""
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    return command


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _default(one: StatedOption) -> Any:
    if one.is_required:
        return None if one.allowed else inspect.Parameter.empty
    if isinstance(one.default, (tuple, list)):
        return ",".join(map(str, one.default)) or None
    return one.default if one.default is None or not one.reads else str(one.default)


def _value(one: StatedOption, given: Any) -> Any:
    """The option's value. SpecError for one that has to be said, and for a list whose parts are none."""
    if given is None or (given == [] and not one.is_required):
        if one.is_required:
            bare = f"Write {one.word} {one.example}." if one.word else f"Such as {one.example}."
            example = one.example if one.example.endswith(".") else bare
            raise SpecError(one.word or one.metavar, Nothing(), one.allowed, example)
        return one.default
    if one.reads:
        return getattr(amounts, one.reads)(given, one.word, *([one.allowed] if one.allowed else []))
    if not one.commas:
        return tuple(given) if one.many else given
    words = [word.strip() for word in given.split(",") if word.strip()]
    if one.kind == "text":
        return tuple(words)
    try:
        values = [TYPES[one.kind](word) for word in words]
    except ValueError:
        values = []
    if not values or (one.least is not None and min(values) < one.least):
        raise SpecError(one.word, given, "positive numbers with commas, such as 1,8,64")
    return tuple(values)
