"""From overrides with several values, as `windtunnel search` takes them, to frames with their open fields. Hardware designs of a
job: which fields a study varies, which the plan search of each design varies, and which are fixed.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import PlanError, SpecError, UnknownName
from windtunnel.jobs.loaded import LoadedJob
from windtunnel.search.change import format_value, parse_values
from windtunnel.search.defaults import default_fields
from windtunnel.search.design import DesignField, Premium, field_of
from windtunnel.search.result import SearchResult
from windtunnel.search.space import STAGES, WITH_TP, Space, Values, check_path, frames, may_be_open, split_values
from windtunnel.spec import Job, dump_job, load_job
from windtunnel.spec.loading.files import names, read_table

MOST_FRAMES = 256

Load = Callable[[list[str]], LoadedJob]


@dataclass(frozen=True)
class Question:
    """`spaces`: one a frame; `labels`: what a frame has of its own; `overrides`: that and all that is fixed, as `--set` takes it;
    `loaded`: the first frame's job as it was read; `own`: what to call its plan."""

    spaces: tuple[Space, ...]
    labels: tuple[str, ...]
    overrides: tuple[tuple[str, ...], ...]
    loaded: LoadedJob
    own: str = "Your plan"
    stated: frozenset[str] = frozenset()
    """Paths that the question states or opens."""


def question(load: Load, sets: Sequence[str], path: str | None, machines: Sequence[str]) -> Question:
    """The spaces of `--set` and of the space file at `path`; `load` makes a job of overrides, `machines` are clusters to choose
    from."""
    texts = {} if path is None else _space_file(path)
    for text in sets:
        key, equals, values = text.partition("=")
        if not equals:
            raise SpecError("--set", text, "path=value, or path=a,b,c for values to try")
        texts[key.strip()] = split_values(key.strip(), values)
    fixed = [f"{key}={values[0]}" for key, values in texts.items() if len(values) == 1 and not _word(key, values[0])]
    inside = {key: values for key, values in texts.items() if may_be_open(key) and (len(values) > 1 or _word(key, values[0]))}
    outside: dict[str, Values] = {key: tuple(values) for key, values in texts.items() if not may_be_open(key) and len(values) > 1}
    for key in inside:
        check_path(key)
    every = list(frames({**({"cluster": tuple(machines)} if machines else {}), **outside}))
    if len(every) > MOST_FRAMES:
        raise SpecError("--set", f"{len(every)} combinations of {', '.join(outside)}", f"at most {MOST_FRAMES}")
    spaces, labels, overrides = [], [], []
    first: LoadedJob | None = None
    for frame in every:
        own = [f"{key}={value}" for key, value in frame.items()]
        loaded, name = _load_variant(load, [*fixed, *own])
        first = first or loaded
        closed = {key for key, values in texts.items() if len(values) == 1}
        fields = {key: values for key, values in default_fields(loaded.job).items() if key not in closed}
        fields |= {key: _values(loaded.job, key, values) for key, values in inside.items()}
        spaces.append(Space(loaded.job, fields))
        labels.append(", ".join(_label(key, value) for key, value in frame.items()))
        overrides.append((*fixed, *(text for text in own if not text.startswith("cluster="))))
    if first is None:
        raise SpecError("--set", "no combination", "at least one value of each field")
    return Question(tuple(spaces), tuple(labels), tuple(overrides), first, name, frozenset(texts))


def _load_variant(load: Load, overrides: list[str]) -> tuple[LoadedJob, str]:
    """The job of `overrides`, and what to call its plan. If its own plan cannot run there (on other GPUs, say), one without model
    parallelism takes its place, as far as the overrides leave it open."""
    try:
        loaded = load(overrides)
    except PlanError:
        stated = {text.partition("=")[0] for text in overrides}
        return load(
            [*(f"{path}={value}" for path, value in PLAINEST.items() if path not in stated), *overrides]
        ), "The plan without model parallelism"
    return loaded, "The first plan that fits" if loaded.assumed else "Your plan"


PLAINEST = {
    "plan.tp": "1",
    "plan.cp": "1",
    "plan.pp": "1",
    "plan.vpp": "1",
    "plan.ep": "1",
    "plan.etp": "1",
    "plan.dp": "none",
    "plan.stages": "none",
    "plan.schedule": "auto",
    "plan.micro_batch": "1",
    "plan.sequence_parallel": "false",
    "plan.shard_group": "none",
    "plan.recompute_layers": "none",
}
"""A plan that runs wherever the batch divides over the GPUs."""


def _label(path: str, value: Any) -> str:
    """`256 GPUs`, `h100-ib`, `precision=fp8`, `NCCL_ALGO=Tree`."""
    return (
        f"{int(value):,} GPUs"
        if path == "cluster.gpus" and str(value).isdecimal()
        else str(value)
        if path == "cluster"
        else f"{path.removeprefix('runtime.').removeprefix('nccl.')}={value}"
    )


def _word(path: str, value: str) -> bool:
    """Whether a value only has a meaning for a search."""
    return path == "plan.stages" and value in STAGES or path == "plan.sequence_parallel" and value == WITH_TP


