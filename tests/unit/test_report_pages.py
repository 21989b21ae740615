"""Pages of verbs: each is self-contained, escaped and small, its picture says what the answer says, its command repeats it."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import windtunnel as wt
from windtunnel.api.comparison import compare
from windtunnel.api.pages import sheet_of
from windtunnel.base.errors import FileError, SpecError
from windtunnel.cli import main
from windtunnel.draw.page.sheet import draw_block, page
from windtunnel.network.api import sweep_algorithms
from windtunnel.network.collective_sheet import CollectiveAnswer, collective_sheet
from windtunnel.network.flows.run import slowest_flow
from windtunnel.records.measured_calls import MeasuredCall
from windtunnel.runs.api import show
from windtunnel.runs.whatif_sheet import whatif_sheet
from windtunnel.search.budget.sheet import command_of as command_of_plan
from windtunnel.search.design_sheet import command_of as command_of_design
from windtunnel.sheet.blocks import Change, Layer, Mark, Plot, Scale, Stack, Stacks, Tornado
from windtunnel.spec import load_cluster

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>&\u2028"
SMALL = ["model.layers=2", "plan.global_batch=8", "plan.seq=1024"]


def evil(job: wt.Job) -> wt.Job:
    return job.model_copy(update={"name": EVIL, "model": job.model.model_copy(update={"name": EVIL})})


@pytest.fixture(scope="module")
def job() -> wt.Job:
    return wt.load("llama3-8b-8xh100", SMALL)


@pytest.fixture(scope="module")
def run(job: wt.Job, tmp_path_factory: pytest.TempPathFactory) -> wt.Run:
    file = tmp_path_factory.mktemp("run") / "trace.json"
    wt.export(job, "kineto").save(file)
    found = wt.read(file).value
    assert isinstance(found, wt.Run)
    return found


@pytest.fixture(scope="module")
def pages(job: wt.Job, run: wt.Run) -> dict[str, str]:
    """Every page of an answer whose names are somebody's script."""
    bad, other = evil(job), evil(wt.load("llama3-8b-8xh100", [*SMALL, "plan.recompute=full"]))
    failing = evil(wt.load("llama3-8b-8xh100", ["reliability=llama3-2024"]))
    planned = wt.plan(budget=2e5, days=30.0, on=["h100-ib", "b200-ib"], gpus=[64])
    rows = tuple(replace(one, prediction=replace(one.prediction, job=evil(one.prediction.job))) for one in planned.alternatives)
    named = replace(run, source=EVIL, facts={EVIL: EVIL})
    changes = [
        replace(one, text=EVIL, basis_measured=EVIL, basis_modelled=EVIL)
        for one in wt.whatif(run, ["scale:gemm=0.5", "no-host-gaps"])
    ]
    fields = {"cluster.node.gpu.memory_bandwidth": "2TB/s..4TB/s"}
    found = wt.flows("fat_tree:k=4,link=400Gb/s", "permutation:bytes=1MiB")
    table = wt.collective("h100-ib", "all_reduce", 16, "1M:4M")
    measured = [MeasuredCall(2.0**20, 1e-4)]
    return {
        "goodput": page(sheet_of(wt.goodput(failing, days=10.0, replicas=50)), EVIL),
        "plan": page(sheet_of(replace(planned, alternatives=rows, left_out=(EVIL,))), EVIL),
        "compare": page(sheet_of(compare(wt.predict(bad), wt.predict(other))), EVIL),
        "design": page(sheet_of(wt.design(bad, fields, ["time", "dollars"], trials=3, fixed_plan=True)), EVIL),
        "sensitivity": page(sheet_of(wt.sensitivity(bad)), EVIL),
        "flows": page(sheet_of(found, EVIL), EVIL),
        "collective": page(collective_sheet(CollectiveAnswer(table, algorithms={EVIL: table}, measured=measured), EVIL), EVIL),
        "whatif": page(whatif_sheet(changes), EVIL),
        "run": page(sheet_of(show(named)), EVIL),
        "run-comparison": page(sheet_of(wt.compare(named, bad)), EVIL),
    }


