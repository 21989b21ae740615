"""A row of a training table as a `Job`, with all assumptions, or the reason why that is impossible.

Columns that the row leaves blank and that a plan needs (micro batch, virtual stages, recompute) give several candidate jobs;
`blanks.choose` then takes one by the same rule for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any, Literal

from pydantic import ValidationError

from windtunnel.base.dataclasses import dataclass, replace
from windtunnel.base.errors import PlanError, SpecError, WindtunnelError
from windtunnel.reality.jobs.architecture import model_of
from windtunnel.reality.jobs.cuts import cuts, memory_alone, spread
from windtunnel.reality.jobs.machine import cluster_of
from windtunnel.reality.jobs.software import (
    context_of,
    dates_of,
    framework_cited,
    framework_named,
    release_of,
    runtime_of,
    software_of,
)
from windtunnel.reality.rows import publications
from windtunnel.reality.rows.conventions import Skipped
from windtunnel.reality.rows.publications import FrameworkHabits
from windtunnel.reality.rows.table import TrainingRow
from windtunnel.spec import Cluster, Job, Model, Plan, Runtime, check, load_runtime
from windtunnel.spec.offload import Offload
from windtunnel.spec.shapes import by_work, head_in_layers, uneven

Recompute = Literal["none", "selective", "modules", "offload", "ops", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
_PAPER_WORDS = {"seq-par": ("none", "y"), "seq-par+selective": ("selective", "y")}
"""`recompute` as figures of Korthikanti et al. 2022 name it -> recompute, sequence parallelism."""

Level = tuple[Recompute, int]
"""Recompute and the quarters of a virtual stage's layers that use it; eighths for offload."""

LEVELS: tuple[Level, ...] = (("none", 4), ("selective", 4), ("full", 1), ("full", 2), ("full", 3), ("full", 4))
"""Candidates for a blank recompute column, least first: recipes recompute no more layers than memory requires."""

OFFLOAD_LEVELS: tuple[Level, ...] = tuple(("offload", eighths) for eighths in range(1, 8))
"""Eighths of a virtual stage's layers whose activations are offloaded, for recipes that offload before they recompute: they state
numbers of layers (5, 20, 40 of 80; 92, 95 of 126)."""

ALL_LEVELS: tuple[Level, ...] = (*LEVELS[:2], ("modules", 4), *OFFLOAD_LEVELS, *LEVELS[2:])
MIXTURE_LEVELS: tuple[Level, ...] = (*LEVELS[:2], ("modules", 4), *LEVELS[2:])
"""With experts also the cheap modules by name: norms, experts' activations, up projections of latent attention."""

MICRO_BATCHES = (1, 2, 4, 8)

MOST_VIRTUAL_STAGES = 8
"""Papers state 1 to 8 virtual stages; more only add transfers."""


@dataclass(frozen=True)
class Draft:
    """The candidate jobs of a row: at least one, all consistent, equal except for the columns named in `blank`."""

    row: TrainingRow
    jobs: tuple[Job, ...]
    blank: tuple[str, ...]
    assumed: tuple[str, ...]


