"""Fitted constants of what collectives reach, a few per GPU generation and per kind of fabric. Redone by `calibrate.py`."""

from __future__ import annotations

from dataclasses import dataclass, replace

Triple = tuple[float, float, float]


@dataclass(frozen=True)
class Node:
    """Inside a scale-up domain. Seconds; fractions of the link's data-sheet rate; triples are (LL, LL128, Simple).

    `ring` is of the ring's bus rate, `tree` of its algorithm rate, `nvls` of the link before the chunk's overhead
    (bytes), `nvls_tree` what is left of that where the sums go on to other nodes.
    Fills count slices (`fill`) or loops (`nvls_fill`).
    """

    launch: float
    hop: Triple
    tree_hop: Triple
    ring: Triple
    tree: Triple
    fill: float
    nvls: float
    nvls_hop: float
    nvls_overhead: float
    nvls_fill: float
    nvls_tree: float
    p2p: float
    p2p_launch: float
    relative_error: float
    fitted_on: tuple[str, ...]


@dataclass(frozen=True)
class Net:
    """Between domains, on one kind of fabric: extra launch and hops in seconds, fractions of the payload rate."""

    launch: float
    hop: Triple
    tree_hop: Triple
    nvls_hop: float
    ring: float
    tree: float
    fill: float
    tree_fill: float
    nvls_fill: float
    p2p: float
    p2p_launch: float
    message: float
    relative_error: float
    fitted_on: tuple[str, ...]


_AMPERE = Node(launch=16e-6, hop=(0.7e-6, 2.8e-6, 7.5e-6), tree_hop=(0.7e-6, 1.25e-6, 4e-6), ring=(0.262, 0.598, 0.786), tree=(0.1, 0.2, 0.36),
               fill=1.6, nvls=0.6, nvls_hop=15e-6, nvls_overhead=9400.0, nvls_fill=1.5, nvls_tree=0.9, p2p=0.9, p2p_launch=12e-6, relative_error=0.08,
               fitted_on=("vTrain-A100", "misc-A100"))
_HOPPER = Node(launch=5.6e-6, hop=(0.82e-6, 2.8e-6, 7.5e-6), tree_hop=(0.5e-6, 1.25e-6, 4e-6), ring=(0.401, 0.62, 0.8125), tree=(0.1, 0.2, 0.36),
               fill=1.6, nvls=0.742, nvls_hop=2.1e-6, nvls_overhead=11150.0, nvls_fill=1.97, nvls_tree=0.9, p2p=0.85, p2p_launch=10e-6, relative_error=0.08,
               fitted_on=("AWS-H100", "DGXC-H100", "IB-NDR-H100", "stas-H200"))
_VOLTA = Node(launch=16.5e-6, hop=(0.7e-6, 3.4e-6, 5.0e-6), tree_hop=(0.7e-6, 1.25e-6, 4e-6), ring=(0.316, 0.655, 0.8945), tree=(0.1, 0.2, 0.36),
              fill=0.13, nvls=0.6, nvls_hop=15e-6, nvls_overhead=9400.0, nvls_fill=1.5, nvls_tree=0.9, p2p=0.9, p2p_launch=12e-6, relative_error=0.08,
              fitted_on=("vTrain-V100",))
_BLACKWELL = replace(_HOPPER, ring=(0.4, 0.51, 0.675), nvls=0.55, p2p=0.8, relative_error=0.25, fitted_on=())
NODES: dict[str, Node] = {"volta": _VOLTA, "ampere": _AMPERE, "hopper": _HOPPER, "blackwell": _BLACKWELL}

_IB = Net(launch=3.4e-6, hop=(2.7e-6, 4e-6, 10e-6), tree_hop=(5e-6, 7e-6, 14e-6), nvls_hop=20e-6, ring=0.97, tree=0.97, fill=1.6, tree_fill=1.0,
          nvls_fill=3.0, p2p=0.95, p2p_launch=8e-6, message=1e-6, relative_error=0.12, fitted_on=("IB-NDR-H100",))
_EFA = Net(launch=3.4e-6, hop=(8e-6, 10e-6, 20e-6), tree_hop=(20e-6, 25e-6, 40e-6), nvls_hop=40e-6, ring=0.95, tree=0.95, fill=1.6, tree_fill=0.2,
           nvls_fill=6.0, p2p=0.9, p2p_launch=20e-6, message=3e-6, relative_error=0.15, fitted_on=("AWS-A100", "AWS-H100"))
_EFA1 = Net(launch=3.4e-6, hop=(8e-6, 10e-6, 20e-6), tree_hop=(60e-6, 80e-6, 80e-6), nvls_hop=40e-6, ring=0.95, tree=0.95, fill=1.6, tree_fill=0.2,
            nvls_fill=6.0, p2p=0.9, p2p_launch=20e-6, message=3e-6, relative_error=0.15, fitted_on=("AWS-A100",))
NETS: dict[str, Net] = {"infiniband": _IB, "roce": _IB, "opa": _IB, "ethernet": _IB, "ici": _IB, "none": _IB, "efa": _EFA, "efa1": _EFA1}
