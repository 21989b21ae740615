"""What a verb takes, said once: a frozen dataclass whose fields are its options, with their help. The command line, the function of
Python, the client of a service and the fields of a page are made from it.

    @dataclass(frozen=True)
    class MemoryOptions:
        job: str | Path | Job = argument("A job or a model of the catalogue.")
        _: KW_ONLY
        stage: int | None = option("Show one stage.", None, least=0)

Options that several verbs have, each said once: `seed: int = shared.seed()` in the class of a verb.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, TypeVar

from windtunnel.base.dataclasses import MISSING, Field, dataclass, field, fields
from windtunnel.base.fidelity import FIDELITIES

P = ParamSpec("P")
Options = TypeVar("Options")
Answer = TypeVar("Answer")

_KEY = "option"


@dataclass(frozen=True)
class StatedOption:
    """An option of a verb.

    `name`: of the field; `word`: on the command line ("" for a positional argument), under which a service takes it too; `short`:
    its one letter; `request`: its name in a request, where that is another one. `kind`: text, whole, number or flag, or job, which
    a command line describes by several options. `many`: several values, with `commas` between them or repeated; `joined`: a text
    with commas, for which Python may give a list; `reads`: the function of `cli/shared/amounts.py` that reads its text.
    `default`: its value, MISSING for one that has to be said; `least`, `most`: of a number; `choices`: those that a form offers;
    `offers`: what completion does (jobs, machines, models, fields, fidelities); `allowed`, `example`: what an error says, where it
    is not the parser's own. `writes`: it names a file that is written. `shown`: False for one that Python alone has; `hidden`: the
    help leaves it out.
    """

    name: str
    help: str
    word: str
    kind: str
    many: bool
    commas: bool
    default: Any
    metavar: str
    least: float | None
    most: float | None
    choices: tuple[str, ...]
    offers: str
    allowed: str
    example: str
    reads: str
    writes: bool
    shown: bool
    hidden: bool
    joined: bool
    short: str
    request: str

    @property
    def is_required(self) -> bool:
        return self.default is MISSING

    @property
    def request_name(self) -> str:
        """Its name in a request to a service, and of its field in a form."""
        return self.request or self.word.partition("/")[0].lstrip("-").replace("-", "_") or self.name


def option(
    help: str,
    default: Any = MISSING,
    *,
    word: str = "",
    metavar: str = "",
    least: float | None = None,
    most: float | None = None,
    choices: Sequence[str] = (),
    commas: bool = False,
    offers: str = "",
    allowed: str = "",
    example: str = "",
    reads: str = "",
    writes: bool = False,
    shown: bool = True,
    hidden: bool = False,
    joined: bool = False,
    short: str = "",
    request: str = "",
) -> Any:
    """A field that is an option; see `StatedOption`. `word`: by default `--name-of-the-field`."""
    stated = {
        "help": help, "word": word or None, "metavar": metavar, "least": least, "most": most, "choices": tuple(choices),
        "commas": commas, "offers": offers,
        "allowed": allowed, "example": example, "reads": reads, "writes": writes, "shown": shown, "hidden": hidden,
        "joined": joined, "short": short, "request": request,
    }  # fmt: skip
    return field(metadata={_KEY: stated}, **({} if default is MISSING else {"default": default}))


def argument(help: str, default: Any = MISSING, **more: Any) -> Any:
    """A field that is a positional argument."""
    return option(help, default, word=" ", **more)


def options_of(kind: type[Any]) -> tuple[StatedOption, ...]:
    """The options of a verb's class, in their order."""
    return tuple(state_option(one) for one in fields(kind) if _KEY in one.metadata)


def state_option(one: Field[Any]) -> StatedOption:
    """What a field says of its option."""
    given = dict(one.metadata[_KEY])
    word = given.pop("word")
    annotation = re.sub(r"<class '(?:\w+\.)*(\w+)'>|(?:\w+\.)+", r"\1", str(one.type))  # also of a type that is no text
    many = "Sequence[" in annotation and not given["joined"]
    named = f"--{one.name.replace('_', '-')}" if word is None else word.strip()
    return StatedOption(
        name=one.name,
        word=named,
        kind="job" if given["request"] == "job" else _kind_of(annotation),
        many=many,
        default=one.default,
        **given,
    )


def _kind_of(annotation: str) -> str:
    """What a command line reads for a type: text where anything else than a number may be said."""
    names = set(re.findall(r"\w+", annotation)) - {"None", "Sequence"}
    if names == {"bool"}:
        return "flag"
    return "whole" if names == {"int"} else "number" if names <= {"int", "float"} else "text"


