"""What a prediction rests on: kernels that were measured, published steps like it and the side to which they lean, its price."""

from __future__ import annotations

from windtunnel.compute import PROVENANCES
from windtunnel.predict.prediction import Prediction
from windtunnel.predict.published import INSIDE, PublishedSteps, RunKind, kind_of_run
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Lines, Part, Shares
from windtunnel.sheet.colours import BLUE
from windtunnel.sheet.sentence import Sentence, join, quote

_CARRIED = (("transferred", "{share} of its computation is carried over from other GPUs"),
            ("assumed", "{share} of its computation is assumed"))  # fmt: skip
"""Provenance of a kernel's seconds that no measurement of its GPU stands behind, in words."""
_TRAINED = {"dense": "dense models", "experts": "mixtures of experts", "adapters": "adapters (LoRA)", "graph": "traced graphs"}


def evidence_blocks(prediction: Prediction) -> tuple[Block, ...]:
    """Shares of the step by kind of evidence, the stated error, assumptions."""
    known = [*PROVENANCES, *sorted(set(prediction.provenance) - set(PROVENANCES))]
    shares = [(name, prediction.provenance[name]) for name in known if prediction.provenance.get(name, 0.0) > 0.0]
    blocks: list[Block] = [Lines((evidence_sentence(prediction),))]
    said = [
        Sentence("{basis} {share}", basis=Sentence(name), share=say.percent(share, 0))
        for name, share in shares if share >= 0.005 and name in PROVENANCES
    ]  # fmt: skip
    if said:
        blocks.append(Lines((join(said, " · "),), mood="soft", brief=True))
    if lines := profile_lines(prediction):
        blocks.append(Lines(tuple(lines), mood="soft"))
    if shares:
        blocks.append(Shares(tuple(Part(Sentence(name), share, BLUE) for name, share in shares), "%", detail=True))
    if prediction.assumptions:
        blocks.append(Lines(tuple(map(quote, prediction.assumptions)), mood="soft", listed=True, title="Assumptions"))
    return (*blocks, Lines((closing_sentence(prediction),), mood="soft"))


def closing_sentence(prediction: Prediction) -> str:
    """Costs that the figures leave out, and the price that they use."""
    price = prediction.job.cluster.price_per_gpu_hour
    said = [Sentence("Network fidelity: {fidelity}.", fidelity=prediction.network)]
    if price is not None:
        said.append(Sentence("Cost at {price} a GPU hour.", price=say.dollars(price)))
    if prediction.days is not None:
        said.append(Sentence("Days, cost and energy of the run are without failures and restarts."))
    return join(said, " ")


def profile_lines(prediction: Prediction) -> list[str]:
    """Shares of the step that rest on the profile."""
    if prediction.profile is None:
        return []
    name, sources = prediction.profile, prediction.sources
    of_profile = sorted(((share, source) for source, share in sources.items() if source.startswith(f"{name}: ")), reverse=True)
    if not of_profile:
        return [Sentence("{profile}: nothing of this job; see the warning.", profile=name)]
    shares = [quote(f"  {say.percent(share)} {source.removeprefix(f'{name}: ')}") for share, source in of_profile]
    return [quote(f"{name}:"), *shares]


def evidence_sentence(prediction: Prediction) -> str:
    """What the kernels' seconds rest on, and the error of the sum."""
    return join((_kernels_sentence(prediction), stated_sentence(prediction), record_sentence(prediction)), " ")


def _kernels_sentence(prediction: Prediction) -> str:
    """What the kernels' seconds rest on. Calls are no kernels: their constants are not fitted to a GPU's kernels."""
    share = prediction.provenance
    measured = sum(share.get(k, 0.0) for k in ("measured", "interpolated"))
    if measured > 0.0:
        return Sentence("{share} of the step rests on measurements of this GPU or between them.", share=say.percent(measured, 0))
    gpu, seconds = prediction.job.cluster.gpu.name, dict.fromkeys(PROVENANCES, 0.0)
    for kernel in prediction.kernels:
        seconds[kernel.provenance] += kernel.seconds_total
    total = sum(seconds.values())
    if total <= 0.0:
        return Sentence("No kernel of this job was measured.")
    shares = {name: say.percent(value / total, 0) for name, value in seconds.items() if value >= 0.005 * total}
    said = [Sentence(text, share=shares[name]) for name, text in _CARRIED if name in shares]
    carried = Sentence("{first} and {second}", first=said[0], second=said[1]) if len(said) > 1 else said[0] if said else ""
    if "modelled" not in shares:
        return Sentence("No kernel of {gpu} was measured: {carried}.", gpu=gpu, carried=carried)
    answer = Sentence("No kernel of this job was measured: curves that were fitted to kernels of {gpu} answer", gpu=gpu)
    if not carried:
        return Sentence("{answer}.", answer=answer)
    return Sentence("{answer} for {share} of its computation; {carried}.", answer=answer, share=shares["modelled"], carried=carried)


