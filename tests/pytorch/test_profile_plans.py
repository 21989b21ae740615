"""A plan runs in slices, goes on where it stopped, starts a new file under another driver, and writes its data card."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from windtunnel.base.errors import SpecError, UnknownName
from windtunnel.profile import plans
from windtunnel.profile.device import open_device
from windtunnel.profile.plans import PLANS, KernelSlice, Layers, main, run
from windtunnel.profile.timing import Protocol
from windtunnel.records import About, dataset, read, write

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

QUICK = Protocol(warmup=1, repeats=3, least=1, most_seconds=0.02, flush=False)
HERE = About("a-cpu", "A CPU", driver="1", libraries={"torch": "2"}, source="a test", licence="Apache-2.0")
TINY = (
    KernelSlice("first", 0.5, ("launch",)),
    KernelSlice("second", 0.5, ("residual",), ("eager",), ("gpt-1.7b",), (1,), (16,), ("fp32",)),
)


@pytest.fixture
def described(monkeypatch: pytest.MonkeyPatch) -> list[About]:
    """What `about` says of this machine; the last one counts."""
    found = [HERE]
    monkeypatch.setattr(plans, "about", lambda device, watch: found[-1])
    monkeypatch.setitem(plans.PLANS, "tiny", TINY)  # type: ignore[arg-type]
    return found


def measured(out: Path, **options: object) -> list[str]:
    told: list[str] = []
    run("tiny", out, 60.0, open_device("cpu"), protocol=QUICK, tell=told.append, **options)  # type: ignore[arg-type]
    return told


def test_slices_files_and_card(described: list[About], tmp_path: Path) -> None:
    told = measured(tmp_path)
    assert [line.split(":")[0] for line in told] == ["first", "second"]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["DATA_CARD.md", "first.parquet", "second.parquet"]
    rows = len(read(tmp_path / "first.parquet")) + len(read(tmp_path / "second.parquet"))
    card = (tmp_path / "DATA_CARD.md").read_text(encoding="utf-8")
    assert f"{rows} rows in 2 Parquet files" in card and "| kernel | launch | fp32 | eager | 4 | 0 |" in card
    assert "{" not in card and "| driver | 1 |" in card
    assert "first: 0 measured, 4 from before" in measured(tmp_path)[0]


def test_another_driver_goes_into_another_file(described: list[About], tmp_path: Path) -> None:
    measured(tmp_path, only=("first",))
    some = read(tmp_path / "first.parquet")
    write(dataset(some.about, some.rows()[:1]), tmp_path / "first.parquet")
    described.append(replace(HERE, driver="2"))
    measured(tmp_path, only=("first",))
    other = read(tmp_path / "first-2.parquet")
    assert other.about.driver == "2" and len(other) == 3  # what the first file has is not measured again
    assert "| driver | 1, 2 |" in (tmp_path / "DATA_CARD.md").read_text(encoding="utf-8")


def test_another_gpu_is_refused(described: list[About], tmp_path: Path) -> None:
    measured(tmp_path, only=("first",))
    described.append(replace(HERE, gpu="b-cpu"))
    with pytest.raises(SpecError, match="Take another folder"):
        measured(tmp_path, only=("first",))


def test_files_of_an_earlier_run(described: list[About], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(tmp_path / "a", only=("first",))
    line = ["tiny", "--out", str(tmp_path / "b"), "--device", "cpu", "--only", "first"]
    assert main([*line, "--from", str(tmp_path / "a")]) == 0 and "4 from before" in capsys.readouterr().out
    assert main([*line, "--from", str(tmp_path / "c")]) == 2 and "earlier run" in capsys.readouterr().err
    assert main(["tinny", *line[1:]]) == 2 and "'tiny'" in capsys.readouterr().err
    assert main([*line, "--budget", "long"]) == 2 and "9m" in capsys.readouterr().err


@pytest.mark.parametrize("name", PLANS)
def test_shares_and_cases_of_every_plan(name: str) -> None:
    kernels = [one.share for one in PLANS[name]]
    assert all(share > 0 for share in kernels) and len({one.name for one in PLANS[name]}) == len(kernels) <= 6
    for one in PLANS[name]:
        if isinstance(one, Layers):
            cases = one.cases()
            assert cases[0].model.name == one.models[0] and cases[0].tp == one.tp[0] and cases[0].seq == one.seq[0]


def test_unknown_slice(described: list[About], tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="second"):
        measured(tmp_path, only=("secnd",))
