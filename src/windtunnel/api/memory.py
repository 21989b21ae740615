"""The memory of a job: what each stage holds, whether it fits, and what would make it fit. What `memory` shows: each stage's
fullest GPU, replays of it, its memory over a step, and what makes a job fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.arrays import Floats
from windtunnel.base.dataclasses import asdict, dataclass, field, replace
from windtunnel.base.errors import SpecError
from windtunnel.memory import PARTS, OverTime, Pooled, StageMemory, dumps, memory_of, over_time, replay, snapshot, why
from windtunnel.memory.loading import LoadingMemory, loading_of
from windtunnel.memory.over_time import MOMENTS
from windtunnel.memory.sheet import MEMORY_COLOUR, stages_blocks
from windtunnel.predict import predict
from windtunnel.predict.answer.timeline import pass_times
from windtunnel.predict.sheet.job import describe_job
from windtunnel.search.levers.fixes import Fix, fixes
from windtunnel.search.levers.pricing import flags_of, framework_name
from windtunnel.search.margin import verdict
from windtunnel.sheet import numbers as say
from windtunnel.sheet.blocks import Block, Cell, Column, Figure, Lines, Picture, Section, Sheet, Table
from windtunnel.sheet.sentence import Sentence, capital, join, quote
from windtunnel.spec import Job
from windtunnel.workload import Workload, build


@dataclass(frozen=True)
class MemoryReport:
    """What `windtunnel memory` finds."""

    workload: Workload = field(repr=False)
    """The job's graph, whose memory this is."""
    stages: tuple[StageMemory, ...]
    """Bytes of the fullest GPU of each pipeline stage, by part."""
    fixes: tuple[Fix, ...]
    """Changes that make the job fit, the cheapest first; none for one that fits."""
    replayed: tuple[Pooled, ...] = field(default=(), repr=False)
    """By stage a replay of PyTorch's allocator, where it was asked for."""
    moments: tuple[OverTime, ...] = field(default=(), repr=False)
    """By stage its memory over a step, where it was asked for."""

    @property
    def job(self) -> Job:
        """The job."""
        return self.workload.job

    @property
    def fits(self) -> bool:
        """Whether every stage fits."""
        return all(stage.fits for stage in self.stages)

    @property
    def loading(self) -> LoadingMemory | None:
        """Memory while the model is loaded, where it is known and more than a step's."""
        return loading_of(self.job)

    @property
    def missing(self) -> float:
        """Missing bytes of the fullest stage; 0 where it fits."""
        return max(0.0, *(stage.missing for stage in self.stages))

    @property
    def why(self) -> tuple[str, ...]:
        """Sentences about what fills the fullest stage, the largest part first; none for a job that fits."""
        return why(self.workload, self.stages)

    def snapshot(self, path: str | Path, stage: int | None = None) -> None:
        """Writes a stage's peak (by default of the fullest stage) as a snapshot for pytorch.org/memory_viz."""
        chosen = max(self.stages, key=lambda one: one.allocated) if stage is None else self.stages[stage]
        Path(path).write_bytes(dumps(snapshot(self.workload, chosen.stage)))

    def as_dict(self) -> dict[str, Any]:
        """Plain data with stable keys: bytes and seconds."""
        answer: dict[str, Any] = {
            "job": self.job,
            "memory": [{k: v for k, v in vars(stage).items() if k != "curve"} for stage in self.stages],
            "fits": self.fits,
            "shortfall_bytes": self.missing,
            "step_time_s": predict(self.job).step_time_s if self.fixes else None,
            "advice": [{"set": f.change.sets[0]} | _fix_data(self.job, f) for f in self.fixes if f.single],
            "why": self.why,
            "together": [{"set": list(f.change.sets)} | _fix_data(self.job, f) for f in self.fixes if not f.single],
        }
        if (loading := self.loading) is not None:
            answer["loading"] = {**asdict(loading), "fits": loading.fits, "says": loading.says}
        if self.replayed:
            answer["replay"] = [
                vars(pooled) | {"stage": one.stage, "fragmentation": pooled.fragmentation}
                for one, pooled in zip(self.stages, self.replayed, strict=True)
            ]
        if self.moments:
            answer["over_time"] = [one.as_dict() for one in self.moments]
        return answer