NAMES = ("goodput", "plan", "compare", "design", "sensitivity", "flows", "collective", "whatif", "run", "run-comparison")


@pytest.mark.parametrize("name", NAMES)
def test_a_page_asks_nobody_for_anything_and_escapes_what_it_is_given(pages: dict[str, str], name: str) -> None:
    text = pages[name]
    assert set(NAMES) == set(pages)
    without = text.replace("&lt;img src=x", "")  # escaped
    assert not re.search(r"(src|href)\s*=(?!\"#)|url\(|@import|fetch\(|XMLHttp", without)
    assert "<img" not in text and "alert(1)</script>" not in text and text.count("<script>") == 1
    assert "&lt;script&gt;alert(1)" in text  # it is shown
    assert len(text.encode()) < 300_000


@pytest.mark.parametrize("name", NAMES)
def test_ids_of_a_page_are_its_own(pages: dict[str, str], name: str) -> None:
    ids = re.findall(r'\sid="([^"]*)"', pages[name])
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", NAMES)
def test_pictures_are_named(pages: dict[str, str], name: str) -> None:
    assert all("aria-label=" in head for head in re.findall(r'<svg[^>]*role="img"[^>]*>', pages[name]))


@pytest.mark.parametrize("name", ["plan", "compare", "goodput", "run-comparison"])
def test_errors_stand_beside_figures(pages: dict[str, str], name: str) -> None:
    cards = pages[name].split('<div class="cards">')[1].split("<section")[0]
    assert "±" in cards, cards


def test_the_command_of_a_plan_predicts_its_best_row() -> None:
    planned = wt.plan(days=30.0, model="llama3.1-8b", tokens=1e12, on=["h100-ib"], gpus=[64])
    best = planned.alternatives[0]
    words = shlex.split(command_of_plan(best))
    assert words[:4] == ["windtunnel", "predict", "llama3.1-8b", "--on"]
    again = wt.predict(wt.load(words[2], words[6::2], on=words[4]))
    assert again.step_time_s == pytest.approx(best.prediction.step_time_s, rel=1e-9)
    assert command_of_plan(replace(best, prediction=replace(best.prediction, job=evil(best.prediction.job)))) == ""


def test_the_command_of_a_design_predicts_it(job: wt.Job) -> None:
    fields = {"cluster.node.gpu.memory_bandwidth": "2TB/s..4TB/s"}
    found = wt.design(wt.load("llama3-8b-8xh100"), fields, "time", trials=2, fixed_plan=True).designs[0]
    words = shlex.split(command_of_design(found))
    again = wt.predict(wt.load(words[2], words[4::2]))
    assert again.step_time_s == pytest.approx(found.plan.outcome.step_time_s, rel=1e-9)


def test_bars_of_a_comparison_are_as_long_as_the_steps(job: wt.Job) -> None:
    both = compare(wt.predict(job), wt.predict(wt.load("llama3-8b-8xh100", [*SMALL, "plan.recompute=full"])))
    picture = page(sheet_of(both)).split('aria-label="both steps, group by group"')[1].split("</svg>")[0]
    bars: dict[str, float] = {}
    for y, wide in re.findall(r'<rect x="[\d.]+" y="([\d.]+)" width="([\d.]+)"', picture):
        bars[y] = bars.get(y, 0.0) + float(wide)
    first, second = bars.values()
    assert second / first == pytest.approx(both.b.step_time_s / both.a.step_time_s, rel=0.01)


def test_each_algorithm_alone_is_what_the_variable_gives() -> None:
    sizes = [2.0**20, 2.0**26]
    alone = sweep_algorithms(load_cluster("h100-ib"), "all_reduce", 16, sizes)
    assert {"ring", "tree"} <= set(alone)
    for name, rows in alone.items():
        assert rows == [
            row
            for row in wt.collective("h100-ib", "all_reduce", 16, sizes, settings={"NCCL_ALGO": name})
            if row["algorithm"] == name
        ]
    assert sweep_algorithms(load_cluster("h100-ib"), "all_to_all", 16, sizes) == {}


