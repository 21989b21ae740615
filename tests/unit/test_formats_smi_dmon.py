"""`nvidia-smi dmon`: watts, joules and means by GPU from columns that the header names."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.base.errors import FileError
from windtunnel.formats.door import read_files
from windtunnel.formats.reading import Content, Reading

TIMED = """#Date       Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec   mclk   pclk
#YYYYMMDD   HH:MM:SS    Idx      W      C      C      %      %      %      %    MHz    MHz
 20240506   23:59:55      0    100     40      -     50     10      0      0   2619   1980
 20240506   23:59:55      1    200     41      -     60     10      0      0   2619   1980
 20240507   00:00:05      0    300     50      -     70     30      0      0   2619   1755
 20240507   00:00:05      1    400     51      -     80     30      0      0   2619   1755
"""
PLAIN = """# gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk
# Idx     W     C     C     %     %     %     %   MHz   MHz
    0    43    35     -     0     0     0     0  2505   1410
    1     -    35     -    20     0     0     0  2505   1410
    0    45    35
"""


def imported(tmp_path: Path, *texts: str) -> Reading:
    paths = [tmp_path / f"node{number}.txt" for number in range(len(texts))]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
    return read_files(paths)


def test_watts_over_midnight_are_joules(tmp_path: Path) -> None:
    reading = imported(tmp_path, TIMED)
    assert (reading.format, reading.content) == ("nvidia-smi-dmon", Content.SETTINGS)
    facts = reading.facts
    assert (facts["gpus"], facts["readings"], facts["mean_w_per_gpu"], facts["joules"]) == (2, 4, 250.0, 5000.0)
    assert facts["by_gpu"]["0"] == {
        "readings": 2,
        "mean_w": 200.0,
        "min_w": 100.0,
        "max_w": 300.0,
        "seconds": 10.0,
        "joules": 2000.0,
    }
    assert facts["mean"] == {"gtemp": 45.5, "sm": 65.0, "mem": 20.0, "enc": 0.0, "dec": 0.0, "mclk": 2619.0, "pclk": 1867.5}
    assert facts["units"]["pclk"] == "MHz" and "mtemp" not in facts["units"]
    assert reading.ignored == ("4 cells without a number",) and not reading.broken and not reading.assumed


def test_times_without_a_date_go_on_after_midnight(tmp_path: Path) -> None:
    text = "".join(line[0] + line[12:] for line in TIMED.splitlines(True))
    assert text.startswith("#Time ") and imported(tmp_path, text).facts["joules"] == 5000.0


def test_a_long_log_with_headers_in_between(tmp_path: Path) -> None:
    header, units, *rows = TIMED.splitlines(True)
    page = header + units + "".join(rows[:2])
    reading = imported(tmp_path, page * 200)
    assert (reading.facts["readings"], reading.facts["mean_w"]) == (400, 300.0) and not reading.broken
    clock = "".join(line[0] + line[12:] for line in page.splitlines(True)[:1] + rows[:2] * 200)  # hours are no labels of srun
    reading = imported(tmp_path, clock)
    assert reading.format == "nvidia-smi-dmon" and reading.facts["readings"] == 400 and not reading.assumed


def test_without_times_there_are_means_only(tmp_path: Path) -> None:
    reading = imported(tmp_path, PLAIN)
    assert (reading.facts["gpus"], reading.facts["mean_w"], reading.facts["mean"]["sm"]) == (2, 43.0, 10.0)
    assert "joules" not in reading.facts and reading.assumed and reading.broken == ("1 rows that are cut off",)


def test_columns_parted_by_commas_and_chosen_without_power(tmp_path: Path) -> None:
    reading = imported(tmp_path, "#gpu, sm, mem, rxpci, txpci\n#Idx, %, %, MB/s, MB/s\n0, 50, 10, 100, 300\n0, 70, 10, 300, 300\n")
    assert reading.facts["mean"] == {"sm": 60.0, "mem": 10.0, "rxpci": 200.0, "txpci": 300.0}
    assert "mean_w" not in reading.facts and any("no power" in note for note in reading.assumed)


def test_equal_numbers_on_two_hosts_are_two_gpus(tmp_path: Path) -> None:
    assert list(imported(tmp_path, PLAIN, PLAIN.replace(" 43 ", " 83 ")).facts["by_gpu"]) == ["node0.txt 0", "node1.txt 0"]


def test_processes_and_headers_alone_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="pmon"):
        imported(tmp_path, "# gpu         pid   type     sm    mem    command\n# Idx           #    C/G      %\n 0  1 C 1 1 x\n")
    with pytest.raises(FileError, match="no reading of a GPU"):
        imported(tmp_path, "".join(TIMED.splitlines(True)[:2]))
