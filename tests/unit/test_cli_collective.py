"""`windtunnel collective`: engines, algorithms, listings, NCCL variables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_cli import answer


@pytest.mark.parametrize("network", ["closed", "flow", "packet"])
def test_every_fidelity_prints_the_table(capsys: pytest.CaptureFixture[str], network: str) -> None:
    code, out, _ = answer(capsys, "collective", "-c", "h100-ib", "-n", "16", "-b", "1K,4M", "--network", network)
    assert code == 0
    assert "nvls_tree" in out
    assert ("packets of 4096 B" in out) == (network == "packet")


def test_a_listing_is_read_back(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = str(tmp_path / "tree.csv")
    common = ("collective", "-c", "h100-ib", "-n", "16", "--json", "-", "--network", "flow", "-b", "1M")
    assert answer(capsys, *common[:-2], "-b", "1M", "-a", "tree", "--show-transfers", "--csv", path)[0] == 0
    native, read = (json.loads(answer(capsys, *common, "-a", name)[1])["rows"][0] for name in ("tree", path))
    assert read["algorithm"] == "file"
    assert read["time_us"] == pytest.approx(native["time_us"], rel=1e-3)  # bytes are whole


def test_transfers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    out = answer(capsys, "collective", "-c", "h100-ib", "-n", "4", "-b", "64", "-a", "ring", "--show-transfers")[1]
    assert "24 transfers on 4 lanes" in out
    assert len(out.splitlines()) == 2 + 24


def test_variables_reach_the_tuner(capsys: pytest.CaptureFixture[str]) -> None:
    out = answer(capsys, "collective", "-c", "h100-ib", "-n", "8", "-b", "1G", "-e", "NCCL_ALGO=Ring", "-e", "NCCL_PROTO=Simple")[1]
    assert "ring" in out and "nvls" not in out
    assert "NCCL_IB_TIMEOUT" in answer(capsys, "collective", "-c", "h100-ib", "--env", "help")[1]


@pytest.mark.parametrize("words", [
    ["--env", "NCCL_ALGOS=Ring"], ["--env", "NCCL_ALGO"], ["--algorithm", "rings"], ["--algorithm", "none.csv"],
    ["--network", "pakcet"],
    ["--dims", "8,x"], ["--algorithm", "tree", "--op", "all_gather"], ["--algorithm", "hierarchical", "--dims", "3,3"],
])  # fmt: skip
def test_what_is_wrong_is_said(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    code, out, err = answer(capsys, "collective", "-c", "h100-ib", "-n", "8", "-b", "1M", *words)
    assert code == 2
    assert not out
    assert err.startswith("windtunnel:") and "Traceback" not in err


@pytest.mark.parametrize("network", ["flow", "packet"])
def test_an_engine_says_which_links_are_hottest_and_draws_them(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, table = tmp_path / "page.html", tmp_path / "table.json"
    call = ["collective", "-c", "h100-ib", "-n", "16", "-b", "1M,64K", "--network", network]
    code, printed, _ = answer(capsys, *call, "--html", str(page), "--json", str(table))
    assert code == 0
    assert "# Hottest links, 1 MiB: " in printed and "by rank " in printed
    text = page.read_text(encoding="utf-8")
    assert "The network during the call of 1 MiB" in text and 'id="moment"' in text and "Load over time" in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org", "")
    data = json.loads(table.read_text(encoding="utf-8"))
    assert data["traffic_size"] == 2**20 and data["traffic"]["engine"] == network and "boxes" not in data["traffic"]
    for hot, moved in zip(data["traffic"]["hot"], data["traffic"]["over_time"]["hot_bytes"], strict=True):
        assert sum(moved) == pytest.approx(hot["bytes"], rel=1e-3)


def test_a_page_that_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page, call = tmp_path / "page.html", ["collective", "-c", "h100-ib", "-n", "16", "-b", "1M", "--html"]
    code, _, told = answer(capsys, *call, str(page), "--network", "packet", "--skip")
    assert code == 2 and "no --skip" in told and not page.exists()
    assert answer(capsys, *call, str(tmp_path / "page.txt"))[0] == 2
    assert answer(capsys, *call, str(page))[0] == 0 and "Each algorithm alone" in page.read_text(encoding="utf-8")