@pytest.mark.parametrize("spec", ["permutation:seed=3,bytes=1MiB", "incast:bytes=1MiB", "ring:bytes=64KiB"])
def test_the_slowest_flow_has_links_from_its_source_to_its_destination(spec: str) -> None:
    found = wt.flows("fat_tree:k=4,link=400Gb/s", spec)
    slow = slowest_flow(found)
    assert slow is not None
    number, links = slow
    graph, own = found.graph, found.flows
    assert found.fct[number] == np.nanmax(found.fct)
    path = [(int(graph.link_from[link]), int(graph.link_to[link])) for link in links]
    assert path[0][0] == graph.endpoint[own.src[number]] and path[-1][1] == graph.endpoint[own.dst[number]]
    assert all(end == begin for (_, end), (begin, _) in zip(path, path[1:], strict=False))
    assert all(found.link_bytes[link] >= own.bytes[number] for link in links)


def test_flows_that_never_end_and_none_at_all_have_a_page() -> None:
    found = wt.flows("fat_tree:k=4,link=400Gb/s", "permutation:bytes=1MiB", progress=lambda share: True, network="flow")
    assert "flows.html" not in page(sheet_of(found, "a fabric"))
    nothing = replace(found, fct=np.full_like(found.fct, np.nan), link_bytes=np.zeros_like(found.link_bytes), finished=False)
    text = page(sheet_of(nothing, "a fabric"))
    assert "No link carries anything" in text and "stopped" in text and "The slowest flow" not in text


