"""What `predict` shows: the step in figures, what to change first, and what every room below says of it."""

from __future__ import annotations

from typing import Any

from windtunnel.goodput.answer import whole_run
from windtunnel.memory.sheet import stages_blocks
from windtunnel.network.traffic_sheet import traffic_blocks
from windtunnel.predict.answer.timeline import HOST_LAUNCH
from windtunnel.predict.answer.trace import direction, is_receive, is_send
from windtunnel.predict.prediction import Prediction, Span
from windtunnel.predict.sheet.bill import bill_lines
from windtunnel.predict.sheet.evidence import bias_sentence, evidence_blocks, expected_seconds
from windtunnel.predict.sheet.job import describe_job, fields_part, layout_of, parameters_of
from windtunnel.predict.sheet.others import faults_sentence, saving_sentence, sharing_blocks, sharing_sentence, unequal_blocks
from windtunnel.predict.sheet.parts import COLOUR, COMMUNICATION, OFFLOAD, OPTIMIZER, OTHER, RECOMPUTE, group_of
from windtunnel.predict.sheet.step import breakdown_blocks, call_table, kernel_table, path_blocks
from windtunnel.search.levers.reasons import reasons
from windtunnel.search.margin import verdict
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Figure, Item, Items, Lines, Picture, Section, Sheet
from windtunnel.sheet.sentence import Sentence, join, quote

KINDS = (
    ("forward", "#3b82f6"),
    ("backward", "#16a34a"),
    ("recompute", COLOUR[RECOMPUTE]),
    ("optimizer", COLOUR[OPTIMIZER]),
    ("communication", COLOUR[COMMUNICATION]),
    ("other", COLOUR[OTHER]),
)
MOST_SPANS = 16_000
"""Blocks drawn at most: the page stays below 1 MB; stages are left out evenly where there are more, and the page says so."""
SHOWN_REASONS, MOST_REASONS = 4, 6
"""Reasons in the terminal and on pages."""
WORTH_A_LINE = 36.0
"""Seconds of a start: a hundredth of an hour, which is about what a run between two failures of a large job loses to it."""


def prediction_sheet(prediction: Prediction, *, detail: bool = True) -> Sheet:
    """What `predict` shows. Prices changes of the job, 0.1 to 1 s. `detail`: with what pages alone draw, tens of thousands of
    spans among it."""
    bias = bias_sentence(prediction)
    leans = (Lines((bias,), mood="warn", brief=True),) if bias else ()
    calls, kernels = (call_table(prediction),), (kernel_table(prediction),)
    return Sheet(
        quote(prediction.job.name),
        _headline(prediction),
        head_figures(prediction),
        (
            Section("", (Lines((_setup(prediction),), mood="soft"),)),
            Section("", (Lines(("",), brief=True), *leans) if leans else ()),
            Section("What to look at first", _first_lines(prediction, bias)),
            Section(
                "Where the time goes",
                breakdown_blocks(prediction.breakdown, prediction.step_time_s, prediction.overlapped, prediction.by_stage),
            ),
            Section(
                "Ranks that differ",
                unequal_blocks(prediction.unequal, prediction.step_time_s) if prediction.unequal is not None else (),
            ),
            Section("The pipeline over one step", _pipeline(prediction) if detail else ()),
            Section("Memory of the fullest GPU, by stage", stages_blocks(prediction.memory) if prediction.memory else ()),
            Section("Longest kernels of the slowest stage", kernels if prediction.kernels else ()),
            Section("Communication calls", calls if prediction.collectives else ()),
            Section(
                "The network over one step", traffic_blocks(prediction.traffic) if prediction.traffic is not None else ()
            ),
            Section("Beside other traffic", sharing_blocks(prediction.sharing) if prediction.sharing is not None else ()),
            Section("Critical path", path_blocks(prediction) if prediction.critical_path else ()),
            Section("Power and money", (Lines(tuple(bill)),) if (bill := bill_lines(prediction)) else ()),
            Section("What this rests on", evidence_blocks(prediction)),
            Section("The job", (fields_part(prediction.job),) if detail else ()),
        ),
        describe_job(prediction.job, prediction.parameters),
        titled=True,
        cards=True,
    )  # fmt: skip


