"""A row of a training table as a `Job`, with every assumption said, or the reason why it is none.

Columns that the row leaves blank and that a plan needs (micro batch, virtual stages, recompute) give several candidate jobs;
`blanks.choose` then takes one by a rule that is the same for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

from pydantic import ValidationError

from windtunnel.base.errors import PlanError, SpecError, WindtunnelError
from windtunnel.reality.architecture import model_of
from windtunnel.reality.framework_names import framework_named
from windtunnel.reality.layout import uneven
from windtunnel.reality.machine import cluster_of
from windtunnel.reality.recipes import recomputed
from windtunnel.reality.rows import TrainingRow
from windtunnel.reality.skipped import Skipped
from windtunnel.reality.software import RELEASES, catalogue_date, runtime_of, software_date
from windtunnel.spec import Cluster, Job, Model, Plan, Runtime, check
from windtunnel.spec.offload import Offload

Recompute = Literal["none", "selective", "modules", "offload", "ops", "full"]
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
Level = tuple[Recompute, int]
"""Recompute and the quarters of a virtual stage's layers that do it; for offload eighths of them."""

LEVELS: tuple[Level, ...] = (("none", 4), ("selective", 4), ("full", 1), ("full", 2), ("full", 3), ("full", 4))
"""What a blank may stand for, least first: recipes recompute no more layers than memory asks for."""

OFFLOAD_LEVELS: tuple[Level, ...] = tuple(("offload", eighths) for eighths in range(1, 8))
"""Eighths of a virtual stage's layers whose activations leave for the host, where recipes do that before they recompute: they name
single layers (5, 20, 40 of 80; 92, 95 of 126)."""

ALL_LEVELS: tuple[Level, ...] = (*LEVELS[:2], ("modules", 4), *OFFLOAD_LEVELS, *LEVELS[2:])
MIXTURE_LEVELS: tuple[Level, ...] = (*LEVELS[:2], ("modules", 4), *LEVELS[2:])
"""With experts also the cheap modules by name: norms, experts' activations, up projections of latent attention."""

OFFLOADS_SINCE = {"nemo": (25, 7)}
"""Frameworks whose recipes offload activations of fully sharded jobs where the host is a chip-to-chip link away, and the version
since which they do (NVIDIA-NeMo/Megatron-Bridge performance recipes: cpu_offloading_num_layers beside use_megatron_fsdp)."""

MICRO_BATCHES = (1, 2, 4, 8)
INTERLEAVES = ("megatron", "megascale", "nemo", "torchtitan", "meta")
"""Frameworks that have the interleaved schedule; the others run 1F1B."""

PRINTS_INTERLEAVE = ("nemo",)
"""Publishers whose tables print virtual stages wherever there are some (97 of 104 rows with pipelines): a blank is none."""

MOST_VIRTUAL_STAGES = 8
"""Papers print 1 to 8 virtual stages: 3 (Korthikanti et al. 2022), 6 (MegaScale), up to 8 (Llama 3); finer cuts only add
transfers."""

SCHEDULE_OF = {"hai-llm": "dualpipe"}
"""Frameworks with a pipeline schedule of their own (DeepSeek-V3, arXiv:2412.19437 section 3.2.1)."""

LAYER_BY_LAYER = ("meta",)
"""Frameworks whose virtual stages hold one layer each, the first and the last the embedding and the head alone (Llama 3,
arXiv:2407.21783 section 3.3.2)."""

_SEQUENCE_PARALLEL_SINCE = (2022, 5)
_DISTRIBUTED_OPTIMIZER_SINCE = (2022, 1)


@dataclass(frozen=True)
class Draft:
    """A row as far as it is stated. `jobs` are equal but for the columns named in `blank`; at least one, all of them consistent."""

    row: TrainingRow
    jobs: tuple[Job, ...]
    blank: tuple[str, ...]
    assumed: tuple[str, ...]


