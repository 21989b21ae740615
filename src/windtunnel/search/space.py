"""A search space: for each open field of a job, the values to try.

Fields of the plan and overlap switches vary inside a frame, which the bound covers in columns. All else (cluster, precision,
framework) makes frames: jobs of their own, each with the same open fields.

Shared by searches over layouts: degrees to try, nearly equal stages, parameters that expert parallelism divides.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from windtunnel.base.arrays import Bools, Int64s
from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.predict.ranks.places import ranks_of
from windtunnel.search.change import Change, format_value, value_of
from windtunnel.spec import Job, Model
from windtunnel.spec.plan import Plan
from windtunnel.spec.shapes import SHAPES
from windtunnel.workload import active_parameters, parameter_count


def powers_of_two(most: int) -> list[int]:
    """1, 2, 4, … up to `most`."""
    return [2**n for n in range(most.bit_length()) if 2**n <= most]


def even_stages(layers: int, parts: int) -> tuple[int, ...] | None:
    """Layers of each stage, the first ones with one more; None where they divide evenly."""
    base, extra = divmod(layers, parts)
    return tuple(base + (stage < extra) for stage in range(parts)) if extra else None


def lighter_ends(job: Job) -> Iterator[tuple[int, ...]]:
    """Layers of each (virtual) stage with fewer on the first, which has the embedding, or on the last, which has the head."""
    parts = job.plan.pp * job.plan.vpp
    if job.plan.pp == 1 or job.model.layers < parts:
        return
    for less_first, less_last in ((0, 1), (1, 0), (1, 1), (0, 2), (2, 1), (1, 2), (2, 2)):
        stages = lighter_stages(job.model.layers, parts, less_first, less_last)
        if stages is not None and stages != job.plan.stages:
            yield stages


def lighter_stages(layers: int, parts: int, less_first: int, less_last: int) -> tuple[int, ...] | None:
    """Layers of each stage, with so many fewer on the first and the last; None where a stage would have fewer than none."""
    base, extra = divmod(layers + less_first + less_last, parts)
    stages = [base + (part >= parts - extra) for part in range(parts)]
    stages[0] -= less_first
    stages[-1] -= less_last
    return tuple(stages) if min(stages) >= 0 else None


def expert_parameters(model: Model) -> float:
    """Parameters of all routed experts, from those that a token does not use."""
    if model.experts is None or model.experts <= model.top_k:
        return 0.0
    return (parameter_count(model) - active_parameters(model)) * model.experts / (model.experts - model.top_k)


def stages_by_speed(job: Job, pp: int, vpp: int) -> tuple[int, ...] | None:
    """Layers of each virtual stage in proportion to the speed of its slowest GPU, by peak rates and stated factors; None where all
    are equally fast. Layers go one by one to the stage that would be done with them first."""
    if job.unequal is None or pp == 1 or job.copies > 1:
        return None
    ranks = ranks_of(job, job.unequal, np.zeros(len(job.unequal.links), np.bool_))
    peaks = np.array([cluster.gpu.peak.get(job.runtime.precision, math.nan) for cluster in ranks.clusters])
    speed = peaks[ranks.kind] / (ranks.slow * ranks.product)
    slowest = np.array([speed[ranks.places.stage == stage].min() for stage in range(pp)])
    if np.allclose(slowest, slowest[0]) or not np.isfinite(slowest).all():
        return None
    stage_of = {part: stage for stage, parts in enumerate(job.places) for part in parts}
    layers, of_stage = [0] * len(stage_of), [0] * pp
    for _ in range(job.model.layers):
        stage = min(range(pp), key=lambda s: ((of_stage[s] + 1) / slowest[s], s))
        part = min((p for p in stage_of if stage_of[p] == stage), key=lambda p: (layers[p], p))
        layers[part] += 1
        of_stage[stage] += 1
    return tuple(layers)


WITH_TP = "with-tp"
"""Value of `plan.sequence_parallel`: on where tp > 1."""

EVEN, LIGHT_LAST, LIGHT_ENDS, BY_SPEED = "even", "light-last", "light-ends", "by-speed"
STAGES = (EVEN, LIGHT_LAST, LIGHT_ENDS, BY_SPEED)
"""Values of `plan.stages`: nearly equal stages; one layer fewer on the last; on the first and the last; more layers on faster
GPUs."""

SWITCHES = (
    "runtime.overlap_grad_reduce",
    "runtime.overlap_param_gather",
    "runtime.overlap_p2p",
    "runtime.overlap_tp",
    "runtime.overlap_tp_dgrad",
    "runtime.moe_a2a_overlap",
)
"""Fields of the runtime that vary inside a frame: no default of a framework depends on them."""

MOST = 20_000_000
"""Limit of combinations of one frame: a few minutes and GB of bounds."""

Values = tuple[Any, ...]


@dataclass(frozen=True)
class Space:
    """Open fields of `job` by path, with their values in order; fields not named stay as the job has them."""

    job: Job
    fields: Mapping[str, Values]

    @property
    def size(self) -> int:
        """Combinations, whether they can run or not."""
        return int(np.prod([len(values) for values in self.fields.values()], dtype=np.float64))

    def columns(self) -> PlanColumns:
        """All combinations that are plans: degrees divide the GPUs, batches divide, layers suffice; each plan once.

        Raises SpecError if there is none, with the rule that dropped the last ones, and for more than MOST."""
        return _expand(self)


@dataclass(frozen=True)
class PlanColumns:
    """N plans of one frame: for each open field the place of its value. `values[path][codes[path][n]]` is that of plan n."""

    job: Job
    values: Mapping[str, Values]
    codes: Mapping[str, npt.NDArray[np.int16]]

    def __len__(self) -> int:
        return len(next(iter(self.codes.values()))) if self.codes else 1

    def numbers(self, path: str) -> Int64s:
        """[N] values of a field that is a number."""
        if path not in self.codes:
            return np.full(len(self), value_of(self.job, path), np.int64)
        return np.array(self.values[path], np.int64)[self.codes[path]]

    def flags(self, path: str) -> Bools:
        """[N] values of a field that is true or false."""
        if path not in self.codes:
            return np.full(len(self), value_of(self.job, path), np.bool_)
        return np.array(self.values[path], np.bool_)[self.codes[path]]

    def of(self, path: str, number: int) -> Any:
        """The value of a field of plan `number`, as the space names it."""
        return self.values[path][self.codes[path][number]] if path in self.codes else value_of(self.job, path)

    def take(self, rows: Bools | Int64s) -> PlanColumns:
        return PlanColumns(self.job, self.values, {path: codes[rows] for path, codes in self.codes.items()})

    def change(self, number: int) -> Change:
        """Plan `number` as a change of the job; values that follow others are resolved."""
        fields = {path: self.of(path, number) for path in self.codes}
        pp, vpp, tp = (fields.get(f"plan.{name}", getattr(self.job.plan, name)) for name in ("pp", "vpp", "tp"))
        if fields.get("plan.sequence_parallel") == WITH_TP:
            fields["plan.sequence_parallel"] = tp > 1
        layout = fields.get("plan.stages", EVEN)
        if layout in STAGES and (
            "plan.stages" in fields or self.job.plan.stages is None or {"plan.pp", "plan.vpp"} & fields.keys()
        ):
            fields["plan.stages"] = stages_of(layout, self.job.model.layers, pp * vpp) if layout != BY_SPEED else None
        fields |= _followers(self.job, fields, tp)
        if layout == BY_SPEED:
            tried = Change(tuple(fields.items())).apply_unchecked(self.job)
            fields["plan.stages"] = stages_by_speed(tried, pp, vpp) or stages_of(EVEN, self.job.model.layers, pp * vpp)
        return Change(tuple(fields.items()))


def _followers(job: Job, fields: Mapping[str, Any], tp: int) -> dict[str, Any]:
    """Fields that follow open ones: they would contradict them, or have no effect."""
    follow: dict[str, Any] = {}
    if {"plan.tp", "plan.cp", "plan.pp"} & fields.keys():
        follow["plan.dp"] = None
    if fields.get("plan.recompute", "selective") != "selective" and job.plan.recompute_modules != CORE:
        follow["plan.recompute_modules"] = CORE
    if fields.get("plan.recompute") == "none" and job.plan.recompute_layers is not None:
        follow["plan.recompute_layers"] = None
    if fields.get("plan.cp") == 1:
        follow |= {f"plan.{name}": None for name in ("cp_kind", "cp_sizes") if getattr(job.plan, name) is not None}
    if "plan.sharding" in fields and fields["plan.sharding"] != job.plan.sharding:
        near = max(1, job.cluster.domain // tp)
        follow["plan.shard_group"] = near if fields["plan.sharding"] == "hsdp" else None
    return {path: value for path, value in follow.items() if path not in fields}


CORE = Plan.model_fields["recompute_modules"].default
"""Modules that selective recompute runs again by default."""


def stages_of(layout: str, layers: int, parts: int) -> tuple[int, ...] | None:
    """Layers of each virtual stage for a value of `plan.stages`; None: they divide evenly."""
    if layout == EVEN:
        return even_stages(layers, parts)
    return lighter_stages(layers, parts, 1 if layout == LIGHT_ENDS else 0, 1)


def _expand(space: Space) -> PlanColumns:
    """Fields are crossed one by one; rules drop combinations as soon as all of their fields are there."""
    job = space.job
    order = [path for path in _ORDER if path in space.fields] + [path for path in space.fields if path not in _ORDER]
    codes: dict[str, npt.NDArray[np.int16]] = {}
    rows = 1
    waiting = list(RULES)
    for place, path in enumerate((*order, None)):
        if path is not None:
            count = len(space.fields[path])
            if rows * count > MOST:
                raise SpecError(
                    "--set", f"{rows * count:,} plans", f"at most {MOST:,} plans of one machine", f"Give {path} fewer values."
                )
            codes = {name: np.repeat(column, count) for name, column in codes.items()}
            codes[path] = np.tile(np.arange(count, dtype=np.int16), rows)
            rows *= count
        still = set(order[place + 1 :])
        ready = [rule for rule in waiting if not still & rule[0]]
        waiting = [rule for rule in waiting if still & rule[0]]
        columns = PlanColumns(job, space.fields, codes)
        for needed, rule, why in ready:
            keep = rule(columns)
            if not keep.any():
                raise _no_plan_error(space, needed, why.format(job=job))
            codes = {name: column[keep] for name, column in columns.codes.items()}
            columns = PlanColumns(job, space.fields, codes)
        rows = len(columns) if codes else 1
    return PlanColumns(job, space.fields, codes)


_ORDER = tuple(
    f"plan.{name}" for name in ("tp", "cp", "pp", "vpp", "schedule", "ep", "etp", "stages", "micro_batch", "global_batch")
)


def _dp(columns: PlanColumns) -> Int64s:
    split = columns.numbers("plan.tp") * columns.numbers("plan.cp") * columns.numbers("plan.pp")
    return np.asarray(columns.job.cluster.gpus // split, np.int64)


def _ranks(columns: PlanColumns) -> Bools:
    split = columns.numbers("plan.tp") * columns.numbers("plan.cp") * columns.numbers("plan.pp")
    whole = columns.job.cluster.gpus % split == 0
    stated = columns.job.plan.dp
    if stated is not None and not {"plan.tp", "plan.cp", "plan.pp"} & columns.codes.keys():
        whole &= split * stated == columns.job.cluster.gpus
    return np.asarray(whole, np.bool_)


def _batches(columns: PlanColumns) -> Bools:
    batch = columns.numbers("plan.micro_batch") * _dp(columns)
    return np.asarray(columns.numbers("plan.global_batch") % batch == 0, np.bool_)


def micro_batches(columns: PlanColumns) -> Int64s:
    """[N] micro batches of a step."""
    return np.asarray(columns.numbers("plan.global_batch") // (columns.numbers("plan.micro_batch") * _dp(columns)), np.int64)


def _parts(columns: PlanColumns) -> Bools:
    pp, vpp = columns.numbers("plan.pp"), columns.numbers("plan.vpp")
    return np.asarray(((vpp == 1) | (pp > 1)) & (pp * vpp <= columns.job.model.layers), np.bool_)


def _rows_by_value(columns: PlanColumns, path: str) -> Iterator[tuple[Any, Bools]]:
    """Every value of a field, with the plans that have it."""
    if path not in columns.codes:
        yield value_of(columns.job, path), np.ones(len(columns), np.bool_)
        return
    for place, value in enumerate(columns.values[path]):
        yield value, columns.codes[path] == place


def _schedules(columns: PlanColumns) -> Bools:
    pp, vpp = columns.numbers("plan.pp"), columns.numbers("plan.vpp")
    keep = np.ones(len(columns), np.bool_)
    for name, rows in _rows_by_value(columns, "plan.schedule"):
        if name != "auto":
            shape = SHAPES[name]
            able = (vpp >= shape.virtual[0]) & (vpp <= shape.virtual[1]) & ((pp % 2 == 0) | (not shape.even))
            keep &= ~rows | able & ((pp > 1) | (name in ("1f1b", "gpipe")))
    return keep


def _rounds(columns: PlanColumns) -> Bools:
    pp, vpp, count = columns.numbers("plan.pp"), columns.numbers("plan.vpp"), micro_batches(columns)
    keep = np.ones(len(columns), np.bool_)
    for name, rows in _rows_by_value(columns, "plan.schedule"):
        shape = SHAPES["interleaved" if name == "auto" else name]
        rounds = (vpp > 1) if name == "auto" else np.full(len(columns), shape.rounds)
        keep &= ~rows | (~rounds | (count % pp == 0)) & (count >= shape.least * pp) & ((not shape.even) | (count % 2 == 0))
    return keep


def _experts(columns: PlanColumns) -> Bools:
    ranks = columns.numbers("plan.tp") * columns.numbers("plan.cp") * _dp(columns)
    return np.asarray(ranks % (columns.numbers("plan.ep") * columns.numbers("plan.etp")) == 0, np.bool_)


def _spelled_once(columns: PlanColumns) -> Bools:
    """No second spelling of a plan: without data-parallel ranks nothing is sharded, without tensor parallelism no sequence is."""
    keep = np.ones(len(columns), np.bool_)
    ways = columns.values.get("plan.sharding", ())
    if "none" in ways:
        alone = _dp(columns) * columns.numbers("plan.cp") * (1 if columns.job.model.experts is None else 2) == 1
        keep &= ~alone | (columns.codes["plan.sharding"] == ways.index("none"))
    if {"fsdp", "hsdp"} <= set(ways):
        near = np.maximum(1, columns.job.cluster.domain // columns.numbers("plan.tp"))
        ranks = _dp(columns) * columns.numbers("plan.cp")
        keep &= (columns.codes["plan.sharding"] != ways.index("hsdp")) | (near > 1) & (ranks > near) & (ranks % near == 0)
    modules, recompute = columns.codes.get("plan.recompute_modules"), columns.values.get("plan.recompute", ())
    if modules is not None and "selective" in recompute:
        keep &= (columns.codes["plan.recompute"] == recompute.index("selective")) | (modules == 0)
    parallel = columns.values.get("plan.sequence_parallel", ())
    if False in parallel and True in parallel:
        keep &= (columns.numbers("plan.tp") > 1) | (columns.codes["plan.sequence_parallel"] == parallel.index(False))
    return keep


def _has_stages(columns: PlanColumns) -> Bools:
    """Uneven layouts only where they differ from the even one and leave no stage empty."""
    if "plan.stages" not in columns.codes:
        return np.ones(len(columns), np.bool_)  # the job's own layout follows the stages
    parts = columns.numbers("plan.pp") * columns.numbers("plan.vpp")
    keep = np.ones(len(columns), np.bool_)
    for layout, rows in _rows_by_value(columns, "plan.stages"):
        if layout in (LIGHT_LAST, LIGHT_ENDS):
            able = [
                p
                for p in np.unique(parts[rows]).tolist()
                if p > 2
                and (stages := stages_of(layout, columns.job.model.layers, p))
                and stages != even_stages(columns.job.model.layers, p)
            ]
            keep &= ~rows | np.isin(parts, able)
        elif layout == BY_SPEED:
            keep &= ~rows | (columns.numbers("plan.pp") > 1) & (columns.job.unequal is not None)
        elif layout is not None and layout != EVEN:
            keep &= ~rows | (parts == len(layout))
    return keep


_DEGREES = frozenset({"plan.tp", "plan.cp", "plan.pp"})
_BATCH = _DEGREES | {"plan.micro_batch", "plan.global_batch"}

RULES = (
    (_DEGREES, _ranks, "tp*cp*pp that divides cluster.gpus = {job.cluster.gpus}"),
    ({"plan.pp", "plan.vpp"}, _parts, "pp*vpp of at most model.layers = {job.model.layers}, and vpp = 1 where pp is 1"),
    ({"plan.pp", "plan.vpp", "plan.schedule"}, _schedules, "as many virtual stages as its schedule asks for"),
    ({"plan.pp", "plan.vpp", "plan.stages"}, _has_stages, "as many stages as plan.stages lists"),
    (_DEGREES | {"plan.ep", "plan.etp"}, _experts, "ep*etp that divides tp*cp*dp"),
    (
        _DEGREES | {"plan.sharding", "plan.sequence_parallel", "plan.recompute", "plan.recompute_modules"},
        _spelled_once,
        "ranks over which hsdp could shard",
    ),
    (_BATCH, _batches, "micro_batch*dp that divides plan.global_batch"),
    (
        _BATCH | {"plan.vpp", "plan.schedule"},
        _rounds,
        "as many micro batches as its schedule asks for (interleaved: a multiple of pp)",
    ),
)
"""(fields, rule, what it asks of a plan): which rows may be plans. `spec.check` decides about the rest."""


def _no_plan_error(space: Space, needed: AbstractSet[str], why: str) -> SpecError:
    """The rule that dropped the last plans, with the fields that it looks at."""
    open_ = {path: values for path, values in space.fields.items() if path in needed}
    closed = [f"{path}={format_value(value_of(space.job, path))}" for path in sorted(needed - open_.keys())]
    hint = (
        f"Give one of these fields other values, or leave it out: then the default space opens it ({', '.join(closed)} as stated)"
    )
    return SpecError(
        "--set", _format_fields(open_) or "no open field", f"at least one plan: none has {why}", hint + "." if closed else ""
    )


def _format_fields(fields: Mapping[str, Values]) -> str:
    return " ".join(f"{path}={','.join(map(format_value, values))}" for path, values in fields.items())


def split_values(path: str, text: str) -> list[str]:
    """The values of `--set path=a,b,c`, split at commas outside of brackets and quotes."""
    values, depth, word = [], 0, ""
    for letter in text:
        depth += (letter in "[({") - (letter in "])}")
        if letter == "," and depth == 0:
            values.append(word)
            word = ""
        else:
            word += letter
    values.append(word)
    if any(not value.strip() for value in values):
        raise SpecError("--set", f"{path}={text}", "values separated by commas, such as plan.tp=4,8")
    return list(dict.fromkeys(value.strip() for value in values))


def frames(fields: Mapping[str, Values]) -> Iterator[dict[str, Any]]:
    """Every combination of the fields that make frames."""
    for values in product(*fields.values()):
        yield dict(zip(fields, values, strict=True))


def may_be_open(path: str) -> bool:
    """Whether a field can vary inside a frame."""
    return path.startswith("plan.") and path != "plan.seq" or path in SWITCHES


def check_path(path: str) -> None:
    """Raise UnknownName if a field of the plan does not exist."""
    if path.startswith("plan.") and path.split(".")[1] not in Plan.model_fields:
        raise UnknownName("--set", path, [f"plan.{name}" for name in Plan.model_fields])


def space_table(spaces: Sequence[Space], labels: Sequence[str] = ()) -> dict[str, Any]:
    """What a search would try, as plain data: `fields` (path -> values) of the open fields, `frames` (machines or runtimes, where
    there are several) and how many `combinations` all have together."""
    first = spaces[0]
    return {
        "schema": "windtunnel.space/1",
        "job": first.job.name,
        "gpus": first.job.cluster.gpus,
        "fields": {path: [format_value(value) for value in values] for path, values in first.fields.items() if len(values) > 1},
        "frames": list(labels) if len(spaces) > 1 else [],
        "combinations": sum(space.size for space in spaces),
    }