def _values(job: Job, path: str, texts: Sequence[str]) -> Values:
    """Values as the job's field has them, and words that only a search knows as they are."""
    for text in texts:
        if path == "plan.stages" and text.isidentifier() and text != "none" and not _word(path, text):
            raise UnknownName(path, text, STAGES)
    plain = iter(parse_values(job, path, [text for text in texts if not _word(path, text)]))
    return tuple(dict.fromkeys(text if _word(path, text) else next(plain) for text in texts))


def predict_command(result: SearchResult, named: Sequence[str]) -> str:
    """The command line that predicts the best plan; `named`: words that name its frame's job."""
    best = result.ranked[0]
    job = result.jobs[best.frame]
    words = ["--on", job.cluster.id] if job.cluster.id in names("clusters") else []
    sets = [f"cluster.gpus={job.cluster.gpus}", f"plan.global_batch={job.plan.global_batch}", f"plan.seq={job.plan.seq}"]
    sets += [text for text in best.change.sets if not text.endswith("=none") or "recompute" in text or "sharding" in text]
    settings = words + [word for text in dict.fromkeys(sets) for word in ("--set", text)]
    return shlex.join(["windtunnel", "predict", *_without_repeated(named, settings), *settings])


def _without_repeated(words: Sequence[str], settings: Sequence[str]) -> list[str]:
    """Words without a `--set` that `settings` repeats."""
    ours = {text.partition("=")[0] for text in settings}
    kept = list(words)
    for place in reversed(range(len(kept) - 1)):
        if kept[place] == "--set" and kept[place + 1].partition("=")[0] in ours:
            del kept[place : place + 2]
    return kept


def _space_file(path: str) -> dict[str, list[str]]:
    """Fields of a TOML, YAML or JSON file: paths, or nested tables, with a list of values each."""
    flat: dict[str, list[str]] = {}

    def walk(table: Mapping[str, Any], before: str) -> None:
        for key, value in table.items():
            own = f"{before}.{key}" if before else str(key)
            if isinstance(value, Mapping):
                walk(value, own)
            elif isinstance(value, list) and value:
                flat[own] = [format_value(one) for one in value]
            else:
                raise SpecError(f"--space {path}: {own}", value, "a list of values to try, such as [4, 8]")

    walk(read_table(Path(path)), "")
    if not flat:
        raise SpecError(f"--space {path}", "no field", "fields with lists of values to try, such as [plan] with tp = [4, 8]")
    return flat


@dataclass(frozen=True)
class DesignFields:
    """`varied`: fields of the hardware with their ranges or choices; `plans`: what the plan search of each design opens or fixes;
    `fixed`: what the job is loaded with. All as `--set` takes them."""

    varied: Mapping[str, str]
    plans: tuple[str, ...]
    fixed: tuple[str, ...]

    @classmethod
    def of(cls, pairs: Sequence[tuple[str, str]]) -> DesignFields:
        """Fields with their values, sorted by what they are for."""
        varied = {key: values for key, values in pairs if _is_varied(key, values)}
        plans = tuple(f"{key}={values}" for key, values in pairs if key not in varied and may_be_open(key))
        fixed = tuple(f"{key}={values}" for key, values in pairs if key not in varied and not _is_open(key, values))
        return cls(varied, plans, fixed)

    def axes(self, job: Job) -> list[DesignField]:
        """The axes of the study. SpecError for a wrong unit, an unknown field or an empty range."""
        return [field_of(job, key, values) for key, values in self.varied.items()]

    def space_of(self, job: Job) -> Callable[[Sequence[str]], Space]:
        """What makes the plans of a machine, given as overrides of the job."""
        table = tomllib.loads(dump_job(job))

        def load(overrides: Sequence[str]) -> LoadedJob:
            return LoadedJob(load_job(table, [*_peaks(job, overrides), *overrides]))

        return lambda overrides: question(load, [*self.plans, *overrides], None, ()).spaces[0]


def _peaks(job: Job, overrides: Sequence[str]) -> list[str]:
    """Peaks of the GPU at other SMs: an SM keeps its rate, unless a peak is stated too."""
    gpu, stated = job.cluster.gpu, dict(text.partition("=")[::2] for text in overrides)
    count = stated.get("cluster.node.gpu.sms")
    if count is None or gpu.sms is None or any(key.startswith("cluster.node.gpu.peak") for key in stated):
        return []
    share = float(count) / gpu.sms
    rates = {"peak": gpu.peak, "achievable": gpu.achievable}
    return [
        f"cluster.node.gpu.{kind}.{name}={rate * share / 1e12:.6g}TFLOP/s"
        for kind, all_ in rates.items()
        for name, rate in all_.items()
    ]


def premium_of(path: str, dollars: float, axes: Sequence[DesignField]) -> Premium:
    """Dollars a GPU and hour for each unit of a range. SpecError for what is no range of the design."""
    ranges = {axis.path: axis for axis in axes if not axis.values}
    if path not in ranges or not dollars == dollars:
        raise SpecError("--premium", f"{path}={dollars:g}", f"dollars of a range: {', '.join(ranges) or 'there is none'}")
    return Premium(ranges[path], dollars)


def _is_open(key: str, values: str) -> bool:
    return may_be_open(key) and len(split_values(key, values)) > 1


def _is_varied(key: str, values: str) -> bool:
    return ".." in values or not may_be_open(key) and len(split_values(key, values)) > 1
