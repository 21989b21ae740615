"""Replaces names, `base` and framework defaults by one plain table, which the nouns then validate.

A noun inside a job is a catalogue name, or a table; a table may say `base = "name"` and override fields at any depth.

The NICs that follow a fabric: a cluster of the catalogue whose fabric is replaced by name has those of machines on that fabric.

A fabric's entry may say them: `[nics.ID]` by GPU, `[nics.default]` for others, where a machine with slower NICs keeps its own. Else
they are those of a cluster of the catalogue with the same GPU on a fabric of the same kind.
"""

from __future__ import annotations

import re
from typing import Any

from windtunnel.base.errors import SpecError
from windtunnel.base.quantities import NicBandwidth
from windtunnel.spec.common import KINDS_OF_FAILURE
from windtunnel.spec.loading.files import entry, names

FOLLOWS = "NICs of machines on the fabric"
"""How the source of NICs begins that came with a fabric's name."""
RDMA = ("infiniband", "roce")
"""Kinds of fabrics that the same NICs speak."""


def fabric_named(own: object) -> str | None:
    """The fabric of the catalogue that a cluster's table names, alone or as the base of its own; None if it names none."""
    fabric = own.get("fabric") if isinstance(own, dict) else None
    name = fabric.get("base") if isinstance(fabric, dict) else fabric
    return name if isinstance(name, str) and name in names("fabrics") else None


def names_node(own: dict[str, Any]) -> bool:
    """Whether a cluster's table names its node too, which then has the NICs of its own entry."""
    node = own.get("node")
    return isinstance(node, str) or isinstance(node, dict) and "base" in node


