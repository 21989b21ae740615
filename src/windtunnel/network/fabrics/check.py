"""Whether a step can run on its fabric, and the fabric's fields that a fidelity does not read."""

from __future__ import annotations

from functools import cache

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.base.fidelity import CLOSED, FLOW
from windtunnel.network.fabrics.drawn import is_drawn
from windtunnel.spec.loading.files import names
from windtunnel.spec.loading.load import load_fabric
from windtunnel.spec.machine import Fabric

_UNREAD = {
    CLOSED: (
        "topology",
        "nic_ports",
        "planes",
        "uplink_ratio",
        "routing",
        "congestion",
        "flows_per_connection",
        "buffer",
        "nodes",
        "storage",
    ),
    FLOW: ("congestion", "buffer"),
}
"""Fields that a fidelity does not read. In closed form `ecmp_efficiency` replaces them; fluid flows have no packets."""


@cache
def _entry(name: str) -> Fabric | None:
    """The catalogue's fabric of that name, None if there is none."""
    return load_fabric(name) if name in names("fabrics") else None


def check_fabric(fabric: Fabric, path: str = "cluster.fabric") -> None:
    """Raises SpecError for fabrics that no step can run on: a builder other than the entry's, planes that the NIC's ports do not
    reach, slices of what is no torus.

    A step builds its graph for the nodes of the job, from `topology`, `leaf_nodes`, `pod_nodes` and the fields beside them, or
    attaches the job's servers to a dragonfly, dragonfly+ or the graph of a file. Another `builder` is what `windtunnel flows
    --fabric` builds for the catalogue entry, so changing it there would change nothing. Also raises what `load_congestion` does.
    """
    if fabric.planes not in (1, fabric.nic_ports):
        raise SpecError(
            f"{path}.planes", fabric.planes, f"1, or nic_ports ({fabric.nic_ports})", "Each port of a NIC is in a plane of its own."
        )
    if fabric.congestion is not None:
        from windtunnel.network.congestion import load_congestion

        load_congestion(fabric.congestion, path=f"{path}.congestion")
    if fabric.is_grid:
        return
    if fabric.slices:
        allowed = "false for a fabric whose builder is no torus or mesh"
        raise SpecError(f"{path}.slices", True, allowed, "A job on switches fills as many of their ports as it needs.")
    if fabric.builder in (None, "none"):  # `--set cluster.fabric.builder=none` removes an entry's builder
        return
    if is_drawn(fabric):
        return
    entry = _entry(fabric.id)
    known = {entry.builder} if entry is not None else {load_fabric(one).builder for one in names("fabrics")}
    if fabric.builder in known:
        return
    from windtunnel.network.fabrics.registry import BUILDERS

    name = fabric.builder.partition(":")[0]
    if name not in BUILDERS and not fabric.builder.endswith((".toml", ".json")) and name != "file":
        raise UnknownName(f"{path}.builder", name, list(BUILDERS))
    raise SpecError(
        f"{path}.builder",
        fabric.builder,
        f"{entry.builder!r}, as the entry {fabric.id} has it" if entry is not None and entry.builder else "no builder, for a step",
        "A step runs on the builders dragonfly and dragonfly_plus and on file:PATH. Otherwise it builds its own graph: set "
        f"{path} to an entry ({', '.join(names('fabrics'))}), or its topology, leaf_nodes, pod_nodes, oversubscription, nic_ports "
        "and planes. Plain flows run on any builder: windtunnel flows --fabric.",
    )


def unread_fields(fabric: Fabric, network: str) -> tuple[str, ...]:
    """Fields that differ from the catalogue's entry (or, without one, from the defaults) and that the fidelity does not read."""
    entry = _entry(fabric.id)
    usual = {name: field.default if entry is None else getattr(entry, name) for name, field in Fabric.model_fields.items()}
    return tuple(name for name in _UNREAD.get(network, ()) if getattr(fabric, name) != usual[name])
