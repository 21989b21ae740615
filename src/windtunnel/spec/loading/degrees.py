"""Adjusts pinned degrees: if an override sets one of tp, cp, pp, dp and the number of GPUs, the others follow it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_SPLIT = ("plan.tp", "plan.cp", "plan.pp")


def stated_in(table: Mapping[str, Any], path: str = "") -> frozenset[str]:
    """Paths of all fields that a nested table states, tables and leaves alike: `plan`, `plan.tp`."""
    paths: set[str] = set()
    for key, value in table.items():
        own = f"{path}.{key}" if path else key
        paths.add(own)
        if isinstance(value, Mapping):
            paths |= stated_in(value, own)
    return frozenset(paths)


def names_another_cluster(stated: Mapping[str, Any]) -> bool:
    """Whether overrides replace the cluster by a named one without stating the job's number of GPUs."""
    cluster = stated.get("cluster")
    return isinstance(cluster, str) or isinstance(cluster, Mapping) and "base" in cluster and "gpus" not in cluster


def follow(table: dict[str, Any], stated: frozenset[str]) -> list[str]:
    """Change what a job's resolved `table` pins so that it fits the `stated` overrides; one line per change.

    * `plan.dp` follows tp, cp, pp, the number of GPUs and the cluster.
    * `cluster.gpus` follows a stated `plan.dp`.
    * `plan.stages` and `plan.vpp` follow a stated `plan.pp`; `plan.stages` follows `plan.vpp` and the model's layers too.

    A field that the user stated is never changed, and a value of the wrong type is left for the nouns to refuse.
    """
    plan, cluster = table.get("plan"), table.get("cluster")
    if not isinstance(plan, dict) or not isinstance(cluster, dict):
        return []
    changes = _stages(plan, table.get("model"), stated)
    split = math.prod(_whole_number(plan.get(path.removeprefix("plan."), 1)) for path in _SPLIT)
    gpus, dp = _whole_number(cluster.get("gpus")), _whole_number(plan.get("dp"))
    if not split or not gpus or not dp or split * dp == gpus:
        return changes
    if "plan.dp" not in stated:
        causes = [path for path in (*_SPLIT, "cluster.gpus", "cluster") if path in stated]
        if causes:
            del plan["dp"]
            new = f"{gpus // split}" if gpus % split == 0 else "left out"
            changes.append(f"plan.dp {dp} -> {new}, to follow {causes[0]}")
    elif "cluster.gpus" not in stated:
        cluster["gpus"] = split * dp
        changes.append(f"cluster.gpus {gpus} -> {split * dp}, to follow plan.dp")
    return changes


def _stages(plan: dict[str, Any], model: object, stated: frozenset[str]) -> list[str]:
    """Virtual stages that follow a stated number of stages or of layers."""
    changes = []
    causes = sorted(stated & {"plan.pp", "plan.vpp", "model", "model.layers"})
    if causes and plan.get("stages") is not None and "plan.stages" not in stated:
        del plan["stages"]
        changes.append(f"plan.stages left out: equal stages, to follow {causes[-1]}")
    pp, vpp = _whole_number(plan.get("pp", 1)), _whole_number(plan.get("vpp", 1))
    layers = _whole_number(model.get("layers")) if isinstance(model, dict) else 0
    if pp == 1 and vpp > 1 and causes and "plan.vpp" not in stated:
        plan["vpp"] = 1
        changes.append(f"plan.vpp {vpp} -> 1, to follow {causes[-1]}")
    elif causes and pp and vpp > 1 and "plan.vpp" not in stated and layers and layers % (pp * vpp):
        fitting = max((v for v in range(1, vpp) if layers % (pp * v) == 0), default=0)
        if fitting:
            plan["vpp"] = fitting
            changes.append(f"plan.vpp {vpp} -> {fitting}, to follow {causes[-1]}")
    return changes


def _whole_number(value: object) -> int:
    """A positive whole number of a sane size, or 0."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**9 else 0


def follow_node(was: object, now: object, stated: frozenset[str]) -> list[str]:
    """Change what a resolved cluster `now` has inside its nodes so that it fits a stated `node.gpus`; one line per change.

    `was`: the cluster before the overrides, resolved too. A scale-up domain that was within one node stays within it, and a GPU
    keeps its share of the NICs. A domain of several nodes stays as it is.
    """
    if "node.gpus" not in stated or not isinstance(was, dict) or not isinstance(now, dict):
        return []
    before, node = was.get("node"), now.get("node")
    if not isinstance(before, dict) or not isinstance(node, dict):
        return []
    old, new = _whole_number(before.get("gpus", 8)), _whole_number(node.get("gpus"))
    changes: list[str] = []
    for part, name in (("scale_up", "size"), ("nic", "count")):
        table = node.get(part)
        if not isinstance(table, dict) or f"node.{part}.{name}" in stated or not old or not new:
            continue
        value = _whole_number(table.get(name))
        kept = min(value, new) if name == "size" else max(1, value * new // old)
        if value and kept != value and (name == "count" or value <= old):
            table[name] = kept
            changes.append(f"cluster.node.{part}.{name} {value} -> {kept}, to follow cluster.node.gpus")
    return changes
