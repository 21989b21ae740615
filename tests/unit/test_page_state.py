"""What of a view is in its address, the words of both languages, and the figures of an answer, without a browser."""

from __future__ import annotations

import asyncio
import csv
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel.service.page as page
from windtunnel.api.json import to_json
from windtunnel.api.prediction_sheet import prediction_sheet
from windtunnel.predict import predict
from windtunnel.service.page.context import LANGUAGES, language_of, words_of
from windtunnel.service.page.figures import head_sheet, headline, write_csv
from windtunnel.service.page.forms import GROUPS, form_fields
from windtunnel.service.page.history import MOST_KEPT, read_rows
from windtunnel.service.page.state import MOST_PACKED, Question, ViewState, pack_table, read_view, unpack_table
from windtunnel.sheet.blocks import Curves, Picture
from windtunnel.spec import load_job

FOLDER = Path(page.__file__).parent
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
NAME = st.from_regex(r"[a-z][a-z_.]{0,20}", fullmatch=True)


@given(
    st.one_of(st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True), st.dictionaries(NAME, st.integers(), min_size=1)),
    st.dictionaries(NAME, TEXT),
    st.dictionaries(NAME, TEXT),
    st.dictionaries(st.from_regex(r"x[a-z]{1,6}", fullmatch=True), TEXT),
)
def test_an_address_reproduces_its_view(job: object, changes: dict[str, str], files: dict[str, str], more: dict[str, str]) -> None:
    view = ViewState(Question(job, changes, "predict", "h100-ib", files), more)  # type: ignore[arg-type]
    assert read_view(parse_qsl(view.query(), keep_blank_values=True)) == view


@given(st.lists(st.tuples(TEXT, TEXT), max_size=6))
def test_any_address_is_read(pairs: list[tuple[str, str]]) -> None:
    read_view([*pairs, ("packed", "".join(value for _, value in pairs))])


def test_a_packed_table_is_bounded() -> None:
    assert unpack_table(pack_table({"a": "b" * (1 << 19)})) is not None
    assert unpack_table(pack_table({"a": "b" * (1 << 21)})) is None
    assert pack_table({"a": "".join(str(number * 7919 % 10007) for number in range(9000))}) == ""
    assert unpack_table("x" * (MOST_PACKED + 1)) is None


def test_languages_have_the_same_keys_and_facts() -> None:
    english, others = words_of("en"), {code: words_of(code) for code in LANGUAGES}
    for code, words in others.items():
        assert set(words) == set(english), code
        for key, sentence in words.items():
            assert set(re.findall(r"{(\w+)}", sentence)) == set(re.findall(r"{(\w+)}", english[key])), (code, key)


def test_every_sentence_is_said_and_every_key_is_known() -> None:
    """A key is said as it is, or made of a prefix (`f"frame.{state}"`) and a text that the service knows."""
    source = "\n".join(path.read_text() for path in FOLDER.rglob("*.py"))
    service = "\n".join(path.read_text() for path in FOLDER.parent.rglob("*.py"))
    prefixes = set(re.findall(r"""f["']([a-z_]+\.[a-z_.]*){""", source))

    def is_said(key: str) -> bool:
        made = any(key.startswith(prefix) and f'"{key[len(prefix) :]}"' in service for prefix in prefixes)
        return f'"{key}"' in source or made or key.endswith(".title")

    assert [key for key in words_of("en") if not is_said(key)] == []
    said = set(re.findall(r'\bsay\("([a-z_.]+)"', source))
    assert said <= set(words_of("en")), said - set(words_of("en"))


def test_the_language_is_the_readers() -> None:
    assert language_of("zh").code == "zh"
    assert language_of(None, "fr-CH, zh;q=0.9, en;q=0.8").code == "zh"
    assert language_of("xx", "fr").code == "en"


def test_every_field_of_the_form_is_one_of_the_schema() -> None:
    fields = form_fields()
    assert [path for group in GROUPS.values() for path in group if path not in fields] == []
    assert fields["plan.tp"].kind == "integer" and fields["plan.tp"].least == 1
    assert "fsdp" in fields["plan.sharding"].choices
    assert fields["plan.tp"].text_of(4.0) == "4" and fields["plan.sequence_parallel"].text_of(True) == "true"
    assert fields["plan.dp"].text_of(None) is None


def answer(**more: object) -> dict[str, object]:
    job = load_job("llama3-8b-8xh100")
    return {**to_json(predict(job)), "relative_error": 0.1, "step_time_s": 2.0, "mfu": 0.4, **more}


def test_figures_carry_their_error() -> None:
    found = {figure.key: figure for figure in headline(answer(cost=None, cost_per_step=3.0))}
    assert found["step_time_s"].with_error() == "2 s ±10 %" and found["mfu"].within == "40.0 ±4.0 %"
    assert found["memory"].mood == "good" and found["cost_per_step"].with_error() == "$3 ±10 %"


def test_what_a_form_shows_is_what_the_whole_answer_shows() -> None:
    """Parts of the step and of memory from JSON alone are those of the sheet that the prediction has."""
    prediction = predict(load_job("llama2-70b-64xh100"))
    short, whole = head_sheet(json.loads(json.dumps(to_json(prediction)))), prediction_sheet(prediction)
    shown = {block for section in whole.sections for block in section.blocks if not isinstance(block, Curves | Picture)}
    assert {block for section in short.sections for block in section.blocks} <= shown


def test_a_table_never_becomes_a_formula() -> None:
    rows = list(csv.reader(write_csv([{"a": "=1+1", "b": -2.5}, {"a": "@x", "c": "y"}]).splitlines()))
    assert rows == [["a", "b", "c"], ["'=1+1", "-2.5", ""], ["'@x", "", "y"]]


def test_only_addresses_of_ours_come_out_of_a_browser() -> None:
    good = {"key": "a" * 64, "command": "windtunnel predict x", "step": "1 s", "address": "/ui/answer?job=x&set=plan.tp=2"}
    bad: list[object] = [None, 3, {}, {**good, "key": "x"}, {**good, "step": 3}]
    elsewhere = ("javascript:alert(1)", "//elsewhere/ui/answer", "/ui/answer/../../x", "/ui/answer?<")
    bad += [{**good, "address": one} for one in elsewhere]
    assert read_rows([*bad, good]) == [good]
    assert read_rows("text") == [] and len(read_rows([good] * 99)) == MOST_KEPT


class Rounds:
    """Stands for what asks: a round with less than `enough` seconds finds no plan."""

    def __init__(self, enough: float) -> None:
        self.enough, self.error, self.shown = enough, dict[str, str](), list[str]()

    async def run(self, wanted: Callable[[], float | None], ignores: Callable[[Mapping[str, str]], bool] | None) -> None:
        limit = wanted()
        self.error = {"field": "--limit" if limit is not None and limit < self.enough else "plan.tp"}
        if ignores is None or not ignores(self.error):
            self.shown.append(self.error["field"])


@pytest.mark.parametrize(
    ("enough", "longest", "shown"), [(5.0, None, "plan.tp"), (100.0, None, "plan.tp"), (100.0, 30.0, "--limit")]
)
def test_a_short_round_without_a_plan_does_not_end_a_search(enough: float, longest: float | None, shown: str) -> None:
    """Its limit is the page's own; that which the reader typed is told."""
    pytest.importorskip("nicegui")
    from windtunnel.service.page.sections.choose import ask_in_rounds

    found: Any = Rounds(enough)
    asyncio.run(ask_in_rounds(found, lambda most: most, longest))  # type: ignore[arg-type, return-value]
    assert found.shown == [shown]
