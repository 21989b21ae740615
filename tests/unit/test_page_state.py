"""What of a view is in its address, the words of both languages, and the figures of an answer, without a browser."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

import windtunnel.service.page as page
from windtunnel.service.page.charts.bars import draw_parts, draw_stripe
from windtunnel.service.page.figures import Piece, headline, memory_of, parts_of, write_csv
from windtunnel.service.page.forms import GROUPS, form_fields
from windtunnel.service.page.history import MOST_KEPT, read_rows
from windtunnel.service.page.language.words import LANGUAGES, language_of, words_of
from windtunnel.service.page.state import MOST_PACKED, Question, ViewState, pack_table, read_view, unpack_table

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
    """A key is said as it is, or made of a prefix (`f"frame.{state}"`) and a text that the service knows; names of
    parts are those of answers."""
    source = "\n".join(path.read_text() for path in FOLDER.rglob("*.py") if path.parent.name != "language")
    service = "\n".join(path.read_text() for path in FOLDER.parent.rglob("*.py") if path.parent.name != "language")
    prefixes = set(re.findall(r"""f["']([a-z_]+\.[a-z_.]*){""", source))

    def is_said(key: str) -> bool:
        made = any(key.startswith(prefix) and f'"{key[len(prefix) :]}"' in service for prefix in prefixes)
        return f'"{key}"' in source or made or key.endswith(".title") or key.startswith("parts.")

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
    stage = {"stage": 0, "total": 30.0, "capacity": 40.0, "fits": True, "weights": 10.0, "context": 20.0}
    return {"step_time_s": 2.0, "relative_error": 0.1, "mfu": 0.4, "tokens_per_s": 1000.0, "memory": [stage],
            "breakdown": {"matmul": 1.5, "bubble": 0.5, "host": 0.0}, **more}  # fmt: skip


def test_figures_carry_their_error() -> None:
    found = {figure.key: figure for figure in headline(answer(cost_per_step=3.0))}
    assert found["answer.step"].value == "2 s" and "±10 %" in found["answer.step"].error
    assert found["answer.mfu"].error == "±4.0"
    assert "answer.fits" in found and "answer.cost_per_step" in found


def test_parts_add_up_and_the_longest_is_first() -> None:
    parts = parts_of(answer())
    assert sum(part.share for part in parts) == pytest.approx(1.0)
    assert parts[0].share == 0.75 and len(parts) == 2
    assert sum(part.share for part in memory_of(answer()["memory"][0])) == pytest.approx(0.75)  # type: ignore[index]


@given(TEXT)
def test_bars_escape_every_text(text: str) -> None:
    for drawn in (draw_stripe([Piece(text, text, 0.5, "#000000")], text), draw_parts([Piece(text, text, 0.5, "#000000")])):
        assert "<script" not in drawn
        assert drawn.count("<") == len(re.findall(r"</?(?:div|i|table|tbody|tr|td)\b", drawn))


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
