"""MSCCL's algorithms and TACCL's files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError, SpecError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Reading
from windtunnel.records.trace_graph import TaskKind
from windtunnel.replay import replay
from windtunnel.spec.loading.load import load_cluster

HEAD = (
    '<algo name="ring" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" minBytes="0" maxBytes="2097152">'
)


def ring() -> str:
    """An all-reduce of two GPUs: send, receive-reduce-send, receive; then a copy that waits for the last step."""
    gpus = []
    for gpu in (0, 1):
        kinds = ("s", "rrs", "r")
        rows = [
            f'<step s="{at}" type="{kind}" srcbuf="i" srcoff="0" cnt="1" depid="-1" deps="-1"/>' for at, kind in enumerate(kinds)
        ]
        last = '<tb id="1" send="-1" recv="-1" chan="0"><step s="0" type="cpy" cnt="2" depid="0" deps="2"/></tb>'
        gpus.append(f'<gpu id="{gpu}"><tb id="0" send="{1 - gpu}" recv="{1 - gpu}" chan="0">{"".join(rows)}</tb>{last}</gpu>')
    return HEAD + "".join(gpus) + "</algo>"


def read(folder: Path, text: str) -> Reading:
    path = folder / "a.xml"
    path.write_text(text)
    return read_files([path])


def test_counts(tmp_path: Path) -> None:
    facts = read(tmp_path, ring()).facts
    assert (facts["gpus"], facts["tbs"], facts["steps"], facts["send_chunks"]) == (2, 4, 8, 4)
    assert facts["types"] == {"s": 2, "rrs": 2, "r": 2, "cpy": 2}
    assert facts["attrs"]["proto"] == "Simple"


def test_a_ring_ends(tmp_path: Path) -> None:
    """Both GPUs send first; neither waits for the other to receive. Two messages of 1 MiB follow each other."""
    graph = read(tmp_path, ring()).value
    assert graph.ranks == 2
    sends = graph.kind == TaskKind.SEND
    assert sends.sum() == 4 and set(graph.bytes[sends].tolist()) == {2.0**20}
    result = replay(graph, load_cluster("h100-ib", ["gpus=8"]))
    assert not result.stuck
    assert result.end >= 2 * 2**20 / 450e9


def test_a_wait_for_a_step_that_is_not_there(tmp_path: Path) -> None:
    reading = read(tmp_path, ring().replace('deps="2"/>', 'deps="7"/>'))
    assert any("2 steps wait" in line for line in reading.assumed)


def test_broken_files(tmp_path: Path) -> None:
    short = read(tmp_path, ring()[:-60])
    assert short.broken and short.facts["gpus"] == 2
    assert "1 steps of a kind" in read(tmp_path, ring().replace('type="cpy"', 'type="jump"', 1)).broken[0]
    assert "ngpus says 3" in read(tmp_path, ring().replace('ngpus="2"', 'ngpus="3"')).broken[0]
    with pytest.raises(FileError, match="no algo"):
        read(tmp_path, HEAD + "</algo>")


def test_entities_are_refused(tmp_path: Path) -> None:
    bomb = '<!DOCTYPE a [<!ENTITY x "y"><!ENTITY z "&x;&x;">]>' + ring().replace('name="ring"', 'name="&z;"')
    with pytest.raises((FileError, SpecError)):
        read(tmp_path, bomb)


def test_taccl(tmp_path: Path) -> None:
    topology = {"name": "T", "gpus_per_node": 8, "node_betas_list": [20, 40], "remote_beta": 100, "alpha": 0.3}
    reading = read(tmp_path, json.dumps(topology))
    assert reading.format == "TACCL topology" and reading.facts["gpus_per_node"] == 8
    assert reading.facts["node_bytes_per_s"] == pytest.approx([50e9, 25e9])  # 1 MB in 20 and 40 us
    assert reading.facts["remote_bytes_per_s"] == pytest.approx(10e9)
    sketch = read(tmp_path, '{"nnodes": 2, "intranode_sketch": {"strategy": "none"}, "symmetry_offsets": [[8, 16]]}')
    assert sketch.format == "TACCL sketch" and sketch.facts["nnodes"] == 2
    with pytest.raises(FileError, match="TACCL"):
        read(tmp_path, '{"nnodes": 2, "intranode_sketch": ')


def test_samples(shared: Path) -> None:
    folder = shared / "samples/6_schedules_configs/msccl_xml"
    for name, facts in json.loads((folder / "FACTS.json").read_text()).items():
        reading = read_files([folder / name])
        assert {key: reading.facts[key] for key in facts} == facts
        assert not replay(reading.value, load_cluster("h100-ib", ["gpus=8"])).stuck
