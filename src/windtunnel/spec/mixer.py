"""Mixers: what mixes tokens in a layer. What nouns have to know of a mixer, and the list of mixers.

A mixer is one file of `workload/mixers/`, which has its rows too, and one line of MIXERS.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

from windtunnel.base.errors import PlanError, SpecError
from windtunnel.base.registry import Registry


class Mixer:
    """A mixer. Its class variables say what others have to know of it."""

    words: ClassVar[str]
    """What it is called in labels of layers."""
    letter: ClassVar[str] = ""
    """Of a layer with it in `mixer_pattern`."""
    alone: ClassVar[str] = ""
    """In `layer_pattern`, of a layer that has nothing else, as Megatron writes hybrid models."""
    mixes: ClassVar[bool] = True
    """Whether a layer has such a part at all, with its norm and its residual."""
    windowed: ClassVar[bool] = False
    """Whether it may see the model's window alone."""
    gated: ClassVar[bool] = False
    """Whether `attention_gate` gates its output."""
    heads_field: ClassVar[str] = ""
    """The field of the model that states its heads, and is stated only beside it."""
    ffn_field: ClassVar[str] = ""
    """The field of the model that states another inner width of MLPs in layers with it."""
    adapted: ClassVar[tuple[str, ...]] = ()
    """Megatron's names of its products that adapters may stand beside."""
    state_space: ClassVar[bool] = False
    """Whether it is a state-space recurrence, as publications count hybrid models."""
    measured: ClassVar[str] = ""
    """The sub-module of datasets that is this one."""
    published: ClassVar[bool] = False
    """Whether the record of published steps has models with it."""

    def suits(self, model: Any) -> bool:
        """Whether a letter that several mixers have means this one in `model`."""
        return True

    def recurrence_in(self, model: Any) -> str:
        """The measured kernel that is its scan in `model`; empty where it has none."""
        return ""

    def check(self, model: Any, plan: Any) -> None:
        """SpecError or PlanError for a model or a plan that contradicts it."""
        return None


MIXERS: Registry[Mixer] = Registry(
    "mixers",
    "mixer",
    {
        "self_attention": "workload.mixers.self_attention:SELF_ATTENTION",
        "latent_attention": "workload.mixers.latent_attention:LATENT_ATTENTION",
        "mamba2": "workload.mixers.mamba2:MAMBA2",
        "linear_attention": "workload.mixers.linear_attention:LINEAR_ATTENTION",
        "compressed_attention": "workload.mixers.compressed_attention:LIGHT",
        "heavy_attention": "workload.mixers.compressed_attention:HEAVY",
        "reused_attention": "workload.mixers.reused_attention:REUSED_ATTENTION",
        "gated_convolution": "workload.mixers.gated_convolution:GATED_CONVOLUTION",
        "no_mixer": "workload.mixers.no_mixer:NO_MIXER",
    },
)
"""The first is what layers have whose pattern says nothing."""

PAIRED = "DE"
"""Letters of `layer_pattern` of layers that have a mixer too: a dense MLP, experts."""


def of_letter(letter: str, model: Any) -> str:
    """The mixer that a letter of `mixer_pattern` means in `model`."""
    return next(name for name, mixer in MIXERS.items() if mixer.letter == letter and mixer.suits(model))


def of_letter_alone(letter: str, model: Any) -> str:
    """The mixer of a layer that is one sub-module, by its letter in `layer_pattern`; of a letter of an MLP what has no tokens to
    mix."""
    for name, mixer in MIXERS.items():
        if mixer.alone == letter and mixer.suits(model):
            return name
    return next(name for name, mixer in MIXERS.items() if not mixer.mixes)


def _letters_of_mixers(mixers: Iterable[Mixer]) -> str:
    return "".join(dict.fromkeys(mixer.letter for mixer in mixers))


def _letters_of_layers(mixers: Iterable[Mixer]) -> str:
    alone = dict.fromkeys(mixer.alone for mixer in mixers if mixer.alone)
    return PAIRED + "".join(sorted(alone, key=lambda letter: not letter.isalpha()))


def _ever_more_mixers() -> Iterator[Iterable[Mixer]]:
    """None, the project's, all: a mixer that no letter needs stays unloaded, and with it the workload."""
    yield ()
    yield MIXERS.own_members.values()
    yield MIXERS.values()


def _pattern_check(letters_of: Callable[[Iterable[Mixer]], str]) -> Callable[[str], str]:
    """A validator of a pattern: letters that need no mixer, the project's, or those of all."""

    def check(pattern: str) -> str:
        for mixers in _ever_more_mixers():
            letters = letters_of(mixers)
            if letters and re.fullmatch(rf"([{re.escape(letters)}][0-9]{{0,4}})+", pattern):
                return pattern
        raise ValueError(f"letters out of {', '.join(letters)}, each with a count of at most 9999 behind it")

    return check


def _schema(letters_of: Callable[[Iterable[Mixer]], str]) -> Callable[[dict[str, Any]], None]:
    def add(schema: dict[str, Any]) -> None:
        schema["anyOf"][0]["pattern"] = f"^([{letters_of(MIXERS.values())}][0-9]{{0,4}})+$"

    return add


check_mixer_pattern, check_layer_pattern = _pattern_check(_letters_of_mixers), _pattern_check(_letters_of_layers)
mixer_pattern_schema, layer_pattern_schema = _schema(_letters_of_mixers), _schema(_letters_of_layers)


def check_heads(name: str, heads: int, group: str, groups: int, plan: Any) -> None:
    """Heads of a recurrence are sharded over tp, then over cp; `groups` that share matrices are sharded over tp. `name` and
    `group` are the fields. SpecError or PlanError with the nearest numbers that work."""
    if heads % groups:
        raise SpecError(group, groups, f"a divisor of {name} = {heads}")
    for what, number in ((name, heads), (group, groups)):
        if number % plan.tp:
            raise PlanError("plan.tp", plan.tp, f"a divisor of {what} = {number}: each rank holds whole ones", _divisors(number))
    if (heads // plan.tp) % plan.cp:
        raise PlanError(
            "plan.cp",
            plan.cp,
            f"a divisor of {name} / tp = {heads // plan.tp}: a recurrence needs its whole sequence, so "
            "context parallelism cuts its heads",
            _divisors(heads // plan.tp),
        )


def _divisors(number: int) -> str:
    return "Divisors: " + ", ".join(str(d) for d in range(1, number + 1) if number % d == 0) + "."
