"""Machines of dimensions that contradict their job: the command ends with 2 and names the field and what fits."""

from __future__ import annotations

from pathlib import Path

import pytest

import windtunnel as wt
from windtunnel.base.errors import SpecError
from windtunnel.cli import main

MINE = """
name = "mine"
model = "{model}"
runtime = "{runtime}"
[cluster]
base = "h100-ib"
gpus = {gpus}
fabric = {{ builder = "{builder}" }}
[plan]
tp = {tp}
dp = {dp}
ep = {ep}
micro_batch = 1
global_batch = {dp}
seq = 2048
sequence_parallel = true
"""


def written(folder: Path, builder: str, gpus: int = 64, tp: int = 4, ep: int = 1, model: str = "llama3-8b") -> str:
    path = folder / "job.toml"
    text = MINE.format(model=model, runtime="megatron-core", builder=builder, gpus=gpus, tp=tp, dp=gpus // tp, ep=ep)
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("builder", "words"),
    [
        ("torus:sizes=4x4", ("cluster.fabric.builder", "product is the 64 GPUs", "4x4 has 16", "8x8")),
        ("ndim:kinds=ring+hypercube,sizes=8x8,link=1GB/s,latency=1us", ("cluster.fabric.builder ndim.kinds", "fully_connected")),
        ("ndim:kinds=ring,sizes=8x8", ("cluster.fabric.builder ndim.kinds", "one for each of the sizes 8x8")),
        ("torus:sizes=8x8,colour=red", ("cluster.fabric.builder torus", "colour", "wrap")),
        ("torus:sizes=8x8,link=1GB/s+2GB/s+3GB/s", ("torus.link", "2 dimensions")),
        ("torus:sizes=2x2x2x2x4", ("torus.sizes", "one to four dimensions")),
        ("torus:sizes=0x64", ("torus.sizes", "from 1")),
        ("mesh:sizes=8x8,wrap=4", ("mesh.wrap", "torus:wrap")),
    ],
)
@pytest.mark.parametrize("network", ["closed", "flow", "packet"])
def test_a_wrong_machine_is_named(
    builder: str, words: tuple[str, ...], network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", written(tmp_path, builder), "--network", network]) == 2
    said = capsys.readouterr().err
    for word in words:
        assert word in said


def test_experts_that_are_no_part_of_the_dimensions_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = written(tmp_path, "torus:sizes=6x8", gpus=48, ep=6, model="mixtral-8x7b")
    assert main(["predict", job, "--set", "model.experts=12"]) == 2
    said = capsys.readouterr().err
    assert "plan.ep: got 6" in said and "6x8" in said and "2, 4, 12, 24, 48" in said
    assert main(["predict", written(tmp_path, "torus:sizes=6x8", gpus=48, ep=8, model="mixtral-8x7b")]) == 0


@pytest.mark.parametrize(
    ("sets", "words"),
    [
        (["cluster.fabric.slice=4x4"], "cluster.fabric.slice.*product is the 64"),
        (["cluster.fabric.slice=2x32"], "cluster.fabric.slice.*inside the 16x16"),
        (["cluster.fabric.slice=8by8"], "cluster.fabric.slice.*8x8"),
        (["cluster.gpus=512", "plan.dp=512", "plan.global_batch=512"], "cluster.gpus.*at most the pod's 256.*fabric=ethernet"),
        (["cluster.fabric.slices=false", "cluster.fabric.slice=8x8"], "cluster.fabric.slice.*slices = true"),
    ],
)
def test_slices_that_are_none(sets: list[str], words: str) -> None:
    table = {
        "name": "pod",
        "model": "llama3-8b",
        "runtime": "maxtext",
        "cluster": {"base": "tpu-v5e", "gpus": 64},
        "plan": {"dp": 64, "micro_batch": 1, "global_batch": 64, "seq": 2048},
    }
    with pytest.raises(SpecError, match=words):
        wt.predict(wt.load(table, sets))


def test_links_that_are_down_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = written(tmp_path, "torus:sizes=8x8")
    assert main(["predict", job, "--network", "flow", "--fault", "gpu0.0--gpu1.0:down"]) == 2
    assert "slow=0.5" in capsys.readouterr().err
    assert main(["predict", job, "--network", "flow", "--fault", "gpu0.0--gpu1.0:slow=0.5"]) == 0


def test_calls_show_the_dimensions_that_they_run_over(tmp_path: Path) -> None:
    for network in ("closed", "flow"):
        answer = wt.predict(wt.load(written(tmp_path, "torus:sizes=4x4x4")), network=network)
        shown = {str(call["axis"]): (call["algorithm"], call["dimensions"]) for call in answer.collectives}
        assert shown["tp"] == ("ring", "x4")
        assert ("torus", "y4 z4") in shown.values()
        assert all(call["channels"] == 0 for call in answer.collectives)


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_a_single_call_shows_its_links(network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["collective", "--cluster", "tpu-v5p", "--gpus", "64", "--op", "all_gather", "--bytes", "1M", "--network", network]
    assert main([*call, "--json", str(tmp_path / "links.json")]) == 0
    assert "Hottest links, 1 MiB: gpu0.0.0 → gpu1.0.0" in capsys.readouterr().out
    for refused in (["--per-node", "4"], ["--algorithm", "ring"], ["--dims", "4,16"], ["--show-transfers"]):
        assert main([*call, *refused]) == 2
        assert refused[0] in capsys.readouterr().err


@pytest.mark.parametrize("field", ["cluster.placement=random:1", "cluster.fabric.nodes=64", "cluster.fabric.storage={servers=2}"])
def test_a_grid_has_one_job_and_no_storage(field: str, tmp_path: Path) -> None:
    job = wt.load(written(tmp_path, "torus:sizes=8x8"), [field])
    with pytest.raises(SpecError, match=field.partition("=")[0]):
        wt.predict(job, network="flow")


def test_switches_have_no_slices() -> None:
    with pytest.raises(SpecError, match=r"cluster\.fabric\.slices.*no torus or mesh"):
        wt.predict(
            wt.load("llama3-8b-8xh100", ["cluster.gpus=16", "plan.dp=16", "plan.global_batch=16", "cluster.fabric.slices=true"])
        )