def asks(options: Callable[P, Options], *, spread: bool = False) -> Callable[[Callable[[Options], Answer]], Callable[P, Answer]]:
    """Makes a function of a verb's options into one that takes these as its arguments, with their names, defaults and help.
    `spread`: all positional arguments are the first option."""

    def decorate(answer: Callable[[Options], Answer]) -> Callable[P, Answer]:
        import inspect  # here: it is slow to import, and who imports the package asks for few verbs

        def ask(*given: P.args, **named: P.kwargs) -> Answer:
            first: Any = (given,) if spread else given
            return answer(options(*first, **named))

        kind: Any = options
        lines = [f"`{one.name}`: {one.help}" for one in options_of(kind)]
        ask.__name__ = ask.__qualname__ = answer.__name__
        ask.__module__ = answer.__module__
        ask.options, ask.of_options = kind, answer  # type: ignore[attr-defined]
        ask.__doc__ = "\n".join([inspect.getdoc(answer) or "", "", *lines])
        signature = inspect.signature(kind)
        if spread:
            first, *others = signature.parameters.values()
            gathered = first.replace(kind=inspect.Parameter.VAR_POSITIONAL, default=inspect.Parameter.empty)
            signature = signature.replace(parameters=[gathered, *others])
        returns = answer.__annotations__["return"]
        ask.__signature__ = signature.replace(return_annotation=returns)  # type: ignore[attr-defined]
        ask.__annotations__ = {one.name: one.annotation for one in signature.parameters.values()} | {"return": returns}
        return ask

    return decorate


def request_of(options: Any) -> dict[str, Any]:
    """What a service is asked for these options: those that are not the default, by the names of the command line; lists that have
    commas there as such a text."""
    asked = {}
    for one in options_of(type(options)):
        value = getattr(options, one.name)
        if not (one.shown or one.request) or value == one.default:
            continue
        if one.many and not one.commas and one.kind != "job" and not one.request_name.startswith("set"):
            value = _list_of(value)
        is_joined = (one.commas or one.joined) and isinstance(value, (list, tuple))
        asked[one.request_name] = ",".join(map(str, value)) if is_joined else value
    return asked


def _list_of(value: Any) -> list[Any]:
    """Several values as a list: one alone, or NAME=VALUE of a table."""
    if isinstance(value, Mapping):
        return [f"{name}={one}" for name, one in value.items()]
    return list(value) if isinstance(value, (list, tuple)) else [value]


_SOURCE = "A job or a model of the catalogue, a job file, a config.json, or Megatron-LM flags."
_ON = "A cluster: the machine of a model or a job. A job: its machine, plan and runtime. A profile's .parquet: its device."
_FAULT = "flow, packet: n0.nic0--leaf*:down=10ms,up=11ms, leaf0.3--spine*:slow=0.5; packet: leaf0.3:loss=1e-5; repeatable."
_TIMELINE = "Write the timeline: Perfetto, or Chrome's JSON for a .json name."

job = partial(argument, "The job.", metavar="JOB", offers="jobs", request="job")
"""A command line describes it by a name or a file, changes, a machine, a model or flags."""
source = partial(argument, _SOURCE, None, metavar="JOB", offers="jobs")
model = partial(option, "Take the model from a Hugging Face config.json.", None, metavar="CONFIG.JSON")
megatron = partial(option, "Take model, plan and runtime from Megatron-LM flags.", None, metavar="FLAGS")
sets = partial(
    option, "Change a field, such as plan.tp=4 of a job; repeatable.", (), word="--set", metavar="KEY=VALUE", offers="fields"
)
on = partial(option, _ON, None, word="--on", metavar="JOB|CLUSTER|PROFILE", offers="machines")
"""A job's machine, where the job is not the command line's own."""
network = partial(option, "Network fidelity: closed, flow or packet.", "closed", offers="fidelities", choices=tuple(FIDELITIES))
seed = partial(option, "Seed of the hashes that choose among equal-cost paths.", 1, least=0)
threads = partial(option, "packet: threads; the result is the same for any number.", 1, least=1, most=1024)
skip = partial(option, "packet: reuse the result of transfer patterns that repeat.", False)
fault = partial(option, _FAULT, (), metavar="PATTERN:EFFECT")
progress = partial(option, "Called with the share that is done.", None, shown=False)
profile = partial(option, "Measurements of the job's GPU; they take precedence over fitted curves.", None, metavar="PARQUET")
kernels = partial(option, "Curves of `fit kernels` instead of the catalogue's.", None, metavar="FILE.json")
gpu = partial(option, "GPU of kernel tables: a catalogue name, or a GPU's TOML file.", None, metavar="ID|FILE")
dtype = partial(option, "Number format of kernel tables that do not state it, such as bf16.", None)
form = partial(option, "The format, if the content does not show it.", None, word="--as", metavar="FORMAT")
timeline = partial(option, _TIMELINE, None, word="--trace", metavar="FILE", writes=True)
objective = partial(option, "What to optimise; several give a Pareto front.", "time", metavar="NAME,...", joined=True)
out = partial(option, default="-", word="--out", short="-o", metavar="FILE|-", writes=True)
"""The file that a verb writes; its help says what is in it."""
json = partial(option, "Write JSON; - prints only that.", None, metavar="FILE|-", writes=True)
quiet = partial(option, "Print no report.", False, short="-q")
