"""Publications are data: every fact has a source, and the code that reads rows names none of them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import windtunnel
from windtunnel.base.errors import FileError
from windtunnel.reality.rows import measurements
from windtunnel.reality.rows.publications import FOLDER, FOUND_OUT, Test, When, publications, read_publication
from windtunnel.reality.rows.table import read

REALITY = Path(windtunnel.__file__).parent / "reality"
ROWS = [row for path in measurements.tables() for row in (*read(path).training, *read(path).collective)]
ARXIV = re.compile(r"(?<!\d)2[0-9]\d\d\.\d{5}(?!\d)")
ROW_ID = re.compile(r"\b[TVC]0\d{3}\d?\b")


def _texts(path: Path) -> list[str]:
    """Strings of a module that are code: no docstrings of modules, classes and functions."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    prose = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            prose.add(id(node.value))
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
    ]


@pytest.mark.parametrize("path", sorted(REALITY.glob("*.py")), ids=lambda path: path.stem)
def test_code_that_reads_rows_names_no_publication(path: Path) -> None:
    families = {row.family for row in ROWS}
    sources = {word for row in ROWS for word in re.findall(r"[\w.-]+\.(?:md|csv|png|tex|slurm)\b", row.source or "")}
    for text in _texts(path):
        named = [family for family in families if family in text]
        assert not named, (path.name, named)
        assert not [name for name in sources if name in text], (path.name, text)
        assert not ARXIV.search(text) and not ROW_ID.search(text), (path.name, text)


def test_this_test_would_find_a_name(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(
        '"""A100-vTrain may stand in a docstring."""\nX = ("A100-vTrain", "2402.15627", "T0780")\n', encoding="utf-8"
    )
    texts = _texts(tmp_path / "x.py")
    assert texts == ["A100-vTrain", "2402.15627", "T0780"] and ARXIV.search(texts[1]) and ROW_ID.search(texts[2])


@pytest.mark.parametrize("name", publications())
def test_every_fact_has_a_source_and_says_something(name: str) -> None:
    publication = publications()[name]
    assert len(publication.source) > 5 and publication.title
    for fact in publication.facts:
        assert len(fact.source) > 5
        says = (fact.row, fact.corrects, fact.model, fact.window_of_seq, fact.software, fact.runtime, fact.lora, fact.flops)
        assert any(says) or any(value is not None for _, value in fact.habits), (name, fact.source)


def test_misses_are_of_families_that_there_are() -> None:
    families = {row.family for row in ROWS}
    assert {miss.family for publication in publications().values() for miss in publication.misses} <= families


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('title = "x"', "source"),
        ('title = "x"\nsource = "somewhere"\n[[facts]]\nrow = { heads = 1 }\n', "source"),
        (
            'title = "x"\nsource = "somewhere"\n[[facts]]\nwhen = { colour = "red" }\nsource = "somewhere"\n',
            "unknown condition colour",
        ),
        ('title = "x"\nsource = "somewhere"\n[[facts]]\nrow = { colour = 1 }\nsource = "somewhere"\n', "unknown column colour"),
        ('title = "x"\nsource = "somewhere"\n[[facts]]\nruntimes = {}\nsource = "somewhere"\n', "runtimes"),
        ("title = ", "readable TOML"),
    ],
)
def test_bad_files_are_named(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(FileError, match=said):
        read_publication(path)


def test_conditions() -> None:
    assert Test(has="LoRA").holds("x (lora)") and not Test(has="lora").holds(None)
    assert Test(has_not="eager").holds(None) and not Test(has_not="eager").holds("Eager")
    assert Test(min="25.07", below="26.02").holds("25.11") and not Test(min="25.07").holds(None)
    assert Test(known=True).holds(3.0) and not Test(known=True).holds(0) and Test(known=False).holds(None)
    assert Test(none_of=("a",)).holds(None) and not Test(any_of=("a",)).holds(None)
    assert Test(lacks=("a", "b")).holds("a;c") and not Test(lacks=("a", "b")).holds("b;a")
    when = When(conditions={"date": Test(below="2022-01"), "framework": "megatron"})
    assert when.holds({"date": "2021-12", "framework": "megatron"}) and not when.holds({"framework": "megatron"})
    assert set(FOUND_OUT) and FOLDER.is_dir()