def draft(row: TrainingRow) -> Draft | Skipped:
    """The job or the candidate jobs of `row`; never raises for any content of a table."""
    assumed: list[str] = []
    try:
        row, software = _row_and_date(row, assumed)
        model = model_of(row, software, assumed)
        if isinstance(model, Skipped):
            return model
        if reason := _unsupported_reason(row):
            return Skipped(reason)
        cluster = cluster_of(row, assumed)
        if isinstance(cluster, Skipped):
            return cluster
        runtime = runtime_of(row, software, assumed, model, cluster)
        if isinstance(runtime, Skipped):
            return runtime
        if row.tp and row.pp:
            return _Candidates.of(row, model, cluster, runtime, software, assumed).draft()
        return _least_cut(row, model, cluster, runtime, software, assumed)
    except ValidationError as error:
        first = error.errors()[0]
        return Skipped(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except WindtunnelError as error:
        return Skipped(str(error))


def with_facts(row: TrainingRow) -> TrainingRow:
    """The row with the columns that are known of its publication."""
    return _row_and_date(row, [])[0]


def _row_and_date(row: TrainingRow, assumed: list[str]) -> tuple[TrainingRow, tuple[int, int] | None]:
    """The row under the catalogue's name of its framework with all columns that are known, and (year, month) of its software."""
    cited = None if row.framework else framework_cited(row.source)
    if cited is not None:
        assumed.append(f"framework {cited} (not published: the source is in its repository)")
    named = framework_named(row.framework or cited or "")
    if named.why:
        assumed.append(named.why)
    row = replace(row, framework=named.name, framework_version=row.framework_version or named.version, **_split_precision(row))
    software = software_of(named, row)
    return _with_batch(_with_known_columns(row, software, assumed), assumed), software


def _with_batch(row: TrainingRow, assumed: list[str]) -> TrainingRow:
    """The row with a micro batch on each rank as its global batch, where it states that alone and its framework does not
    accumulate by default."""
    ranks = row.dp or (row.gpus or 0) // ((row.tp or 1) * (row.pp or 1) * (row.cp or 1))
    if row.gbs or not (row.mbs and ranks) or publications.habits_for(publications.columns_of(row)).get("accumulates") is not False:
        return row
    assumed.append(f"global batch {row.mbs * ranks} (not published: one micro batch on each rank)")
    return replace(row, gbs=row.mbs * ranks)


def _with_known_columns(row: TrainingRow, software: tuple[int, int] | None, assumed: list[str]) -> TrainingRow:
    """The row with columns that its publication states elsewhere, or prints differently."""
    for fact in publications.facts_for(publications.columns_of(row) | dates_of(row, software)):
        blank: dict[str, Any] = {name: value for name, value in fact.row.items() if getattr(row, name) is None}
        if (blank or fact.corrects) and fact.assumed:
            assumed.append(fact.assumed)
        row = replace(row, **(blank | fact.corrects))
    return _with_precision(row, software, assumed)


def _split_precision(row: TrainingRow) -> dict[str, Any]:
    """Columns of a row whose precision has further words ("bf16 + fp32 optimizer"): those are features."""
    first, _, further = (row.precision or "").partition(" + ")
    return {"precision": first, "features": "; ".join(filter(None, (row.features, further)))} if further else {}


def _with_precision(row: TrainingRow, software: tuple[int, int] | None, assumed: list[str]) -> TrainingRow:
    """The row with its precision, or with what its framework runs in by default."""
    if row.recompute in _PAPER_WORDS:
        recompute, sequence = _PAPER_WORDS[row.recompute]
        row = replace(row, recompute=recompute, seq_parallel=sequence)
    if row.precision:
        return row
    release = release_of(row, software)
    precision = load_runtime(release[0]).precision if release else "bf16"
    assumed.append(f"precision {precision} (not published: the framework's default)")
    return replace(row, precision=precision)


def _unsupported_reason(row: TrainingRow) -> str | None:
    blank = [name for name in ("gbs", "gpu", "gpus", "precision") if not getattr(row, name)]
    if blank:
        return f"{', '.join(blank)} not published"
    zero = [name for name in ("mbs", "vpp", "dp", "cp", "ep", "gpus_per_node", "shard_group") if getattr(row, name) == 0]
    return f"{', '.join(zero)} is 0" if zero else None


def _least_cut(
    row: TrainingRow, model: Model, cluster: Cluster, runtime: Runtime, software: tuple[int, int] | None, assumed: list[str]
) -> Draft | Skipped:
    """The draft with the least model parallelism at which any candidate fits in memory: tensor parallelism inside a node first,
    stages after it. Experts are spread over the scale-up domain where the row does not say."""
    refused: Draft | Skipped = Skipped("tp, pp not published, and no plan fits")
    for tp, pp in cuts(row, model, cluster):
        over = row.ep or (spread(model, cluster, (row.gpus or 1) // (tp * pp * (row.cp or 1))) if model.experts else 1)
        cut = replace(row, tp=tp, pp=pp, ep=over)
        said = list(assumed)
        said.append(f"tp {tp} pp {pp} ep {over} (not published: the least that fits in memory)")
        drafted = _Candidates.of(cut, model, cluster, runtime, software, said).draft()
        refused = drafted if isinstance(refused, Skipped) else refused
        if isinstance(drafted, Draft) and any(memory_alone(job)[1] for job in drafted.jobs if job.plan.micro_batch == 1 or row.mbs):
            return drafted
    return refused


@dataclass(frozen=True)
class _Candidates:
    """Shared parts of all candidate jobs of a row. `plan`: fields of the plan that are not open."""

    row: TrainingRow
    model: Model
    cluster: Cluster
    runtime: Runtime
    habits: FrameworkHabits
    plan: dict[str, Any]
    assumed: list[str]

    @classmethod
    def of(
        cls,
        row: TrainingRow,
        model: Model,
        cluster: Cluster,
        runtime: Runtime,
        software: tuple[int, int] | None,
        assumed: list[str],
    ) -> _Candidates:
        tp, pp, cp, gpus = row.tp or 1, row.pp or 1, row.cp or 1, row.gpus or 1
        dp = row.dp or max(1, gpus // (tp * pp * cp))
        context = context_of(row, software, model, cluster) | {"version": runtime.version}
        first = FrameworkHabits(**publications.habits_for(context))
        plan: dict[str, Any] = {
            "tp": tp,
            "pp": pp,
            "cp": cp,
            "dp": dp,
            "ep": row.ep or 1,
            "global_batch": row.gbs or 1,
            "seq": row.seq,
            "sequence_parallel": _sequence_parallel(row, tp, first, assumed),
        }
        plan |= _sharding(row, dp * cp, cluster.domain // tp, first, assumed)
        context["fully_sharded"] = plan["sharding"] in ("fsdp", "hsdp")
        habits = FrameworkHabits(**publications.habits_for(context))
        if habits.schedule is not None:
            plan["schedule"] = habits.schedule
        for fact in publications.facts_for(context):
            if fact.assumed and (fact.habits.schedule is not None or fact.habits.recompute_modules is not None):
                assumed.append(fact.assumed)
        return cls(row, model, cluster, runtime, habits, plan, assumed)

    def draft(self) -> Draft | Skipped:
        """Every combination of the open columns that makes a consistent job."""
        blank: list[str] = []
        jobs: list[Job] = []
        refused: WindtunnelError | None = None
        for (recompute, quarters), micro_batch, vpp in self.open(blank):
            layout, rule = self.stages(self.plan["pp"] * vpp)
            if layout == ():
                refused = PlanError(
                    "plan.stages",
                    self.model.layers,
                    f"at least one layer in each of {self.plan['pp'] * vpp} virtual stages",
                    "a stage that holds only the embedding or the head is not modelled in this version",
                )
                continue
            try:
                jobs.append(self.job(recompute, quarters, micro_batch, vpp, layout))
            except SpecError as error:
                refused = error
                continue
            if rule and rule not in self.assumed:
                self.assumed.append(rule)
        if not jobs:
            return Skipped(str(refused) if refused else "no micro batch of 1, 2, 4 or 8 divides the batch of a data-parallel rank")
        return Draft(self.row, tuple(jobs), tuple(blank), tuple(self.assumed))

    def job(self, recompute: Recompute, quarters: int, micro_batch: int, vpp: int, layout: tuple[int, ...] | None) -> Job:
        """One candidate. Raises SpecError where its fields contradict each other."""
        largest = max(layout or (self.model.layers // (self.plan["pp"] * vpp),))
        some = math.ceil(quarters * largest / 4) if quarters < 4 and recompute != "offload" else None
        listed = (
            tuple((self.row.recompute_modules or "").split(";")) if self.row.recompute_modules else self.habits.recompute_modules
        )
        named: Any = listed or _modules(self.model) if recompute == "modules" else ("core_attn",)
        how: Any = {"modules": "selective", "offload": "none"}.get(recompute, recompute)
        leaving = math.ceil(quarters * largest / 8) if recompute == "offload" else 0
        if self.habits.offloads_inputs and how == "full":
            leaving = largest
        away = self.habits.state_on_host
        plan = Plan(
            **self.plan,
            recompute=how,
            recompute_modules=named,
            recompute_layers=some,
            micro_batch=micro_batch,
            vpp=vpp,
            stages=layout,
            offload=Offload(
                activations=leaving, optimizer="host" if away else "none", parameters="host" if away == "all" else "none"
            ),
        )
        source = self.row.source or ""
        return check(Job(name=self.row.id, model=self.model, plan=plan, runtime=self.runtime, cluster=self.cluster, source=source))

    def open(self, blank: list[str]) -> Iterator[tuple[Level, int, int]]:
        """Candidates for the row's open columns, as (recompute, micro batch, virtual stages); names those columns in `blank`."""
        row = self.row
        levels = self.levels(blank)
        per_rank = max(1, self.plan["global_batch"] // self.plan["dp"])
        if row.mbs is None:
            blank.append("micro batch")
        sizes = (row.mbs,) if row.mbs is not None else tuple(size for size in MICRO_BATCHES if per_rank % size == 0)
        interleaves = (row.vpp,) if row.vpp is not None else self.interleaves(blank)
        return product(levels, sizes, interleaves)

    def levels(self, blank: list[str]) -> tuple[Level, ...]:
        """Levels of recompute that the row leaves open; one where it states its own."""
        row, levels = self.row, MIXTURE_LEVELS if self.model.experts else LEVELS
        if row.offload_layers:
            most = max(1, self.model.layers // self.plan["pp"])
            return (("offload", min(OFFLOAD_LEVELS[-1][1], math.ceil(8 * row.offload_layers / most))),)
        if row.recompute == "selective" and row.recompute_modules:
            return (("modules", 4),)
        if row.recompute is None:
            if self.habits.recompute_modules:
                return (("modules", 4),)
            blank.append("recompute")
            return (*levels[:-4], *OFFLOAD_LEVELS, *levels[-4:]) if self.habits.offloads else levels
        if row.recompute == "selective" and self.habits.selective is not None:
            return ((self.habits.selective, 4),)
        if row.recompute == "selective" and self.model.experts:
            blank.append("modules of selective recompute")
            return (("selective", 4), ("modules", 4))
        if row.recompute in RECOMPUTE:
            return ((row.recompute, 4),)
        raise SpecError("recompute", row.recompute, ", ".join(RECOMPUTE))

    def interleaves(self, blank: list[str]) -> tuple[int, ...]:
        """Numbers of virtual stages that the row leaves open."""
        pp, layers = self.plan["pp"], self.model.layers
        if pp > 1 and self.habits.layer_per_virtual_stage and (layers + 2) % pp == 0:
            return ((layers + 2) // pp,)
        if pp == 1 or not self.habits.interleaves or "1f1b" in _words(self.row) or self.habits.prints_virtual_stages:
            return (1,)
        if self.row.mbs is not None and self.row.recompute is not None and "interleaved" not in _words(self.row):
            self.assumed.append("no virtual stages, the framework's default: the row prints the rest of its plan")
            return (1,)
        blank.append("virtual stages")
        if layers % pp and (layers + 2) % pp:
            return (1,)
        share = (
            layers // pp if layers % pp == 0 else (layers + 2) // pp
        )  # embedding and head count as a layer each: `layout.uneven`
        return tuple(count for count in range(1, min(share, MOST_VIRTUAL_STAGES) + 1) if share % count == 0)

    def stages(self, stages: int) -> tuple[tuple[int, ...] | None, str | None]:
        """Layers of each virtual stage if they do not divide evenly; () if there is no layout."""
        layers = self.model.layers
        if self.habits.shares_work and stages > 1:
            return by_work(layers, stages, head_in_layers(self.model)) or ((), None)
        if layers % stages == 0:
            return None, None
        if stages > layers + 2:
            return (), None
        layout = uneven(layers, stages, greedy=bool(self.habits.fills_stages), further=self.model.mtp_layers > 0)
        return layout if layout else ((), None)


def level_of(job: Job) -> Level:
    """The job's entry of `LEVELS`, or the next above it where a quarter of its layers is not a whole number."""
    most = max(max(stage) for stage in job.layers_per_stage)
    if job.plan.offload.activations:
        return "offload", min(OFFLOAD_LEVELS[-1][1], 8 * job.plan.offload.activations // most)
    some = job.plan.recompute_layers
    named: Recompute = "modules" if job.plan.recompute_modules != ("core_attn",) else job.plan.recompute
    return named, 4 if some is None else math.ceil(4 * some / most)


def _modules(model: Model) -> tuple[Any, ...]:
    return ("layernorm", "mla_up_proj", "moe_act") if model.latent else ("layernorm", "moe_act")


def _words(row: TrainingRow) -> str:
    """What row and source call the run. PTD-P, the combination of Narayanan et al. 2021, has the interleaved schedule."""
    return f"{row.notes or ''} {row.source}".lower().replace("interleaved 1f1b", "interleaved").replace("ptd-p", "interleaved")


def _sequence_parallel(row: TrainingRow, tp: int, habits: FrameworkHabits, assumed: list[str]) -> bool:
    if row.seq_parallel is not None:
        return row.seq_parallel == "y" and tp > 1
    if tp == 1:
        return False
    default = habits.sequence_parallel is not False
    assumed.append(f"sequence parallelism {'on' if default else 'off'} (not published; in the frameworks since 2022)")
    return default


def _sharding(row: TrainingRow, ranks: int, in_domain: int, habits: FrameworkHabits, assumed: list[str]) -> dict[str, Any]:
    """`ranks` hold the same part of the model, `in_domain` of them in a scale-up domain."""
    kind = row.sharding
    if kind is None:
        kind = habits.sharding or "zero1"
        assumed.append(f"sharding {kind} (not published)")
    if kind == "fsdp" and row.shard_group is not None and row.shard_group < ranks:
        return {"sharding": "hsdp", "shard_group": row.shard_group}
    if kind == "fsdp" and row.shard_group is None and habits.shards_in_domain and 1 < in_domain < ranks:
        assumed.append(f"sharded over {in_domain} ranks of a scale-up domain, replicated between them (not published)")
        return {"sharding": "hsdp", "shard_group": in_domain}
    return {"sharding": kind}
