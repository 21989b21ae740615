"""What measured servers and published steps of reinforcement learning say of an answer, in words."""

from __future__ import annotations

from windtunnel.predict.published import INSIDE
from windtunnel.rl import RLStep
from windtunnel.serving import Served
from windtunnel.serving.published import FigureErrors
from windtunnel.sheet import numbers as say

_TRAINED = {"experts": "mixtures", "dense": "dense models", "": "models"}
_NAMES = {"ttft": "the first token", "tpot": "each further token", "throughput": "throughput"}


def server_sentences(answer: Served) -> list[str]:
    """The record of the measured servers nearest to this one: where the errors are from, and to which side such servers lay."""
    found = answer.published_servers
    if found is None:
        return ["No measured server with prompts on copies of their own was compared."] if answer.prefill else []
    kind, wanted = found.kind, answer.kind
    words = _TRAINED[kind.trained] + (f" on {kind.engine}" if kind.engine else "")
    words += f" and {kind.gpu}" if kind.gpu else f", none like it on {wanted.gpu}" if kind.engine else ", other engines and GPUs"
    errors = ", ".join(f"{_NAMES[name]} {one.median_pct:.0f} %" for name, one in found.figures.items())
    loads = f"{say.count_words(found.rows, 'load')} of {say.count_words(found.servers, 'measured server')} ({words})"
    said = [f"±: about {100 * INSIDE:.0f} % of {loads} lay inside. Median errors: {errors}; none was fitted."]
    said += [_lean(_NAMES[name], one) for name, one in found.figures.items() if name != "throughput" and one.leans]
    if answer.paced:
        said.append("Requests come at stated moments and the server keeps up: throughput and price are those of the arrivals.")
    if answer.server.speculation is not None:
        said.append("No measured server is known to draft tokens: the stated acceptance has an error of its own.")
    return said


def step_sentences(step: RLStep) -> list[str]:
    """The record of the published steps nearest to this one."""
    found = step.published_steps
    if found is None:
        return []
    how = "that take turns" if found.modes == "in_turn" else "whose rollout runs ahead"
    said = [
        f"±: about {100 * INSIDE:.0f} % of {say.count_words(found.rows, 'published step')} {how} lay inside. "
        f"Median error {found.step.median_pct:.0f} %, bias {found.step.bias_pct:+.0f} %; lengths of responses were known as a mean."
    ]
    return [*said, _lean("a step", found.step)] if found.step.leans else said


def _lean(name: str, one: FigureErrors) -> str:
    """To which side of its prediction a figure lay."""
    near, far = sorted(abs(share) for share in one.longer_pct)
    which = "longer" if one.longer_pct[1] > 0.0 else "shorter"
    return f"In practice {name} took {near:.0f} to {far:.0f} % {which} than predicted (middle half)."