def _headline(prediction: Prediction) -> Sentence:
    """Job, model, GPUs and framework."""
    job = prediction.job
    name = say.clean(job.name) if job.model.name == job.name else f"{say.clean(job.name)}  {say.clean(job.model.name)}"
    what: str = quote(name)
    if prediction.parameters:
        what = Sentence("{model}, {count} parameters", model=name, count=parameters_of(job, prediction.parameters))
    return Sentence(
        "{what}, {gpus} x {gpu}, {framework} {precision}",
        what=what, gpus=f"{job.cluster.gpus:,}", gpu=job.cluster.gpu.name, framework=job.runtime.framework,
        precision=job.runtime.precision,
    )  # fmt: skip


def _setup(prediction: Prediction) -> Sentence:
    """Plan and batch."""
    job, plan = prediction.job, prediction.job.plan
    return Sentence(
        "{layout} · {batch} x {seq} tokens a step, {count} of {each} · {schedule}, recompute {recompute}, sharding {sharding}",
        layout=layout_of(job), batch=plan.global_batch, seq=plan.seq, count=say.micro_batches(job.micro_batches),
        each=plan.micro_batch, schedule=plan.schedule_name, recompute=plan.recompute, sharding=plan.sharding,
    )  # fmt: skip


def head_figures(prediction: Prediction) -> tuple[Figure, ...]:
    """The figures at the head. Errors of rates and money follow from that of the step; pages state them in the figures' units."""
    error = prediction.relative_error
    shown = [Figure("step_time_s", "step time", prediction.step_time_s, "s", error)]
    if (expected := expected_seconds(prediction)) is not None:
        said = Sentence("about {time}", time=say.seconds(expected))
        shown.append(Figure("published.expected_s", "in practice", expected, "s", None, said, "warn"))
    shown += [
        Figure("tokens_per_s", "tokens/s", prediction.tokens_per_s, "token/s", None, say.count(prediction.tokens_per_s)),
        Figure(
            "tokens_per_s_per_gpu", "tokens/s/GPU", prediction.tokens_per_s_per_gpu, "token/s", None,
            say.count(prediction.tokens_per_s_per_gpu),
        ),
        _share("mfu", "MFU", prediction.mfu, error),
        _share("hfu", "HFU", prediction.hfu, error),
        Figure(
            "model_tflops_per_gpu", "model TFLOP/s/GPU", prediction.model_tflops_per_gpu, "TFLOP/s", None,
            f"{prediction.model_tflops_per_gpu:.1f}",
        ),
    ]  # fmt: skip
    fits, mood = verdict(prediction.memory) if prediction.memory else (Sentence("not estimated"), "soft")
    most = max((stage.total for stage in prediction.memory), default=None)
    shown.append(Figure("memory", "memory", most, "B", None, fits, mood))
    return (*shown, *_run_figures(prediction))


def _share(key: str, label: str, value: float, error: float) -> Figure:
    within = f"{100.0 * value:.1f} ±{100.0 * value * error:.1f} %"
    return Figure(key, label, value, "%", None, say.percent(value), within=within)


def _run_figures(prediction: Prediction) -> list[Figure]:
    """Figures per day and of the whole run, if the job states its length and price."""
    shown = []
    if prediction.tokens_per_day:
        per_day = prediction.tokens_per_day
        shown.append(Figure("tokens_per_day", "tokens a day", per_day, "token", None, say.tokens(per_day)))
    if prediction.days is not None and prediction.job.tokens:
        label = Sentence("{tokens} tokens in", tokens=say.tokens(prediction.job.tokens))
        shown.append(Figure("days", label, prediction.days, "day", None, say.duration(prediction.days)))
    run = whole_run(prediction)
    if run is None and prediction.job.reliability is not None:
        shown.append(Figure("job.reliability", "with failures", Sentence("see windtunnel goodput")))
    elif run is not None:
        shown.append(Figure("whole_run.ettr", "ETTR with failures", run.ettr, "%", None, say.percent(run.ettr)))
        if run.ideal_days is not None:
            days = say.duration(run.days) if run.days is not None else Sentence("never ends")
            shown.append(Figure("whole_run.days", "with failures in", run.days, "day", None, days))
    error = prediction.relative_error
    for key, name, value in (
        ("cost", "cost of the run", prediction.cost), ("cost_per_step", "cost of a step", prediction.cost_per_step),
    ):  # fmt: skip
        if value is not None:
            shown.append(Figure(key, name, value, "$", None, say.dollars(value), within=say.dollars_within(value, error)))
            break
    for key, name, value in (
        ("energy_j", "energy of the run", prediction.energy_j),
        ("energy_j_per_step", "energy of a step", prediction.energy_j_per_step),
    ):  # fmt: skip
        if value is not None:
            shown.append(Figure(key, name, value, "J"))
            break
    return shown