def record_sentence(prediction: Prediction) -> str:
    """The record of the runs nearest to this one in a line."""
    kind, steps = kind_of_run(prediction.job), prediction.published
    if steps is None:
        return Sentence("No published step of {models} was compared.", models=Sentence(_TRAINED[kind.trained]))
    fitted = Sentence("{count} of them in the fit of a constant", count=steps.fitted) if steps.fitted else Sentence("none in a fit")
    return Sentence(
        "{rows} published steps of {kind}, {fitted}: mean error {mean} %, bias {bias} %.",
        rows=steps.rows, kind=_kind_in_words(steps, kind), fitted=fitted, mean=f"{steps.mean_pct:.1f}",
        bias=f"{steps.bias_pct:+.1f}",
    )  # fmt: skip


def stated_sentence(prediction: Prediction) -> str:
    """The stated error of the step time, and where it is from."""
    error, steps = f"{100 * prediction.relative_error:.0f}", prediction.published
    if steps is None or (not steps.is_of(kind_of_run(prediction.job)) and steps.widen <= 1.0):
        return Sentence("Stated relative error of the step time: ±{error} %, as its parts imply.", error=error)
    which = Sentence("runs like it" if steps.is_of(kind_of_run(prediction.job)) else "the runs nearest to it")
    text = "Stated relative error of the step time: ±{error} %: about {share} % of {which} lay inside such an error."
    return Sentence(text, error=error, share=f"{100 * INSIDE:.0f}", which=which)


def expected_seconds(prediction: Prediction) -> float | None:
    """Step time by the record of such runs, seconds: the middle of their quartiles. None where they lean to neither side."""
    steps = prediction.published
    if steps is None or not steps.leans:
        return None
    return prediction.step_time_s * (1.0 + sum(steps.longer_pct) / 200.0)


def bias_sentence(prediction: Prediction) -> str | None:
    """To which side of their predictions runs like this one lay, with the time to expect; None where they lean to neither."""
    steps, expected = prediction.published, expected_seconds(prediction)
    if steps is None or expected is None:
        return None
    low, high = steps.longer_pct
    if low <= 0.0 <= high:
        text = "{share} % longer on average" if steps.bias_pct < 0 else "{share} % shorter on average"
        middle = Sentence(text, share=f"{abs(steps.bias_pct):.0f}")
    else:
        near, far = sorted((abs(low), abs(high)))
        text = (
            "{near} to {far} % longer (middle half of {rows})" if high > 0 else "{near} to {far} % shorter (middle half of {rows})"
        )
        middle = Sentence(text, near=f"{near:.0f}", far=f"{far:.0f}", rows=steps.rows)
    return Sentence(
        "Published steps of {kind} took {middle} than predicted. So expect about {time}.",
        kind=_kind_in_words(steps, kind_of_run(prediction.job)), middle=middle, time=say.seconds(expected),
    )  # fmt: skip


def _kind_in_words(steps: PublishedSteps, kind: RunKind) -> Sentence:
    """`mixtures of experts in fp8 with nemo on NVIDIA H100 SXM5 80 GB`, as far as `steps` is of that kind."""
    words = Sentence(_TRAINED[steps.trained])
    if steps.precision:
        words = Sentence("{what} in {precision}", what=words, precision=steps.precision)
    if steps.framework:
        words = Sentence("{what} with {framework}", what=words, framework=steps.framework)
    if steps.gpu:
        words = Sentence("{what} on {gpu}", what=words, gpu=steps.gpu)
        return words if steps.framework else join((words, Sentence("other frameworks")))
    more = Sentence("none like it on {gpu}", gpu=kind.gpu) if steps.framework else Sentence("other GPUs and frameworks")
    return join((words, more))
