"""Options as typer reads them: parameters with their help. Shell completion: names of the catalogue, fields of a job. `windtunnel
--install-completion` sets it up.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from windtunnel.base.options import StatedOption, state_option


def jobs(incomplete: str) -> list[str]:
    """Jobs, then models of the catalogue."""
    from windtunnel.spec import names

    return [name for name in (*names("jobs"), *names("models")) if name.startswith(incomplete)]


def machines(incomplete: str) -> list[str]:
    """Clusters, then jobs of the catalogue."""
    from windtunnel.spec import names

    return [name for name in (*names("clusters"), *names("jobs")) if name.startswith(incomplete)]


def fidelities(incomplete: str) -> list[str]:
    """The levels of network fidelity."""
    from windtunnel.base.fidelity import FIDELITIES

    return [name for name in FIDELITIES if name.startswith(incomplete)]


def models(incomplete: str) -> list[str]:
    """Models of the catalogue."""
    from windtunnel.spec import names

    return [name for name in names("models") if name.startswith(incomplete)]


def fields(incomplete: str) -> list[str]:
    """Fields of a job, such as `plan.tp=`."""
    from windtunnel.spec import Job
    from windtunnel.spec.loading.explain import paths

    return [f"{path}=" for path in paths(Job) if path.startswith(incomplete)]


TYPES: dict[str, Any] = {"text": str, "whole": int, "number": float, "flag": bool}


def annotation_of(one: StatedOption) -> Any:
    """What typer reads of a parameter that is this option."""
    offers = globals()[one.offers] if one.offers else None
    given: dict[str, Any] = {"help": one.help, "autocompletion": offers, "hidden": one.hidden}
    given |= {"metavar": one.metavar} if one.metavar else {}
    kind: Any = str if one.commas or (one.reads and not one.many) else TYPES[one.kind]
    if kind is str and one.many and not one.commas:
        kind = list[str]
    elif kind in (int, float):
        given |= {name: kind(value) for name, value in (("min", one.least), ("max", one.most)) if value is not None}
    if kind is not bool and (one.allowed or not one.is_required):
        kind = kind | None
    words = [word for word in (one.word, one.short) if word]
    return Annotated[kind, typer.Option(*words, **given) if words else typer.Argument(**given)]


def stated_alone(kind: str, name: str, option: Any) -> Any:
    """The same for an option that is no field of a class: `kind` and `name` as of one."""
    option.name, option.type = name, kind
    return annotation_of(state_option(option))
