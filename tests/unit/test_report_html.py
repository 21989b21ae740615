"""The page: self-contained, escaped, small, complete."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from report_fixture import GIB, MICRO, STAGES, make_memory, make_prediction

from windtunnel.api.prediction_sheet import MOST_SPANS, pipeline_data, prediction_sheet
from windtunnel.base.errors import FileError
from windtunnel.draw.page import sheet as drawn
from windtunnel.predict import predict
from windtunnel.predict.answer.timeline import HOST_LAUNCH
from windtunnel.predict.prediction import Prediction, Span
from windtunnel.spec import load_job

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028"


def page(prediction: Prediction) -> str:
    return drawn.page(prediction_sheet(prediction))


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    reader = Tags()
    reader.feed(text)
    return reader.found


def test_it_asks_nobody_for_anything() -> None:
    text = page(make_prediction())
    assert not re.search(r"(src|href)\s*=(?!.#)|url\(|@import|https?://|fetch\(|XMLHttp", text)
    assert len(text.encode()) < 200_000


def test_it_holds_every_section() -> None:
    text = page(make_prediction())
    for said in (
        "Where the time goes",
        "The pipeline over one step",
        "Memory of the fullest GPU",
        "Longest kernels of the slowest stage",
        "Communication calls",
        "Critical path",
        "What this rests on",
        "1.196 s",
        "42.0 ±",
        "capacity 80 GiB",
    ):
        assert said in text, said


def test_text_from_outside_is_escaped() -> None:
    p = make_prediction()
    job = p.job.model_copy(update={"name": EVIL, "model": p.job.model.model_copy(update={"name": EVIL})})
    kernel = p.kernels[0].__class__(**{**vars(p.kernels[0]), "name": EVIL, "module": EVIL, "shape": EVIL})
    text = page(
        make_prediction(
            job=job,
            warnings=(EVIL,),
            assumptions=(EVIL,),
            kernels=(kernel,),
            timeline=(Span(0, "compute", EVIL, "forward", 0.0, 1.0, 0, 0),),
            collectives=({"name": EVIL, "axis": EVIL, "algorithm": EVIL},),
            critical_path=({"what": EVIL, "stage": EVIL, "seconds": 1.0},),
            provenance={EVIL: 1.0},
            network=EVIL,
            breakdown={EVIL: 1.0},
            overlapped={EVIL: 1.0},
        )
    )
    found = tags(text)
    assert [t for t, _ in found].count("script") == 2
    assert "img" not in {t for t, _ in found}
    assert not any(name.startswith("on") for _, attrs in found for name in attrs)
    assert "\u2028" not in text.split('id="pipeline-data">')[1].split("</script>")[0]


def test_the_picture_has_every_block() -> None:
    p = make_prediction()
    data = json.loads(page(p).split('id="pipeline-data">')[1].split("</script>")[0])
    assert len(data["spans"]) == len(p.timeline)
    forward = [s for s in data["spans"] if data["kinds"][s[3]]["name"] == "forward" and s[0] == 0]
    assert sorted(s[4] for s in forward) == sorted(2 * list(range(MICRO)))
    assert data["end"] == pytest.approx(p.step_time_s * 1e6)


def test_launches_of_the_host_hide_no_pass() -> None:
    p = predict(load_job("llama3-8b-8xh100"))
    assert any(s.stream == HOST_LAUNCH for s in p.timeline)
    data = pipeline_data(p)
    assert data is not None
    assert {data["kinds"][kind][0] for kind in data["used"]} == {"forward", "backward", "optimizer", "communication"}
    passes = sorted(s[1:3] for s in data["spans"] if s[0] == 0 and not s[5])
    assert len(passes) > 60 and all(one[1] <= other[0] for one, other in zip(passes, passes[1:], strict=False))


def test_huge_timelines_leave_stages_out_and_say_so() -> None:
    spans = tuple(
        Span(s, "compute", f"forward {m}", "forward", m * 1e-3, (m + 1) * 1e-3, m, 0) for s in range(64) for m in range(1000)
    )
    p = make_prediction(timeline=spans)
    data = pipeline_data(p)
    assert data is not None and len(data["spans"]) <= MOST_SPANS
    assert data["stages"][0] == 0 and data["stages"][-1] == 63
    text = page(p)
    assert "16 of 64 stages are drawn" in text
    assert len(text.encode()) < 1_000_000


def test_a_page_without_timeline_memory_or_kernels_is_still_a_page() -> None:
    text = page(make_prediction(timeline=(), memory=(), kernels=(), collectives=(), critical_path=()))
    assert "canvas id" not in text and "Where the time goes" in text


def test_shortfall_is_told() -> None:
    memory = tuple(make_memory(s, 60 * GIB) for s in range(STAGES))
    text = page(make_prediction(memory=memory, fits=False))
    assert "DOES NOT FIT, 7.16 GiB short" in text and "66.5 GiB, 7.16 GiB short" in text


def test_unwritable_path(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="--html"):
        drawn.write_page(prediction_sheet(make_prediction()), tmp_path / "no" / "x.html")
