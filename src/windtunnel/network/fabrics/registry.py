"""Every fabric by name, and how a fabric is named: `fat_tree:k=16,link=400Gb/s`, a catalogue name, or a file."""

from __future__ import annotations

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.engine.graph import Graph
from windtunnel.network.fabrics.cluster import ClusterFabric
from windtunnel.network.fabrics.dcn import Dcn
from windtunnel.network.fabrics.dragonfly import Dragonfly, DragonflyPlus
from windtunnel.network.fabrics.fat_tree import FatTree
from windtunnel.network.fabrics.hpn import Hpn
from windtunnel.network.fabrics.inside_servers import NvLink, Pcie
from windtunnel.network.fabrics.megascale import MegaScale
from windtunnel.network.fabrics.ndim import NDim
from windtunnel.network.fabrics.parameters import Builder
from windtunnel.network.fabrics.rail import Rail, RailOnly
from windtunnel.network.fabrics.text_topology import load_file
from windtunnel.network.fabrics.torus import Mesh, Torus
from windtunnel.spec.loading.files import names

BUILDERS: dict[str, type[Builder]] = {
    b.NAME: b
    for b in (
        FatTree,
        Rail,
        RailOnly,
        Hpn,
        Dcn,
        MegaScale,
        Dragonfly,
        DragonflyPlus,
        Torus,
        Mesh,
        NDim,
        NvLink,
        Pcie,
        ClusterFabric,
    )
}
"""Name -> builder; a new builder needs a file and an entry here."""


def parse_fabric(text: str) -> Graph:
    """The graph that `text` names: builder:key=value,..., `file:PATH` or a path that ends in .toml or .json, or a catalogue fabric.

    Raises UnknownName for an unknown name, SpecError for a parameter, FileError for a file.
    """
    name, colon, rest = text.strip().partition(":")
    if name == "file" and colon:
        return load_file(rest)
    if text.endswith((".toml", ".json")):
        return load_file(text)
    if name in BUILDERS:
        return BUILDERS[name].of_text(rest).build()
    from windtunnel.spec.loading.load import load_fabric  # here: builders with parameters need no noun

    if not colon and name in names("fabrics"):
        builder = load_fabric(name).builder
        if builder is None:
            raise SpecError(
                "--fabric", name, "a fabric whose entry names a builder, or a builder with parameters",
                f"{name!r} is a fabric for any number of nodes: write cluster:name=CLUSTER,nodes=N for a cluster that has it.",
            )  # fmt: skip
        return parse_fabric(builder)
    if not colon and name in names("clusters"):
        raise SpecError(
            "--fabric",
            name,
            "a fabric",
            f"{name!r} is a machine: write cluster:name={name},nodes=N for the fabric of N of its nodes.",
        )
    known = dict.fromkeys((*BUILDERS, "file", *(f for f in names("fabrics") if load_fabric(f).builder)))
    raise UnknownName("--fabric", name, list(known))


def parse_builder(text: str) -> Builder:
    """The builder that `name:key=value,...` names, with its parameters. Raises UnknownName and SpecError."""
    name, _, rest = text.strip().partition(":")
    if name not in BUILDERS:
        raise UnknownName("--fabric", name, list(BUILDERS))
    return BUILDERS[name].of_text(rest)
