"""`rocm-smi --csv` and `--json`: watts of cards, means of columns with a unit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Reading

TABLE = """device,Temperature (Sensor edge) (C),Average Graphics Package Power (W),GPU use (%),sclk clock speed:,VRAM Total Memory (B),Card Series
card0,31.0,190.0,50,(800Mhz),68702699520,AMD Instinct MI250
card1,33.0,N/A (Secondary die),70,(1000Mhz),68702699520,AMD Instinct MI250

"""  # noqa: E501  as it is printed
CARDS = {
    "card0": {"Current Socket Graphics Package Power (W)": "700.5", "GPU use (%)": "90", "Serial Number": "N/A"},
    "card1": {"Current Socket Graphics Package Power (W)": "699.5", "GPU use (%)": "N/A", "Serial Number": "7"},
    "system": {"Driver version": "6.3.6"},
}


def imported(tmp_path: Path, text: str) -> Reading:
    path = tmp_path / "cards.txt"
    path.write_text(text)
    return read_files([path])


def test_a_table_of_cards(tmp_path: Path) -> None:
    reading = imported(
        tmp_path, "WARNING: AMD GPU device(s) is/are in a low-power state\n\n" + TABLE + TABLE.replace("190.0", "210.0")
    )
    assert (reading.format, reading.content) == ("rocm-smi", Content.SETTINGS)
    facts = reading.facts
    assert (facts["gpus"], facts["readings"], facts["mean_w"], facts["devices"]) == (2, 2, 200.0, ["AMD Instinct MI250"])
    assert facts["by_gpu"]["card0"] == {"readings": 2, "mean_w": 200.0, "min_w": 190.0, "max_w": 210.0}
    assert facts["mean"]["sclk clock speed"] == 900.0 and facts["mean"]["GPU use (%)"] == 60.0
    assert any("2 readings of second dies" in note for note in reading.assumed) and not reading.broken


@pytest.mark.parametrize("indent", [None, 4])
def test_objects_that_follow_each_other(tmp_path: Path, indent: int | None) -> None:
    text = json.dumps(CARDS, indent=indent) + "\n"
    reading = imported(tmp_path, text * 2 + text[: len(text) // 2])
    assert (reading.format, reading.facts["readings"], reading.facts["mean_w_per_gpu"]) == ("rocm-smi", 4, 700.0)
    assert reading.facts["mean"] == {"GPU use (%)": 90.0}
    assert reading.ignored == ("2 cells without a number",) and reading.broken == ("1 rows that are cut off",)


def test_without_power_or_cards(tmp_path: Path) -> None:
    reading = imported(tmp_path, "device,GPU use (%)\ncard0,5\n")
    assert "mean_w" not in reading.facts and any("--showpower" in note for note in reading.assumed)
    with pytest.raises(FileError, match="no card"):
        imported(tmp_path, "device,GPU use (%)\n")
    with pytest.raises(FileError, match="rocm-smi"):
        imported(tmp_path, "=== ROCm System Management Interface ===\nGPU[0] : Average Graphics Package Power (W): 237.0\n")