def report_memory(job: Job, *, replayed: bool = False, moments: bool = False, stage: int | None = None) -> MemoryReport:
    """Counts the memory of a job. `replayed`: also by PyTorch's allocator; `moments`: also over a step, of all stages or of
    `stage`. SpecError for a stage that the job does not have."""
    check_stage(job, stage)
    workload = build(job)
    stages = memory_of(job, workload)
    fitting = () if all(one.fits for one in stages) else fixes(job)
    pools = replay(workload, stages) if replayed else ()
    return MemoryReport(workload, stages, fitting, pools, _over_time(job, workload, stages, stage) if moments else ())


def check_stage(job: Job, stage: int | None) -> None:
    """SpecError for a stage that the job does not have."""
    if stage is not None and not 0 <= stage < job.plan.pp:
        raise SpecError("--stage", stage, f"a pipeline stage, 0 to {job.plan.pp - 1}")


def _over_time(job: Job, workload: Workload, stages: Sequence[StageMemory], stage: int | None) -> tuple[OverTime, ...]:
    """Replay of the step of each stage, or of one, at the times of its passes."""
    timeline = predict(job).timeline
    chosen = stages if stage is None else [stages[stage]]
    return tuple(
        over_time(
            workload,
            m.stage,
            pass_times(timeline, workload.schedule[m.stage], m.stage),
            m.context,
            m.usable - m.context,
            until_full=True,
        )
        for m in chosen
    )


def _fix_data(job: Job, fix: Fix) -> dict[str, Any]:
    flags = list(flags_of(fix.change.apply(job), fix.change.fields))
    return {"spare_bytes": fix.spare, "step_time_s": fix.step_time_s, "price": fix.price, "flags": flags}


COLOUR = {part: MEMORY_COLOUR.get(part, MEMORY_COLOUR["workspace"]) for part in PARTS}


def memory_sheet(counted: MemoryReport) -> Sheet:
    """What `memory` shows."""
    job = counted.job
    stages, fits = stages_blocks(counted.stages), _what_fits(counted)
    replayed = _replay(counted.stages, counted.replayed) if counted.replayed else ()
    moments = _moments(counted, job) if counted.moments else ()
    loading = _loading(counted)
    printed = tuple(replace(block, brief=True) for block in (*stages, *replayed, *moments, *fits, *loading) if not block.detail)
    return Sheet(
        Sentence("{job}: memory", job=say.clean(job.name)),
        Sentence("{job}: fullest GPU of each pipeline stage", job=job.name),
        _figures(counted),
        (
            Section("", printed),
            Section("Memory of the fullest GPU, by stage", _pages_only(stages)),
            Section("Replay of the allocator", _pages_only(replayed)),
            Section("Memory of the fullest GPU over one step", _pages_only(moments)),
            Section("Does it fit", _pages_only((*fits, *loading))),
        ),
        describe_job(job),
        titled=True,
    )


def _loading(counted: MemoryReport) -> tuple[Block, ...]:
    """What loading takes, where that is known."""
    loading = counted.loading
    return () if loading is None else (Lines(loading.says, mood="" if loading.fits else "bad"),)


