"""No field of a fabric that a step does not read is accepted in silence."""

from __future__ import annotations

import pytest

import windtunnel as wt
from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.network.fabrics import BUILDERS
from windtunnel.network.fabrics.check import check_fabric, unread_fields
from windtunnel.spec.loading.load import load_cluster, load_fabric

JOB = "llama2-70b-64xh100"


@pytest.mark.parametrize("builder", ["hpn:servers=4", "fat_tree:k=8", "rail:servers=8"])
@pytest.mark.parametrize("network", ["closed", "flow"])
def test_a_step_refuses_another_builder(builder: str, network: str) -> None:
    with pytest.raises(SpecError, match=r"cluster\.fabric\.builder.*windtunnel flows --fabric"):
        wt.predict(wt.load(JOB, [f"cluster.fabric.builder={builder}"]), network=network)


def test_an_unknown_builder_has_a_nearest_name() -> None:
    with pytest.raises(UnknownName, match="Did you mean 'torus'"):
        wt.predict(wt.load(JOB, ["cluster.fabric.builder=tours"]))
    with pytest.raises(UnknownName, match=r"fabric\.builder: got 'foo'"):
        wt.sweep(load_cluster("h100-ib", ["fabric.builder=foo"]), "all_reduce", 16, [1e6])


def test_the_catalogue_passes() -> None:
    for name in wt.names("fabrics"):
        fabric = load_fabric(name)
        check_fabric(fabric)
        assert all(unread_fields(fabric, network) == () for network in ("closed", "flow", "packet"))
        if fabric.builder is not None:
            assert fabric.builder.partition(":")[0] in BUILDERS


def test_other_contradictions_are_refused() -> None:
    with pytest.raises(SpecError, match=r"planes: got 2; allowed: 1, or nic_ports \(1\)"):
        wt.predict(wt.load(JOB, ["cluster.fabric.planes=2"]))
    with pytest.raises(UnknownName, match=r"cluster\.fabric\.congestion"):
        wt.predict(wt.load(JOB, ["cluster.fabric.congestion=dcqnc"]))
    with pytest.raises(SpecError, match="topology: got 'torus'; allowed: fat_tree, rail, rail_only, graph, none"):
        wt.load(JOB, ["cluster.fabric.topology=torus"])


@pytest.mark.parametrize(
    ("network", "setting", "said"),
    [
        ("closed", "routing=spray", True),
        ("closed", "nic_ports=2", True),
        ("closed", "leaf_nodes=2", False),
        ("flow", "congestion=hpcc", True),
        ("flow", "routing=spray", False),
    ],
)
def test_a_field_that_a_fidelity_does_not_read_is_noted(network: str, setting: str, said: bool) -> None:
    name = setting.partition("=")[0]
    notes = wt.predict(wt.load(JOB, [f"cluster.fabric.{setting}"]), network=network).assumptions
    assert any(f"does not read cluster.fabric.{name};" in note for note in notes) is said