LOG = """# nThread 1 nGpus 1 minBytes 1048576 maxBytes 4194304 step: 4(factor) warmup iters: 5 iters: 20
# Using devices
{ranks}
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1   100.00   10.49   19.66      0   110.00    9.53   17.87      0
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    ranks = "\n".join(
        f"#  Rank {n:2d} Group  0 Pid {n + 100} on node{n // 8} device  {n % 8} [0x00] NVIDIA H100" for n in range(16)
    )
    (tmp_path / "nccl.log").write_text(LOG.format(ranks=ranks), encoding="utf-8")
    return tmp_path / "nccl.log"


CALL = ["collective", "-c", "h100-ib", "-b", "1M,4M"]


def test_measured_calls_stand_beside_the_predicted_ones(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "page.html"
    assert main([*CALL, "-n", "16", "--measured", str(log), "--html", str(page)]) == 0
    row = wt.collective("h100-ib", "all_reduce", 16, [2.0**20])[0]
    told = f"{float(str(row['time_us'])) / 100.0 - 1.0:+.1%}"
    assert f"# Measured, 1048576 B: 100.00 us, predicted {told}" in capsys.readouterr().out
    text = page.read_text(encoding="utf-8")
    assert f"{told[:-1]} %" in text and "measured, 1 MiB: 100 µs" in text


def test_measured_calls_of_something_else_are_refused(log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*CALL, "-n", "32", "--measured", str(log)]) == 2
    assert "It has all_reduce on 16 ranks" in capsys.readouterr().err
    job = tmp_path / "job.toml"
    job.write_text('base = "llama3-8b-8xh100"\n', encoding="utf-8")
    assert main([*CALL, "-n", "16", "--measured", str(job)]) == 2


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "--days", "30"], ["goodput", "llama3-8b-8xh100"], ["compare", "llama3-8b-8xh100", "llama3-8b-8xh100"],
        CALL, ["flows", "-f", "fat_tree:k=4,link=400Gb/s", "--flows", "ring:bytes=1"], ["design", "llama3-8b-8xh100"],
        ["whatif", "nothing", "--change", "fp8"], ["runs", "show", "nothing"],
    ],
    ids=lambda words: words[0],
)  # fmt: skip
def test_a_name_that_is_no_page_is_refused_before_any_work(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--html", "page.txt"]) == 2
    assert "a name that ends in .html" in capsys.readouterr().err
    assert not Path("page.txt").exists()


def test_write_html_writes_any_answer(job: wt.Job, run: wt.Run, tmp_path: Path) -> None:
    answers: dict[str, Any] = {
        "predict": wt.predict(job), "sensitivity": wt.sensitivity(job),
        "collective": wt.collective("h100-ib", "all_reduce", 16, "1M"),
        "flows": wt.flows("fat_tree:k=4,link=400Gb/s", "ring:bytes=1MiB"), "whatif": wt.whatif(run, ["no-host-gaps"]),
        "runs show": wt.runs.show(run), "compare": wt.compare(job, job), "run": wt.compare(run, job),
        "goodput": wt.goodput(wt.load("llama3-8b-8xh100", ["reliability=llama3-2024"]), days=10.0, replicas=0),
        "plan": wt.plan(budget=2e5, days=30.0, on=["h100-ib"], gpus=[64]),
        "search": wt.search(job, processes=1, limits=wt.SearchLimits(gap=0.1)),
        "serve": wt.serve_predict("llama3.1-8b", "h100-ib", tp=1, osl=16, concurrency=2, record=True),
    }  # fmt: skip
    for name, answer in answers.items():
        file = tmp_path / f"{name}.html"
        wt.write_html(answer, file, command=f"windtunnel {name}")
        assert f"windtunnel {name}</code>" in file.read_text(encoding="utf-8"), name
    with pytest.raises(SpecError, match="an answer of a verb that writes pages"):
        wt.write_html(42, tmp_path / "x.html")
    with pytest.raises(FileError):
        wt.write_html(answers["predict"], tmp_path / "x.txt")


def test_a_plan_of_very_many_rows_stays_small() -> None:
    planned = wt.plan(budget=2e5, days=30.0, on=["h100-ib"], gpus=[64])
    many = replace(planned, alternatives=planned.alternatives * 3000)
    text = page(sheet_of(many))
    assert len(text.encode()) < 1_000_000 and "rows more are not shown" in text


def test_an_empty_plan_has_a_page() -> None:
    planned = wt.plan(budget=2e5, days=30.0, on=["h100-ib"], gpus=[64])
    assert "none" in page(sheet_of(replace(planned, alternatives=())))


def test_drawings_of_nothing_and_of_one_value() -> None:
    log = Scale("x", "s", True)
    assert draw_block(Plot("nothing", log, log), "en") == "" == draw_block(Plot("no", log, log, (Mark(0.0, -1.0, "no"),)), "en")
    assert "1 s" in draw_block(Plot("one", Scale("x", "s"), Scale("y", "s", least=0.0), (Mark(1.0, 1.0, "one"),)), "en")
    empty = Stacks("none", "bar", (Layer("a", "#000000"),), (Stack("none", (0.0,)),), "s", (1.0, "s"))
    assert "nan" not in draw_block(empty, "en").lower()
    assert "nan" not in draw_block(Tornado("none", (Change("nothing", (0.0,), ("0",)),)), "en")


def test_what_could_not_be_read_stands_on_the_page(job: wt.Job, tmp_path: Path) -> None:
    wt.export(job, "kineto").save(tmp_path / "trace.json")
    text = (tmp_path / "trace.json").read_text(encoding="utf-8")
    (tmp_path / "cut.json").write_text(text[: len(text) // 2], encoding="utf-8")
    for words in (["runs", "show"], ["whatif", "--change", "no-host-gaps"]):
        assert main([*words, str(tmp_path / "cut.json"), "--html", str(tmp_path / "page.html")]) == 0
        told = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "A part could not be read" in told and "the text ends inside the events" in told
    assert main(["runs", "show", str(tmp_path / "trace.json"), "--html", str(tmp_path / "page.html")]) == 0
    assert "could not be read" not in (tmp_path / "page.html").read_text(encoding="utf-8")
