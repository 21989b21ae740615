"""Loads a Job, Model, Cluster, GPU or Runtime from a catalogue name, a file or a table.

Numbers of `--set` as people write them: `plan.seq=128k`, `clock_hz=2.52GHz`, `power_w=700W`, `price_per_gpu_hour=$2.5`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.files import without_gz
from windtunnel.spec.common import Noun
from windtunnel.spec.loading.degrees import follow, follow_node, names_another_cluster, stated_in
from windtunnel.spec.loading.explain import explain
from windtunnel.spec.loading.files import SUFFIXES, check_shape, entry, names, read_table, toml_lines
from windtunnel.spec.loading.resolve import NO_BASE, merge, resolve, with_nics
from windtunnel.spec.machine import GPU, Cluster, Fabric, Node, Region

if TYPE_CHECKING:
    from windtunnel.spec.job import Job
    from windtunnel.spec.model import Model
    from windtunnel.spec.reliability import Reliability
    from windtunnel.spec.runtime import Runtime
    from windtunnel.spec.scaling import LossLaw

from collections.abc import Callable
from contextlib import suppress

from windtunnel.base.units import parse_count, parse_hertz, parse_watts, parse_whole

Source = str | Path | Mapping[str, Any]
AnyNoun = TypeVar("AnyNoun", bound=Noun)

_KEY = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")


def load_job(source: Source, overrides: Sequence[str] = (), changes: list[str] | None = None) -> Job:
    """A job from a catalogue name, a .toml/.yaml/.json file or a table, with `path.to.field=value` overrides on top.

    Degrees that the source pins follow the overrides (`spec.degrees`); `changes`, if given, receives one line for each that did.
    Raises SpecError, UnknownName or FileError, and nothing else. `check(job)` finds contradictions between fields.
    """
    from windtunnel.spec.job import Job

    table = _table("jobs", source, "job")
    folder = Path(source).parent if isinstance(source, (str, Path)) else Path()
    stated: dict[str, Any] = {}
    for text in overrides:
        stated = merge(stated, override(text))
    gpus = _pinned_gpus(table) if names_another_cluster(stated) else None
    before, table = table, merge(_with_nics(table, stated), stated)
    if gpus is not None and isinstance(table["cluster"], dict):
        table["cluster"] = {"gpus": gpus, **table["cluster"]}
    elif gpus is not None and table["cluster"] in names("clusters"):
        table["cluster"] = {"base": table["cluster"], "gpus": gpus}
    check_shape("job", table)
    if isinstance(named := table.get("model"), str) and _looks_like_file(named):
        beside = folder / named
        table["model"] = _table("models", beside if beside.is_file() else Path(named), "model")
    runtime = table.get("runtime")
    if isinstance(runtime, dict) and isinstance(named := runtime.get("host"), str) and _looks_like_file(named):
        beside = folder / named
        table["runtime"] = {**runtime, "host": read_table(beside if beside.is_file() else Path(named))}
    resolved = resolve("jobs", table, "job")
    if stated and isinstance(resolved, dict):
        paths = stated_in(stated)
        followed = _follow_node(before, resolved, paths) + follow(resolved, paths)
        if changes is not None:
            changes += followed
    return _build(Job, resolved, "")


def _follow_node(before: dict[str, Any], resolved: dict[str, Any], paths: frozenset[str]) -> list[str]:
    """As `degrees.follow_node`, for the job `before` its overrides and the resolved one. Another cluster keeps what it has."""
    if "cluster.node.gpus" not in paths or "cluster.base" in paths:
        return []
    own = {path.removeprefix("cluster.") for path in paths}
    was = resolve("jobs", before, "job")
    return follow_node(was.get("cluster") if isinstance(was, dict) else None, resolved.get("cluster"), frozenset(own))


def _with_nics(table: dict[str, Any], stated: dict[str, Any]) -> dict[str, Any]:
    """A job's table whose cluster has the NICs of the fabric that overrides name for it."""
    cluster, own = table.get("cluster"), stated.get("cluster")
    if cluster is None or not isinstance(own, dict) or "base" in own:  # another cluster: its own entry's NICs are looked up with it
        return table
    low = {"base": cluster} if isinstance(cluster, str) else cluster
    return {**table, "cluster": with_nics(low, own, "cluster")} if isinstance(low, dict) else table