def _pages_only(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """Those that pages show, and the terminal in its own order."""
    return tuple(replace(block, detail=True) for block in blocks if not block.brief)


def _figures(counted: MemoryReport) -> tuple[Figure, ...]:
    words, mood = verdict(counted.stages)
    figures = [Figure("fits", "memory", max(stage.total for stage in counted.stages), "B", None, words, mood)]
    if counted.moments:
        fullest = max(counted.moments, key=lambda stage: float(stage.shown.max()))
        most = float(fullest.shown.max())
        figures += [
            Figure("over_time.stage", "the fullest stage", float(fullest.stage)),
            Figure("over_time.shown", "at most in nvidia-smi", most, "B", mood="bad" if most > fullest.capacity else ""),
            Figure("over_time.capacity", "of", fullest.capacity, "B"),
            Figure("over_time.allocated", "allocated at most", float(fullest.allocated.max()), "B"),
        ]
    return tuple(figures)


def _replay(stages: Sequence[StageMemory], replayed: Sequence[Pooled]) -> tuple[Block, ...]:
    """The figures of the model and of the replay, one row per stage."""
    parts = ("allocated", "reserved", "fragmentation")
    columns = (Column("stage"), *(Column(head, True) for part in parts for head in (part, "replay")))
    rows = tuple(
        (Cell(str(model.stage)), *(_size(float(getattr(who, part))) for part in parts for who in (model, replay)))
        for model, replay in zip(stages, replayed, strict=True)
    )
    title = "Model, and replay of PyTorch's caching allocator"
    blocks: list[Block] = [Lines((title,), brief=True), Table("replay", columns, rows, title)]
    if any(pooled.failed for pooled in replayed):
        settings = "--set runtime.alloc_conf=expandable_segments:True"
        text = "In the replay the allocator finds no room in one piece. Try {settings}."
        blocks.append(Lines((Sentence(text, settings=settings),), mood="warn"))
    return tuple(blocks)


def _size(value: float) -> Cell:
    return Cell(say.size(value), value)


def _moments(counted: MemoryReport, job: Job) -> tuple[Block, ...]:
    """The drawing, and what each stage holds at its highest moment."""
    heads = ("allocated", "reserved", "nvidia-smi", "after")
    peaks, highest = [], []
    for stage in counted.moments:
        sizes = [float(size.max()) for size in (stage.allocated, stage.reserved, stage.shown)]
        peak = int(stage.allocated.argmax())
        after = Cell(say.seconds(float(stage.time[peak])), float(stage.time[peak]))
        peaks.append((Cell(str(stage.stage), float(stage.stage)), *map(_size, sizes), after))
        held = [float(stage.allocated[peak]), float(stage.reserved[peak]), float(stage.shown[peak]), *map(float, stage.parts[peak])]
        highest.append((Cell(str(stage.stage), float(stage.stage)), after, *map(_size, held)))
    title = "Highest points of a replayed step"
    columns = (Column("stage"), *(Column(head, True) for head in heads))
    parts = (Column("stage", True), Column("after", True), *(Column(head, True) for head in (*heads[:3], *PARTS)))
    lacks = tuple(text for stage in counted.moments if (text := no_room_sentence(stage)))
    return (
        over_time_picture(counted.moments, job.name),
        Lines((title,), brief=True),
        Table("peaks", columns, tuple(peaks), brief=True),
        Table("highest", parts, tuple(highest), "At the highest moment of each stage", detail=True),
        *((Lines(lacks, mood="bad"),) if lacks else ()),
    )


OF_STAGE = "stage {stage}: {allocated} GiB allocated at most, after {time}; {reserved} reserved; {shown} in nvidia-smi"
OF_RANK = "rank {stage}: {allocated} GiB allocated at most, after {time}; {reserved} reserved"


def over_time_picture(stages: Sequence[OverTime], name: str, said: str = OF_STAGE) -> Picture:
    """Memory of each stage, or rank, over one step: tensors stacked by content, reserved and total bytes. `said`: of each."""
    drawn = []
    for stage in (whole.thin(MOMENTS) for whole in stages):
        highest = int(stage.allocated.argmax())
        title = Sentence(
            said, stage=stage.stage,
            allocated=f"{stage.allocated[highest] / 2.0**30:.1f}", time=say.seconds(float(stage.time[highest])),
            reserved=f"{stage.reserved.max() / 2.0**30:.1f}", shown=f"{stage.shown.max() / 2.0**30:.1f}",
        )  # fmt: skip
        lack = stage.no_room
        drawn.append(
            {
                "title": title, "time": _numbers(stage.time), "capacity": stage.capacity,
                "parts": [_numbers(stage.parts[:, part]) for part in range(len(PARTS))], "reserved": _numbers(stage.reserved),
                "shown": _numbers(stage.shown), "lacks": no_room_sentence(stage), "lack_time": lack.time if lack else None,
            }
        )  # fmt: skip
    title = Sentence("{job}: memory of the fullest GPU over one step", job=say.clean(name))
    data = {"title": title, "stages": drawn, "parts": [list(pair) for pair in COLOUR.items()]}
    return Picture("memory", data, "Memory over one step", detail=True)


def _numbers(values: Floats) -> list[float]:
    return [float(f"{value:.7g}") for value in values]


def no_room_sentence(stage: OverTime) -> str:
    """When a stage ran out of memory, for what, and what it held; empty where it did not."""
    lack = stage.no_room
    if lack is None:
        return ""
    held = [
        Sentence("{part} {size}", part=Sentence(name), size=say.size(size))
        for name, size in lack.held.items()
        if size >= 1e-3 * lack.reserved
    ]
    return Sentence(
        "Stage {stage} runs out of memory in step {step} after {time}: {size} for {content} find no room. Held then: {held}; "
        "{reserved} reserved of at most {limit}.",
        stage=stage.stage, step=lack.step, time=say.seconds(lack.time), size=say.size(lack.size), content=lack.content,
        held=join(held), reserved=say.size(lack.reserved), limit=say.size(lack.limit),
    )  # fmt: skip


def _what_fits(counted: MemoryReport) -> tuple[Block, ...]:
    """Whether it fits; if not, what fills the fullest stage, and what makes it fit."""
    if counted.fits:
        words, mood = verdict(counted.stages)
        return (Lines((Sentence("{verdict} on the fullest stage.", verdict=capital(words)),), mood=mood),)
    short = max(counted.stages, key=lambda stage: stage.missing).short
    missing = Sentence("DOES NOT FIT: {size} missing on the fullest stage.", size=say.size(counted.missing))
    if short != "GPU memory":
        text = "DOES NOT FIT: {size} of {place} missing on the fullest stage."
        missing = Sentence(text, size=say.size(counted.missing), place=Sentence(short))
    blocks: list[Block] = [Lines((missing,), mood="bad"), Lines(tuple(quote(f"  {line}") for line in counted.why))]
    if not counted.fixes:
        text = "No change that was tried makes it fit: {ways}."
        return (*blocks, Lines((Sentence(text, ways=join(_what_is_left(counted.job), ", or ")),)))
    blocks.append(Lines(("What makes it fit, cheapest first (time a token, against this plan if it fitted):",)))
    told = []
    rows = []
    for fix in counted.fixes:
        change = " ".join(f"--set {text}" for text in fix.change.sets)
        flags = " ".join(flags_of(fix.change.apply(counted.job), fix.change.fields))
        told += [quote(f"  {change}"), *([quote(f"    {framework_name(counted.job)}: {flags}")] if flags else [])]
        time, price = say.seconds(fix.step_time_s), f"{fix.price:+.1%}"
        text = "    {spare}; a step takes {time} ({price} a token)"
        told.append(Sentence(text, spare=_spare(fix), time=time, price=price))
        cells = (Cell(change), Cell(flags), Cell(_spare(fix), fix.spare), Cell(time, fix.step_time_s), Cell(price, fix.price))
        rows.append(cells)
    columns = (Column("change"), Column("flags"), *(Column(head, True) for head in ("free", "step", "a token")))
    return (*blocks, Lines(tuple(told), mood="code", brief=True), Table("fixes", columns, tuple(rows), detail=True))


def _spare(fix: Fix) -> Sentence:
    if fix.spare < 2.0**20:
        return Sentence("nothing to spare")
    return Sentence("{size} free", size=say.size(max(0.0, fix.spare)))


def _what_is_left(job: Job) -> list[str]:
    """What to try where no change of the plan is enough."""
    lora = getattr(job.model, "lora", None)
    ways: list[str] = [Sentence("use more GPUs")]
    ways += [quote("plan.micro_batch=1")] if job.plan.micro_batch > 1 else []
    if lora is not None and lora.base == "none" and job.plan.tp == 1:
        ways.append(Sentence("4-bit frozen weights, model.lora.base=nf4"))
    return ways
