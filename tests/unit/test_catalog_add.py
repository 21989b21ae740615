"""`catalog add`: a model from its config.json, a GPU and a cluster from the numbers of a data sheet, as files that verbs take."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import windtunnel as wt
from windtunnel.cli import main
from windtunnel.spec import load_cluster, load_model

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2,
    "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
}  # fmt: skip
SHEET = ("--memory", "288GB", "--bandwidth", "22TB/s", "--bf16", "4PFLOP/s", "--fp8", "8PFLOP/s", "--power", "1800W")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_model_of_a_config_is_a_file_that_verbs_take(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("config.json").write_text(json.dumps(CONFIG | {"of_another_make": 3}))
    assert main(["catalog", "add", "model", "config.json", "--name", "mine"]) == 0
    said = capsys.readouterr().out
    assert "model mine -> mine.toml" in said and "of_another_make" in said
    command = said.strip().splitlines()[-1].removeprefix("next: windtunnel ").split()
    assert command == ["predict", "mine.toml", "--on", "h100-ib", "--gpus", "8"]
    model = load_model(Path("mine.toml"))
    assert (model.name, model.layers, model.hidden, model.groups, model.ffn) == ("mine", 4, 1024, 2, 4096)
    assert main([*command, "--quiet"]) == 0
    assert (
        main(["serve-predict", "mine.toml", "--on", "h100-ib", "--tp", "1", "--isl", "100", "--osl", "10", "--concurrency", "1"])
        == 0
    )
    assert main(["memory", "mine.toml", "--on", "h100-ib", "--gpus", "8"]) == 0


def test_a_config_comes_from_standard_input(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(CONFIG)))
    assert main(["catalog", "add", "model", "-", "--name", "piped", "-o", "-"]) == 0
    assert 'name = "piped"' in capsys.readouterr().out


def test_a_gpu_of_a_data_sheet_is_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "add", "gpu", "x1", *SHEET, "--nvlink", "3.6TB/s"]) == 0
    cluster = load_cluster(Path("x1.toml"))
    gpu = cluster.gpu
    assert (gpu.memory, gpu.memory_bandwidth, gpu.power_w) == (288e9, 22e12, 1800.0)
    assert (gpu.peak["bf16"], gpu.peak["fp16"], gpu.peak["fp8"], gpu.peak["mxfp8"]) == (4e15, 4e15, 8e15, 8e15)
    assert cluster.node.scale_up.bandwidth == 1.8e12  # data sheets count both ways
    said = capsys.readouterr().out
    assert "both ways" in said and "8 GPUs a node" in said
    assert main([*said.strip().splitlines()[-1].removeprefix("next: windtunnel ").split(), "--quiet"]) == 0


def test_a_gpu_like_another_has_its_kernels() -> None:
    entry = wt.add_entry("gpu", "x2", memory="288GB", bandwidth="22TB/s", bf16="4PFLOP/s", like="gb300-nvl72")
    Path("x2.toml").write_text(entry.text)
    gpu = load_cluster(Path("x2.toml")).gpu
    assert (gpu.vendor, gpu.architecture, gpu.kernels_from) == ("nvidia", "blackwell", "b200-sxm-180gb")


def test_a_cluster_of_a_named_gpu_or_of_a_file() -> None:
    assert (
        main(["catalog", "add", "cluster", "h20s", "--gpu", "h20", "--nic", "400Gb/s", "--nvlink", "900GB/s", "--gpus", "64"]) == 0
    )
    cluster = load_cluster(Path("h20s.toml"))
    assert (cluster.gpus, cluster.gpu.id, cluster.node.scale_up.bandwidth) == (64, "h20", 450e9)
    assert cluster.node.nic is not None and (cluster.node.nic.count, cluster.node.nic.bandwidth) == (8, 50e9)
    assert main(["catalog", "add", "gpu", "x1", *SHEET]) == 0
    assert (
        main(["catalog", "add", "cluster", "x1s", "--gpu", "x1.toml", "--gpus-per-node", "4", "--nic", "800Gb/s", "--gpus", "8"])
        == 0
    )
    assert load_cluster(Path("x1s.toml")).gpu == load_cluster(Path("x1.toml")).gpu
    assert main(["collective", "-c", "x1s.toml", "-n", "8", "-b", "1M"]) == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gpu", "x"), "--memory: got nothing"),
        (("gpu", "x", "--memory", "288GB", "--bandwidth", "22"), "Such as --bandwidth 22TB/s"),
        (("gpu", "x", "--memory", "288GB", "--bandwidth", "22TB/s"), "--bf16: got nothing"),
        (("cluster", "c"), "--gpu: got nothing"),
        (("cluster", "c", "--gpu", "h20", "--gpus", "16"), "--nic: got nothing"),
        (("cluster", "c", "--gpu", "h20", "--gpus", "12", "--nic", "400Gb/s"), "whole nodes of 8"),
        (("cluster", "c", "--gpu", "h20", "--memory", "80GB"), "options of a cluster"),
        (("model", "Qwen/Qwen9-8B"), "hf download Qwen/Qwen9-8B config.json"),
        (("network", "x"), "model, gpu, cluster"),
    ],
)
def test_what_is_missing_is_said_with_an_example(words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "add", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_catalogue_still_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog"]) == 0 and main(["catalog", "gpus", "h20"]) == 0
    shown = capsys.readouterr().out
    assert "gpus (" in shown and 'id = "h20"' in shown
