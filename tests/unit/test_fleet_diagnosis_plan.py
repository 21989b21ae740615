"""What a cluster's description expects of its nodes' self-tests."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windtunnel.cli import app
from windtunnel.fleet.diagnose.registry import TESTS
from windtunnel.runs.fleet.diagnosis import expected_tests
from windtunnel.spec import load_cluster

H100 = {one.test: one for one in expected_tests(load_cluster("h100-ib"))}


def test_figures_come_from_the_description() -> None:
    cluster = load_cluster("h100-ib")
    assert H100["gpu-copy-within"].expect == cluster.gpu.memory_bandwidth
    assert H100["nic-loopback"].expect == 50e9  # 400 Gbit/s
    assert H100["gpu-peer"].expect == cluster.node.scale_up.bandwidth
    copied = H100["gpu-copy-out"].expect
    assert copied is not None
    assert 40e9 < copied < 63e9  # 16 lanes of PCIe 5
    summed = H100["all-reduce"].expect
    assert summed is not None
    assert 0.5 * 50e9 < summed < 50e9


def test_a_change_of_the_description_changes_the_figure() -> None:
    halved = load_cluster("h100-ib", ["node.nic.bandwidth=200Gb/s"])
    assert {one.test: one.expect for one in expected_tests(halved)}["nic-loopback"] == 25e9


def test_every_test_exists_and_its_options_are_those_of_the_program() -> None:
    for one in H100.values():
        assert one.test in TESTS
        assert one.unit == TESTS[one.test].unit
        assert one.options()[-2:] == ["--size", str(one.size)]


def test_the_plan_is_data_for_the_driver(tmp_path: Path) -> None:
    file = tmp_path / "tests.json"
    ran = CliRunner().invoke(app, ["fleet", "diagnose", "--plan", "--expect", "h100-ib", "--json", str(file)])
    assert ran.exit_code == 0, ran.output
    plan = json.loads(file.read_text())
    assert [one["test"] for one in plan["tests"]] == list(H100)


def test_a_node_that_is_slower_than_its_description_fails() -> None:
    ran = CliRunner().invoke(
        app, ["fleet", "diagnose", "memory-copy", "--expect", "h100-ib", "--set", "node.host_memory_bandwidth=1000TB/s"]
    )
    assert ran.exit_code == 1, ran.output
    assert "FAILED" in ran.output


@pytest.mark.parametrize("wrong", [["gremlin"], ["--plan"], ["pair"]])
def test_what_cannot_be_is_said(wrong: list[str]) -> None:
    assert CliRunner().invoke(app, ["fleet", "diagnose", *wrong]).exit_code != 0
