"""`export FORMAT CLUSTER`: a machine without a job in the files of other tools."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from windtunnel.base.errors import SpecError
from windtunnel.cli import app
from windtunnel.exports import exporters
from windtunnel.spec import load_cluster, load_job


@pytest.mark.parametrize("form", [one.name for one in exporters.EXPORTERS if one.of_cluster])
def test_a_cluster_alone_is_what_a_job_on_it_has(form: str) -> None:
    job = load_job("llama3-8b-8xh100")
    alone = exporters.cluster_exporter_of(form).export_cluster(job.cluster, {})
    whole = exporters.exporter_of(form).export(job, {})
    assert {name: whole.files[name] for name in alone.files} == alone.files
    assert set(whole.files) - set(alone.files) <= {"comm_group.json"}


def test_astra_sims_files_are_read_back(tmp_path: Path) -> None:
    runner, folder = CliRunner(), tmp_path / "astra"
    told = runner.invoke(app, ["export", "astra-sim", "h100-ib", "--set", "cluster.gpus=64", "-o", str(folder)])
    assert told.exit_code == 0, told.output
    read = runner.invoke(app, ["import", str(folder / "network.yml"), "--json", "-"])
    assert read.exit_code == 0, read.output
    facts, node = json.loads(read.stdout)["facts"], load_cluster("h100-ib").node
    assert node.nic is not None
    assert facts["npus_count"] == [8, 8]
    of_nics = node.nic.count * node.nic.bandwidth / node.gpus
    assert facts["bandwidth_bytes_per_s"] == pytest.approx([node.scale_up.bandwidth, of_nics])


def test_a_file_with_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('id = "mine"\nnode = "dgx-h100"\nfabric = "ib"\ngpus = 32\n')
    told = CliRunner().invoke(app, ["export", "simai-topology", str(tmp_path / "c.toml")])
    assert told.exit_code == 0, told.output
    assert told.stdout.split()[1] == "8"


def test_a_format_of_jobs_needs_one() -> None:
    told = CliRunner().invoke(app, ["export", "megatron", "h100-ib"])
    assert isinstance(told.exception, SpecError)
    assert "nccl-topology, nccl-graph, simai-topology, graph, astra-sim" in str(told.exception)