def draft(row: TrainingRow) -> Draft | Skipped:
    """The job or the candidate jobs that `row` describes; never raises for what a table can contain."""
    assumed: list[str] = []
    row = _with_known_framework(row, assumed)
    try:
        software = software_date(row) or catalogue_date(row)
        model = model_of(row, software, assumed)
        if isinstance(model, Skipped):
            return model
        if reason := _unsupported(row):
            return Skipped(reason)
        cluster = cluster_of(row, assumed)
        if isinstance(cluster, Skipped):
            return cluster
        runtime = runtime_of(row, software, assumed, model, cluster)
        if isinstance(runtime, Skipped):
            return runtime
        return _candidates(row, model, cluster, runtime, software, assumed)
    except ValidationError as error:
        first = error.errors()[0]
        return Skipped(f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except WindtunnelError as error:
        return Skipped(str(error))


def _with_known_framework(row: TrainingRow, assumed: list[str]) -> TrainingRow:
    name, why = framework_named(row.framework or "", row.sharding, tuple(RELEASES))
    if why:
        assumed.append(why)
    return replace(row, framework=name)


def _unsupported(row: TrainingRow) -> str | None:
    blank = [name for name in ("gbs", "gpu", "gpus", "tp", "pp", "precision") if not getattr(row, name)]
    return f"{', '.join(blank)} not published" if blank else None


def _candidates(
    row: TrainingRow, model: Model, cluster: Cluster, runtime: Runtime, software: tuple[int, int] | None, assumed: list[str]
) -> Draft | Skipped:
    tp, pp, cp, gpus, batch = row.tp or 1, row.pp or 1, row.cp or 1, row.gpus or 1, row.gbs or 1
    dp = row.dp or max(1, gpus // (tp * pp * cp))
    common: dict[str, Any] = {
        "tp": tp,
        "pp": pp,
        "cp": cp,
        "dp": dp,
        "ep": row.ep or 1,
        "global_batch": batch,
        "seq": row.seq,
        "sequence_parallel": _sequence_parallel(row, tp, software, assumed),
    }
    common |= _sharding(row, dp * cp, software, assumed)
    if pp > 1 and row.framework in SCHEDULE_OF:
        common["schedule"] = SCHEDULE_OF[row.framework]
        assumed.append(f"schedule {common['schedule']}, the framework's own")
    listed = recomputed(model, cluster) if row.framework == "nemo" and row.recompute is None else ()
    if listed:
        assumed.append(f"recompute of {', '.join(listed)}, as NVIDIA's recipes of hybrids list it")
    blank: list[str] = []
    jobs: list[Job] = []
    refused: WindtunnelError | None = None
    offloads = _offloads(runtime, cluster, common["sharding"])
    for (recompute, quarters), micro_batch, vpp in _open(row, model, dp, blank, offloads, listed):
        layout, rule = _stages(row, model, pp * vpp)
        if layout == ():
            refused = PlanError(
                "plan.stages",
                model.layers,
                f"at least one layer in each of {pp * vpp} virtual stages",
                "a stage that holds only the embedding or the head is not modelled in this version",
            )
            continue
        largest = max(layout or (model.layers // (pp * vpp),))
        some = math.ceil(quarters * largest / 4) if quarters < 4 and recompute != "offload" else None
        named: Any = listed or _modules(model) if recompute == "modules" else ("core_attn",)
        how: Any = {"modules": "selective", "offload": "none"}.get(recompute, recompute)
        leaving = math.ceil(quarters * largest / 8) if recompute == "offload" else 0
        plan = Plan(
            **common,
            recompute=how,
            recompute_modules=named,
            recompute_layers=some,
            micro_batch=micro_batch,
            vpp=vpp,
            stages=layout,
            offload=Offload(activations=leaving),
        )
        job = Job(name=row.id, model=model, plan=plan, runtime=runtime, cluster=cluster, source=row.source or "")
        try:
            jobs.append(check(job))
        except SpecError as error:
            refused = error
            continue
        if rule and rule not in assumed:
            assumed.append(rule)
    if not jobs:
        return Skipped(str(refused) if refused else "no micro batch of 1, 2, 4 or 8 divides the batch of a data-parallel rank")
    return Draft(row, tuple(jobs), tuple(blank), tuple(assumed))


def level_of(job: Job) -> Level:
    """The job's entry of `LEVELS`, or the next above it where a quarter of its layers is not a whole number."""
    most = max(max(stage) for stage in job.layers_per_stage)
    if job.plan.offload.activations:
        return "offload", min(OFFLOAD_LEVELS[-1][1], 8 * job.plan.offload.activations // most)
    some = job.plan.recompute_layers
    named: Recompute = "modules" if job.plan.recompute_modules != ("core_attn",) else job.plan.recompute
    return named, 4 if some is None else math.ceil(4 * some / most)


def _open(
    row: TrainingRow, model: Model, dp: int, blank: list[str], offloads: bool, listed: tuple[str, ...] = ()
) -> Iterator[tuple[Level, int, int]]:
    """What may stand in the row's blanks; names them in `blank`. `listed`: modules of selective recompute that a recipe prints."""
    levels = MIXTURE_LEVELS if model.experts else LEVELS
    if listed:
        levels = (("modules", 4),)
    elif row.recompute is None:
        blank.append("recompute")
        levels = (*levels[:-4], *OFFLOAD_LEVELS, *levels[-4:]) if offloads else levels
    elif row.recompute == "selective" and row.framework == "torchtitan":
        levels = (("ops", 4),)  # its selective mode chooses by operator, not Megatron's attention core
    elif row.recompute == "selective" and model.experts:
        blank.append("modules of selective recompute")
        levels = (("selective", 4), ("modules", 4))
    elif row.recompute in RECOMPUTE:
        levels = ((row.recompute, 4),)
    else:
        raise SpecError("recompute", row.recompute, ", ".join(RECOMPUTE))
    per_rank = max(1, (row.gbs or 1) // dp)
    if row.mbs is None:
        blank.append("micro batch")
    sizes = (row.mbs,) if row.mbs is not None else tuple(size for size in MICRO_BATCHES if per_rank % size == 0)
    interleaves = (row.vpp,) if row.vpp is not None else _interleaves(row, model.layers, blank)
    return product(levels, sizes, interleaves)


def _offloads(runtime: Runtime, cluster: Cluster, sharding: str) -> bool:
    """Whether the recipes of the row's software offload activations on its machine."""
    since, link = OFFLOADS_SINCE.get(runtime.framework), cluster.node.host_link
    version = tuple(int(part) for part in runtime.version.split(".")[:2] if part.isdigit())
    return since is not None and version >= since and link is not None and link.kind == "c2c" and sharding in ("fsdp", "hsdp")


def _interleaves(row: TrainingRow, layers: int, blank: list[str]) -> tuple[int, ...]:
    pp = row.pp or 1
    if pp > 1 and row.framework in LAYER_BY_LAYER and (layers + 2) % pp == 0:
        return ((layers + 2) // pp,)
    if pp == 1 or (row.framework or "") not in INTERLEAVES or "1f1b" in _words(row):
        return (1,)
    if row.framework in PRINTS_INTERLEAVE:
        return (1,)
    blank.append("virtual stages")
    if layers % pp and (layers + 2) % pp:
        return (1,)
    share = layers // pp if layers % pp == 0 else (layers + 2) // pp  # embedding and head count as a layer each: `layout.uneven`
    return tuple(count for count in range(1, min(share, MOST_VIRTUAL_STAGES) + 1) if share % count == 0)


def _modules(model: Model) -> tuple[Any, ...]:
    return ("layernorm", "mla_up_proj", "moe_act") if model.latent else ("layernorm", "moe_act")


def _words(row: TrainingRow) -> str:
    return (row.notes or "").lower().replace("interleaved 1f1b", "interleaved")


def _stages(row: TrainingRow, model: Model, stages: int) -> tuple[tuple[int, ...] | None, str | None]:
    """Layers of each virtual stage where they do not divide evenly; () where there is no layout."""
    layers = model.layers
    if layers % stages == 0:
        return None, None
    if stages > layers + 2:
        return (), None
    made = uneven(layers, stages, greedy=row.framework == "megatron-deepspeed", further=model.mtp_layers > 0)
    return made if made else ((), None)


def _sequence_parallel(row: TrainingRow, tp: int, software: tuple[int, int] | None, assumed: list[str]) -> bool:
    if row.seq_parallel is not None:
        return row.seq_parallel == "y" and tp > 1
    if tp == 1:
        return False
    default = software is None or software >= _SEQUENCE_PARALLEL_SINCE
    assumed.append(f"sequence parallelism {'on' if default else 'off'} (not published; in the frameworks since 2022)")
    return default


def _sharding(row: TrainingRow, ranks: int, software: tuple[int, int] | None, assumed: list[str]) -> dict[str, Any]:
    kind = row.sharding
    if kind is None:
        kind = "none" if software is not None and software < _DISTRIBUTED_OPTIMIZER_SINCE else "zero1"
        assumed.append(f"sharding {kind} (not published)")
    if kind == "fsdp" and row.shard_group is not None and row.shard_group < ranks:
        return {"sharding": "hsdp", "shard_group": row.shard_group}
    return {"sharding": kind}