def _pinned_gpus(table: dict[str, Any]) -> object:
    """The number of GPUs that a job states for its own cluster, or None. It is kept when the job moves to another cluster."""
    own = table
    while isinstance(own.get("base"), str) and "cluster" not in own and own["base"] in names("jobs"):
        own = entry("jobs", own["base"], "base")
    cluster = own.get("cluster")
    return cluster.get("gpus") if isinstance(cluster, dict) else None


def load_model(source: Source, overrides: Sequence[str] = ()) -> Model:
    """A model from a catalogue name, a file or a table, with overrides on top, such as `layers=4`."""
    from windtunnel.spec.graph_model import GraphModel
    from windtunnel.spec.model import Model

    table = _table("models", source, "model")
    for text in overrides:
        table = merge(table, override(text))
    check_shape("model", table)
    resolved = resolve("models", table, "model")
    graph = isinstance(resolved, dict) and resolved.get("kind") == "graph"
    return _build(GraphModel if graph else Model, resolved, "model")


def load_cluster(source: Source, overrides: Sequence[str] = ()) -> Cluster:
    """A cluster from a catalogue name, a file or a table, with overrides on top, such as `fabric.hop_latency=2us`.

    An override may begin with `cluster.`, as it does for a job.
    """
    table = _table("clusters", source, "cluster")
    stated: dict[str, Any] = {}
    for text in overrides:
        stated = merge(stated, override(text.removeprefix("cluster.")))
    before, table = table, merge(with_nics(table, stated, "cluster"), stated)
    check_shape("cluster", table)
    resolved = resolve("clusters", table, "cluster")
    paths = stated_in(stated)
    if "node.gpus" in paths and "base" not in paths:
        follow_node(resolve("clusters", before, "cluster"), resolved, paths)
    return _build(Cluster, resolved, "cluster")


def load_node(source: Source) -> Node:
    """A node from a catalogue name, a file or a table."""
    return _build(Node, resolve("nodes", _table("nodes", source, "node"), "node"), "node")


def load_fabric(source: Source) -> Fabric:
    """A fabric from a catalogue name, a file or a table."""
    return _build(Fabric, resolve("fabrics", _table("fabrics", source, "fabric"), "fabric"), "fabric")


def load_region(source: Source) -> Region:
    """A power grid from a catalogue name, a file or a table."""
    return _build(Region, resolve("regions", _table("regions", source, "region"), "region"), "region")


def load_law(source: Source, overrides: Sequence[str] = ()) -> LossLaw:
    """A law of the loss from a catalogue name, a file or a table, with overrides on top, such as `E=1.7`."""
    from windtunnel.spec.scaling import LossLaw

    table = _table("laws", source, "law")
    for text in overrides:
        table = merge(table, override(text))
    if isinstance(source, str | Path) and "id" not in table and "base" not in table:
        table["id"] = without_gz(source).stem
    return _build(LossLaw, resolve("laws", table, "law"), "law")


def load_gpu(source: Source) -> GPU:
    """A GPU from a catalogue name, a file or a table."""
    if isinstance(source, str) and source in names("gpus"):
        return _listed_gpu(source)
    return _build(GPU, resolve("gpus", _table("gpus", source, "gpu"), "gpu"), "gpu")


@cache
def _listed_gpu(name: str) -> GPU:
    """An entry of the catalogue: every prediction asks for that of its curves' GPU."""
    return _build(GPU, resolve("gpus", {"base": name}, "gpu"), "gpu")


def load_reliability(source: Source) -> Reliability:
    """Failures, spares and checkpoints from a catalogue name, a file or a table."""
    from windtunnel.spec.reliability import Reliability

    return _build(Reliability, resolve("reliability", _table("reliability", source, "reliability"), "reliability"), "reliability")


def load_runtime(framework: str, **fields: Any) -> Runtime:
    """A framework's defaults with `fields` over them; `host={"launch": "8us"}` overrides only that cost."""
    from windtunnel.spec.runtime import Runtime

    check_shape("runtime", fields)
    return _build(Runtime, resolve("frameworks", {**fields, "framework": framework}, "runtime"), "runtime")


def match_gpu(printed: str) -> GPU:
    """The GPU whose vendor tool prints `printed`, or whose id it is; the full string must match, except blanks and case. Else
    UnknownName."""
    wanted = " ".join(str(printed).split()).casefold()
    known: list[str] = []
    for name in names("gpus"):
        gpu = load_gpu(name)
        if wanted in {text.casefold() for text in (gpu.id, *gpu.names)}:
            return gpu
        known.extend(gpu.names)
    raise UnknownName("gpu", str(printed), known)


