"""Fabrics: link graphs built from parameters, catalogue entries and files; faults in them, and where ranks sit."""

from windtunnel.network.fabrics.cluster import ClusterGraph, cluster_graph
from windtunnel.network.fabrics.faults import CableFlap, Fault, apply_faults, flap_events, parse_fault, parse_flap
from windtunnel.network.fabrics.graph_file import graph_of, load_graph
from windtunnel.network.fabrics.placement import PLACEMENTS
from windtunnel.network.fabrics.registry import BUILDERS, parse_fabric

__all__ = [
    "BUILDERS",
    "PLACEMENTS",
    "ClusterGraph",
    "Fault",
    "CableFlap",
    "apply_faults",
    "cluster_graph",
    "flap_events",
    "graph_of",
    "load_graph",
    "parse_fabric",
    "parse_fault",
    "parse_flap",
]
