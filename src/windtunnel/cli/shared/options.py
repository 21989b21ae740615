"""A verb's command made from its options."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, TypeVar

import typer

from windtunnel.base.errors import Nothing, SpecError
from windtunnel.base.options import StatedOption, options_of
from windtunnel.cli.shared import amounts, complete
from windtunnel.cli.shared.common import Megatron, ModelFile, On, Sets, Source, writable
from windtunnel.cli.shared.job import JobSource
from windtunnel.cli.shared.outputs import Outputs, with_outputs

Options = TypeVar("Options")

_TYPES: dict[str, Any] = {"text": str, "whole": int, "number": float, "flag": bool}


def command_of(
    options: Callable[..., Options], run: Callable[[Options, Outputs], None], *, of_a_run: bool = False
) -> Callable[..., None]:
    """The function that typer makes a command of: the options of the class, and those of `Outputs`; it calls `run` with both.

    A job is described by the options of `JOB`; `of_a_run`: whether the verb reads fields of a whole run. What is told of its source
    goes with the outputs.
    """
    kind: Any = options
    stated = [one for one in options_of(kind) if one.shown]
    jobs = [one.name for one in stated if one.kind == "job"]

    def command(*, outputs: Outputs, **given: Any) -> None:
        values = {one.name: _value(one, given[one.name]) for one in stated if one.kind != "job"}
        writable(*((one.word, values[one.name]) for one in stated if one.writes))
        for name in jobs:
            source = JobSource(given["job"], given["sets"] or (), given["on"], given["model"], given["megatron"], of_a_run)
            outputs = replace(outputs, source=source)
            values[name] = source.load().job
        run(options(**values), outputs)

    own = [one for one in stated if one.kind != "job"]
    parameters = [
        *(_parameter(name, None, annotation) for name, annotation in JOB[:2] if jobs),
        *(_parameter(one.name, _default(one), _annotation(one)) for one in own),
        *(_parameter(name, None, annotation) for name, annotation in JOB[2:] if jobs),
    ]
    outputs = inspect.Parameter("outputs", inspect.Parameter.KEYWORD_ONLY, annotation=Outputs)
    command.__signature__ = inspect.Signature([*parameters, outputs])  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in (*parameters, outputs)}
    return with_outputs(command)


JOB: tuple[tuple[str, Any], ...] = (("job", Source), ("sets", Sets), ("on", On), ("model", ModelFile), ("megatron", Megatron))
"""Options that describe a job: the first two stand before those of a verb, the others behind them."""


def _parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=annotation)


def _default(one: StatedOption) -> Any:
    if one.is_required:
        return None
    return (
        ",".join(map(str, one.default)) if one.commas and one.default is not None else (one.default if one.default != () else None)
    )


def _annotation(one: StatedOption) -> Any:
    offers = getattr(complete, one.offers) if one.offers else None
    given: dict[str, Any] = {"help": one.help, "autocompletion": offers} | ({"metavar": one.metavar} if one.metavar else {})
    if one.commas or one.reads:
        kind: Any = str | None
    else:
        kind = list[str] | None if one.many else _TYPES[one.kind] if one.kind == "flag" else _TYPES[one.kind] | None
        given |= {name: value for name, value in (("min", one.least), ("max", one.most)) if value is not None}
        if one.kind == "whole":
            given |= {name: int(given[name]) for name in ("min", "max") if name in given}
    return Annotated[kind, typer.Option(one.word, **given) if one.word else typer.Argument(**given)]


def _value(one: StatedOption, given: Any) -> Any:
    """The option's value. SpecError for one that has to be said, and for a list whose parts are none."""
    if given is None:
        if one.is_required:
            bare = f"Write {one.word} {one.example}." if one.word else f"Such as {one.example}."
            example = one.example if one.example.endswith(".") else bare
            raise SpecError(one.word or one.metavar, Nothing(), one.allowed, example)
        return one.default
    if one.reads:
        return getattr(amounts, one.reads)(given, one.word)
    if not one.commas:
        return tuple(given) if one.many else given
    words = [word.strip() for word in given.split(",") if word.strip()]
    if one.kind == "text":
        return tuple(words)
    try:
        values = [_TYPES[one.kind](word) for word in words]
    except ValueError:
        values = []
    if not values or (one.least is not None and min(values) < one.least):
        raise SpecError(one.word, given, "positive numbers with commas, such as 1,8,64")
    return tuple(values)