def dump_job(job: Job) -> str:
    """The job as TOML without references to the catalogue: `load_job` of it gives an equal job, even if the catalogue changes."""
    table = job.model_dump(mode="json", exclude_none=True)
    table["runtime"] = {"base": NO_BASE, **table["runtime"]}
    return "\n".join(toml_lines(table)) + "\n"


def _table(kind: str, source: object, path: str) -> dict[str, Any]:
    """The table that `source` stands for; a name becomes `{base: name}`."""
    if isinstance(source, Mapping):
        table = dict(source)
        check_shape(path, table)
        return table
    if isinstance(source, str) and source in names(kind):
        return {"base": source}
    if isinstance(source, Path) or isinstance(source, str) and _looks_like_file(source):
        file = Path(source)
        table = read_table(file)
        if kind == "models" and isinstance(table.get("model"), dict):  # as `windtunnel import` writes it
            table = table["model"]
        if kind in ("jobs", "models") and "base" not in table:
            table.setdefault("name", without_gz(file).stem)
        return table
    if isinstance(source, str):
        raise UnknownName(path, source, names(kind))
    raise SpecError(path, source, "a catalogue name, a file or a table")


def _looks_like_file(text: str) -> bool:
    return "/" in text or "\\" in text or text.lower().removesuffix(".gz").endswith(SUFFIXES)


def override(text: object) -> dict[str, Any]:
    """`plan.tp=4` as nested tables; the value is a TOML value if it parses as one, else text.

    A fabric with a colon, such as `cluster.fabric=file:PATH` or `dragonfly:p=8`, is its builder: the other fields stay.
    """
    key, equals, value = text.partition("=") if isinstance(text, str) else ("", "", "")
    key = key.strip()
    if not equals or not _KEY.fullmatch(key):
        raise SpecError("override", text, "path.to.field=value, such as plan.tp=4")
    parts = key.split(".")
    if parts[-1] == "fabric" and re.match(r"\s*\w+:\S", value):
        parts.append("builder")
    as_text = parts[-1] in _text_fields()
    scalar = _scalar(value.strip(), as_text)
    nested = {parts[-1]: scalar if as_text or value.strip()[:1] in ("'", '"') else spelled_number(parts, scalar)}
    for part in reversed(parts[:-1]):
        nested = {part: nested}
    return nested


@cache
def _text_fields() -> frozenset[str]:
    from windtunnel.spec.job import Job
    from windtunnel.spec.machine import Nic, ScaleUp
    from windtunnel.spec.model import Model
    from windtunnel.spec.plan import Plan
    from windtunnel.spec.runtime import Host, Runtime

    nouns = (Job, Model, Plan, Runtime, Host, Cluster, Node, Fabric, GPU, ScaleUp, Nic)
    return frozenset(field for noun in nouns for field, info in noun.model_fields.items() if info.annotation is str)


def _scalar(text: str, as_text: bool) -> object:
    """A TOML value, or the text itself. Text fields keep `0.10` as it is written: as a number it would become 0.1."""
    if as_text and text[:1] not in ("'", '"'):
        return text
    try:
        parsed = tomllib.loads(f"v = {text}")
    except (ValueError, RecursionError):
        return text
    return parsed["v"] if len(parsed) == 1 else text


def _build(noun: type[AnyNoun], table: object, path: str) -> AnyNoun:
    try:
        return noun.model_validate(table)
    except ValidationError as error:
        raise explain(error, noun, path) from None
    except (RecursionError, OverflowError) as error:
        raise SpecError(path or "job", type(error).__name__, "finite values of at most 50 levels") from None


LENGTHS = ("seq", "max_seq", "document", "window", "original_max_seq")
"""Fields in tokens of a sequence: their k is 1,024, as in a context of 128k."""


def spelled_number(path: Sequence[str], value: object) -> object:
    """The number that a text stands for in the field at `path`; other values, and texts that are no number there, as they are."""
    if not isinstance(value, str) or not value[:1].isdigit() and value[:1] != "$":
        return value
    parse = _parser(path)
    if parse is not None:
        with suppress(ValueError):
            return parse(value)
    return value


def _parser(path: Sequence[str]) -> Callable[[str], float] | None:
    name = path[-1]
    if name.endswith("_hz"):
        return parse_hertz
    if name.endswith("_w"):
        return parse_watts
    if "dollars" in name or "price" in name:
        return parse_count
    if path[0] in ("plan", "model") or list(path) in (["cluster", "gpus"], ["gpus"]):
        return lambda text: parse_whole(text, binary=name in LENGTHS)
    return None