def _first_lines(prediction: Prediction, bias: str | None) -> tuple[Block, ...]:
    """The largest losses and what to change, what the step has beside itself, warnings, and how long the job starts."""
    items = [Item(said, detail=number >= SHOWN_REASONS) for number, said in enumerate(reasons(prediction, MOST_REASONS))]
    if prediction.faults is not None:
        items.append(Item(faults_sentence(prediction.faults), "warn"))
    if prediction.sharing is not None:
        items.append(Item(sharing_sentence(prediction.sharing), "warn"))
    if prediction.saving is not None:
        items.append(Item(saving_sentence(prediction.saving), "warn"))
    items += [Item(quote(warning), "bad") for warning in prediction.warnings]
    if (start := start_line(prediction)) is not None:
        items.append(Item(start, "soft"))
    return (*((Lines((bias,), detail=True),) if bias else ()), Items(tuple(items)))


def start_line(prediction: Prediction) -> str | None:
    """The time until groups are set up, None where that is short; the other verb counts something else, and the line says so."""
    if prediction.init_time_s < WORTH_A_LINE:
        return None
    return Sentence(
        "start: {time} s until groups are set up over a {store} store (runtime.startup); "
        "windtunnel fleet startup counts gloo's keys instead",
        time=f"{prediction.init_time_s:,.0f}", store=prediction.job.runtime.startup.store,
    )  # fmt: skip


def kind_of(span: Span) -> int:
    """Index into `KINDS`."""
    if is_send(span):
        return 4
    way = direction(span)
    if way:
        return 0 if way == "forward" else 1
    group = group_of(span.category)
    kind = {RECOMPUTE: 2, OPTIMIZER: 3, COMMUNICATION: 4, OFFLOAD: 4}.get(group)
    return 5 if kind is None else kind


def _pipeline(prediction: Prediction) -> tuple[Block, ...]:
    data = pipeline_data(prediction)
    return () if data is None else (Picture("pipeline", data, "Timeline of every pipeline stage", detail=True),)


def pipeline_data(prediction: Prediction) -> dict[str, Any] | None:
    """What the painter of the pipeline draws; None without a timeline."""
    # a receive repeats its send, with the wait before it; launches of the host run ahead of the passes that they would cover
    shown = [s for s in prediction.timeline if not is_receive(s) and s.stream != HOST_LAUNCH]
    if not shown:
        return None
    every = sorted({s.stage for s in shown})
    keep = max(2, int(MOST_SPANS * len(every) / len(shown)))
    stages = every if keep >= len(every) else [every[round(n * (len(every) - 1) / (keep - 1))] for n in range(keep)]
    row = {stage: number for number, stage in enumerate(stages)}
    names: dict[str, int] = {}
    chunks = 1 + max(s.chunk for s in shown)
    spans = []
    for s in shown:
        if s.stage in row:
            kind = kind_of(s)
            times = (round(s.start * 1e6, 1), round(s.end * 1e6, 1))
            chunk = s.chunk if chunks > 1 else -1
            spans.append([row[s.stage], *times, kind, s.micro_batch, int(kind == 4), chunk, names.setdefault(s.name, len(names))])
    about = ["Numbers are micro batches."]
    about += ["Later virtual stages are fainter."] if prediction.job.plan.vpp > 1 else []
    said: list[str] = [Sentence(text) for text in about]
    if len(stages) < len(every):
        said.append(Sentence("{count} of {all} stages are drawn.", count=len(stages), all=len(every)))
    said.append(Sentence("Drag to move, double-click or Ctrl and wheel to zoom."))
    return {
        "stages": stages, "chunks": chunks, "spans": spans, "names": list(names), "about": join(said, " "),
        "end": round(max(s.end for s in shown) * 1e6, 1) or 1.0, "kinds": [list(kind) for kind in KINDS],
        "used": sorted({span[3] for span in spans}),
    }  # fmt: skip