def nics_on(name: str, old: object, node: object) -> dict[str, Any] | None:
    """The NICs of a resolved `node` that moves from a resolved fabric `old` to the fabric `name`; None: it keeps its own."""
    fabric = entry("fabrics", name, "cluster.fabric")
    if not isinstance(old, dict) or not isinstance(node, dict) or not isinstance(node.get("gpu"), dict) or old.get("id") == name:
        return None
    kinds = RDMA if fabric["kind"] in RDMA else (fabric["kind"],)
    gpu, gpus, has = node["gpu"].get("id"), node.get("gpus", 8), node.get("nic")
    if not isinstance(gpus, int):
        return None
    said = fabric.get("nics", {})
    if gpu in said:
        found, of = said[gpu], int(said[gpu].get("gpus", 8))
    elif old.get("kind") in kinds:
        return None
    elif "default" in said:
        found, of = said["default"], gpus
        if isinstance(has, dict) and _rate(has) <= _rate(found):
            return None
    else:
        node_name = _node_on(kinds, gpu)
        if node_name is None:
            return None
        other = entry("nodes", node_name, "cluster.node")
        found, of = other["nic"], int(other.get("gpus", 8))
    own = {key: found[key] for key in ("bandwidth", "latency") if key in found}
    count = max(1, found["count"] * gpus // of)
    return {"count": count, "latency": "0s", **own, "source": f"{FOLLOWS} {name}: {found.get('source', 'its entry')}"}


def _rate(nic: dict[str, Any]) -> float:
    from pydantic import TypeAdapter

    return float(nic["count"]) * float(TypeAdapter(NicBandwidth).validate_python(nic["bandwidth"]))


def _node_on(kinds: tuple[str, ...], gpu: object) -> str | None:
    """The node of the first cluster of the catalogue with this GPU, NICs, and a fabric of one of the kinds."""
    for name in names("clusters"):
        cluster = entry("clusters", name, "cluster")
        node, fabric = cluster.get("node"), cluster.get("fabric")
        if isinstance(node, str) and isinstance(fabric, str) and entry("fabrics", fabric, "cluster.fabric")["kind"] in kinds:
            table = entry("nodes", node, "cluster.node")
            if table.get("gpu") == gpu and "nic" in table:
                return node
    return None


NO_BASE = "none"
"""`runtime.base = "none"`: take nothing from the catalogue; every field is in the table."""

_INNER: dict[str, dict[str, str]] = {
    "jobs": {"model": "models", "cluster": "clusters", "runtime": "frameworks", "reliability": "reliability"},
    "clusters": {"node": "nodes", "fabric": "fabrics", "region": "regions"},
    "nodes": {"gpu": "gpus"},
}
_NAMED_BY = {"models": "name", "jobs": "name", "frameworks": "framework"}
_OPTIONAL = {
    "nodes": (
        "nic",
        "power_w",
        "draw",
        "dollars",
        "host_memory",
        "host_memory_bandwidth",
        "host_link",
        "storage",
        "files",
        "expansion",
    ),
    "plan": ("dp", "stages", "shard_group", "recompute_layers", "sample"),
    "models": (
        "kv_heads",
        "head_dim",
        "global_heads",
        "global_kv_heads",
        "global_head_dim",
        "qkv_bias",
        "window",
        "window_pattern",
        "experts",
        "expert_ffn",
        "layer_pattern",
        "q_lora_rank",
        "kv_lora_rank",
        "lora",
        "vision",
        "mixer_pattern",
        "reuse_ffn",
        "per_layer_dim",
        "moe_latent",
        "ssm_heads",
        "linear_heads",
        "linear_key_heads",
    ),
    "clusters": ("price_per_gpu_hour", "memory_pool", "region"),
    "jobs": ("tokens", "unequal", "reliability"),
    "reliability": ("queue", "gpus_of_node", "spares", *KINDS_OF_FAILURE),
    "failure": ("gap",),
    "checkpoint": ("steps", "size", "capacity", "block", "slowdown", "load_time"),
    "gpus": ("l2", "sms", "clock_hz", "power_w", "power_cap_w", "clock_lock", "sustained_rate", "draw", "kernels_from"),
}
_PARTS = {
    "jobs": {"plan": "plan"},
    "reliability": {"checkpoint": "checkpoint", **dict.fromkeys(KINDS_OF_FAILURE, "failure")},
}
"""Tables inside an entry that are no entries themselves -> the key of their optional fields."""
_CONDITIONS = ("version", "precision", "fp8_recipe", "launch")


def resolve(kind: str, value: object, path: str) -> object:
    """`value` (a name or a table of `kind`) with every name replaced by its table; other types pass, for the nouns to refuse."""
    if kind == "frameworks":
        return _runtime(value, path)
    table = _flat(kind, value, path, ())
    if not isinstance(table, dict):
        return table
    _drop_none(kind, table)
    for field, inner in _INNER.get(kind, {}).items():
        if field in table:
            table[field] = resolve(inner, table[field], f"{path}.{field}" if kind != "jobs" else field)
    for field, inner in _PARTS.get(kind, {}).items():
        if isinstance(table.get(field), dict):
            table[field] = dict(table[field])
            _drop_none(inner, table[field])
    if kind == "jobs" and isinstance(table.get("unequal"), dict):
        table["unequal"] = _unequal(table["unequal"])
    return table


def _unequal(table: dict[str, Any]) -> dict[str, Any]:
    """The table with the names of other GPUs and nodes replaced by theirs."""
    mixed = table.get("mixed")
    if not isinstance(mixed, (list, tuple)):
        return table
    rows = []
    for at, row in enumerate(mixed):
        if isinstance(row, dict):
            known = {"gpu": "gpus", "node": "nodes"}
            row = {
                key: resolve(known[key], item, f"unequal.mixed[{at}].{key}") if key in known else item for key, item in row.items()
            }
        rows.append(row)
    return {**table, "mixed": rows}


def merge(low: dict[str, Any], high: dict[str, Any]) -> dict[str, Any]:
    """Merges `high` over `low`, table by table. A table over a name overrides fields of the named entry; a table with a `base`
    replaces it."""
    merged = dict(low)
    for key, value in high.items():
        old = merged.get(key)
        if isinstance(value, dict) and "base" not in value and isinstance(old, dict):
            merged[key] = merge(old, value)
        elif isinstance(value, dict) and "base" not in value and isinstance(old, str):
            merged[key] = {"base": old, **value}
        else:
            merged[key] = value
    return merged


def _flat(kind: str, value: object, path: str, trail: tuple[str, ...]) -> object:
    """A copy of `value` with its chain of `base` merged; the nouns inside stay as they are written."""
    if isinstance(value, str):
        return _entry(kind, value, path, trail)
    if not isinstance(value, dict):
        return value
    own = {key: item for key, item in value.items() if key != "base"}
    if "base" not in value:
        return own
    if not isinstance(value["base"], str):
        raise SpecError(f"{path}.base", value["base"], f"the name of an entry in catalogue {kind}")
    low = _entry(kind, value["base"], f"{path}.base", trail)
    return merge(with_nics(low, own, path) if kind == "clusters" else low, own)


def with_nics(low: dict[str, Any], own: object, path: str) -> dict[str, Any]:
    """A cluster's table `low` with the NICs of the fabric that `own`, which is about to be merged over it, names.

    A node that `own` names too keeps the NICs of its entry. Fields of NICs that `own` states win: they are merged over these.
    """
    name = fabric_named(own)
    if name is None or not isinstance(own, dict) or names_node(own):
        return low
    cluster = resolve("clusters", low, path)
    node = cluster.get("node") if isinstance(cluster, dict) else None
    if not isinstance(cluster, dict) or not isinstance(node, dict):
        return low
    stated = own.get("node")
    if isinstance(stated, dict) and "gpu" in stated:
        node = {**node, "gpu": resolve("gpus", merge({"gpu": node.get("gpu")}, {"gpu": stated["gpu"]})["gpu"], f"{path}.node.gpu")}
    nics = nics_on(name, cluster.get("fabric"), node)
    return low if nics is None else merge(low, {"node": {"nic": nics}})


def _entry(kind: str, name: str, path: str, trail: tuple[str, ...]) -> dict[str, Any]:
    """The catalogue's table `name` with its own chain of `base` merged, and named after its file unless it says otherwise."""
    if name in trail:
        raise SpecError(path, name, "a chain of bases that ends", " -> ".join((*trail, name)))
    own = {_NAMED_BY.get(kind, "id"): name, **entry(kind, name, path)}
    if kind == "fabrics":
        own.pop("nics", None)  # of machines on it: `fabric_nics`
    base = own.pop("base", None)
    return own if base is None else merge(_yielding(_entry(kind, base, f"{path}.base", (*trail, name)), own), own)


def _yielding(low: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A base's table whose sections for versions leave alone what the entry over it says: what a release of the base switched on is
    no fact about another program."""
    versions = low.get("when", {}).get("version")
    if not versions:
        return low
    kept = {
        version: {key: value for key, value in section.items() if key == "source" or key not in own or isinstance(value, dict)}
        for version, section in versions.items()
    }
    return {**low, "when": {**low["when"], "version": kept}}


def _runtime(value: object, path: str) -> object:
    """A runtime table over its framework's defaults, and over the sections of `[when.*]` that its fields choose. An entry may say
    which framework it is a name of (`trl`: fsdp)."""
    table = {"framework": value} if isinstance(value, str) else value
    if not isinstance(table, dict):
        return value
    table = dict(table)
    base = table.pop("base", None)
    if base is not None and not isinstance(base, str):
        raise SpecError(f"{path}.base", base, "the name of an entry in catalogue frameworks, or none")
    if base == NO_BASE:
        return table
    name = base if base is not None and "framework" not in table else table.get("framework")
    if not isinstance(name, str):
        return table
    low = _entry("frameworks", name, f"{path}.framework", ())
    return merge(_apply_when(low, table), {**table, "framework": low["framework"]})


def _apply_when(low: dict[str, Any], table: dict[str, Any]) -> dict[str, Any]:
    """`low` without its `when`, under the sections that its fields and those of `table` choose; sections may hold others."""
    when = low.pop("when", {})
    for field in _CONDITIONS:
        chosen = table.get(field, low.get(field, ""))
        if not isinstance(chosen, str):  # the noun refuses it
            continue
        for section in _sections(field, chosen, when.get(field, {})):
            low = _apply_when(merge(low, section), table)
    return low


def _sections(field: str, chosen: str, sections: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Sections that hold for the `chosen` value: the equal one, or for versions all up to it, oldest first."""
    if field != "version":
        return [sections[chosen]] if chosen in sections else []
    have = _version(chosen)
    return [sections[key] for key in sorted(sections, key=_version) if have and _version(key) <= have]


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"[0-9]{1,9}", text))


def _drop_none(kind: str, table: dict[str, Any]) -> None:
    """TOML has no null: `dp = "none"` leaves out an optional field, even if a base sets it."""
    for field in _OPTIONAL.get(kind, ()):
        if isinstance(value := table.get(field), str) and value == "none":
            del table[field]
