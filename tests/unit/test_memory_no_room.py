"""A job that does not fit: the picture of where its allocator runs out of memory, and the words for how well a job fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from windtunnel.api.memory import no_room_sentence, over_time_picture, report_memory
from windtunnel.cli import main
from windtunnel.draw.page.painters import memory_svg
from windtunnel.memory import memory_of
from windtunnel.search.margin import usual_margin, verdict
from windtunnel.spec import load_job
from windtunnel.workload import build

LONG = ["plan.seq=32768"]


def test_the_moments_end_where_there_is_no_room() -> None:
    job = load_job("llama3-8b-8xh100", LONG)
    (moments,) = report_memory(job, moments=True).moments
    lack = moments.no_room
    assert lack is not None and lack.step in (1, 2)
    assert lack.time == pytest.approx(float(moments.time[-1]))
    assert sum(lack.held.values()) == pytest.approx(float(moments.allocated[-1]))
    assert lack.reserved <= lack.limit and lack.reserved + lack.size > lack.limit - 1e9
    said = no_room_sentence(moments)
    assert "runs out of memory" in said and lack.content in said
    assert "runs out of memory" in memory_svg(over_time_picture([moments], "a job"))


def test_a_job_with_room_has_no_such_end() -> None:
    (moments,) = report_memory(load_job("llama3-8b-8xh100"), moments=True).moments
    assert moments.no_room is None and no_room_sentence(moments) == ""


def test_the_verb_draws_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m.html"
    assert main(["memory", "llama3-8b-8xh100", "--seq", "32k", "--picture", str(path)]) == 0
    assert "runs out of memory" in capsys.readouterr().out.replace("\n", " ")
    assert "runs out of memory" in path.read_text(encoding="utf-8")


def test_what_fits_with_less_than_the_error_of_memory_fits_on_paper() -> None:
    job = load_job("llama3-8b-8xh100")
    (stage,) = memory_of(job, build(job))
    need = stage.total / (1.0 - 0.5 * usual_margin())
    for capacity, words, mood in (
        (2 * need, "fits, ", "good"),
        (need / 0.989, "fits on paper", "warn"),
        (0.8 * need, "DOES NOT FIT", "bad"),
    ):
        sized = load_job("llama3-8b-8xh100", [f"cluster.node.gpu.memory={capacity:.0f}"])
        said, style = verdict(memory_of(sized, build(sized)))
        assert said.startswith(words) and mood == style
