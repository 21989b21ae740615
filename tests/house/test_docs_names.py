"""Files, folders, names and figures that the documents mention are there."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

import pytest
from docs_commands import FENCE, ROOT, documents

from windtunnel.formats.jobs.huggingface.config import FAMILIES

PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)*(?:\.(?:py|h|cpp|md)|/))`")
LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
ELSEWHERE = {
    ".venv/",
    "out/",
    "build/",
    "out/site/",
    "DATA_CARD.md",
    "tests/unit/test_report_x.py",
    "changelog.d/NAME.KIND.md",
    "c10/cuda/CUDACachingAllocator.cpp",
}
"""Made by a command, an example of a name, or a file of PyTorch."""
HISTORY = ("CHANGELOG.md", "docs/history/", "docs/decisions/", "CHANGES-")
"""Pages that tell how things were."""
ACCURACY = re.compile(r"^\|.*\| *(\d+) \| ([\d.]+) % \| ([\d.]+) % \| ([-+][\d.]+) % \|", re.MULTILINE)


def label(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


DOCUMENTS = documents()
CURRENT = [page for page in DOCUMENTS if not label(page).startswith(HISTORY)]


@cache
def files() -> tuple[str, ...]:
    """All source paths, and their folders with a slash at the end."""
    tops = ("src", "oracles", "cpp", "tests", "docs", "examples", "benchmarks", "release", "changelog.d")
    paths = [path for top in tops for path in (ROOT / top).rglob("*") if "__pycache__" not in path.parts]
    names = [f"{path.relative_to(ROOT).as_posix()}{'/' if path.is_dir() else ''}" for path in paths]
    return (*(f"/{name}" for name in (*names, *(f"{top}/" for top in tops))), *(f"/{page.name}" for page in ROOT.glob("*.*")))


def exists(mention: str) -> bool:
    """Whether some file ends in these path components; pages may leave out `src/windtunnel/` or the page's own room."""
    return mention in ELSEWHERE or any(name.endswith(f"/{mention}") for name in files())


@pytest.mark.parametrize("page", CURRENT, ids=label)
def test_paths_in_backticks_exist(page: Path) -> None:
    assert [path for path in PATH.findall(FENCE.sub("", page.read_text(encoding="utf-8"))) if not exists(path)] == []


def test_a_wrong_path_is_seen() -> None:
    assert exists("network/closed/cost.py") and exists("cost.py") and exists("closed/")
    assert not exists("network/closed/price.py") and not exists("ost.py") and not exists("network/tiers/")


@pytest.mark.parametrize("page", CURRENT, ids=label)
def test_dotted_names_of_the_package_exist(page: Path) -> None:
    text = re.sub(r'entry-points\."windtunnel\.\w+"', "", page.read_text(encoding="utf-8"))  # a group of entry points is no module
    for name in re.findall(r"\bwindtunnel(?:\.[A-Za-z_]\w*)+\b(?!/)", text):
        assert is_there(name), name


def is_there(name: str) -> bool:
    """Whether a dotted name is there; a module that needs torch is not imported where torch is not."""
    try:
        return resolve_name(name) is not None
    except AttributeError:
        return find_spec(name) is not None


def anchors(page: Path) -> set[str]:
    """Ids of the headings of a page, as mkdocs makes them."""
    heads = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


def test_local_links_and_their_anchors_resolve() -> None:
    for page in DOCUMENTS:
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
            if "://" in target or target.startswith("mailto:"):
                continue
            file, _, anchor = target.partition("#")
            linked = page.parent / file if file else page
            assert linked.exists(), f"{page}: {target}"
            assert not anchor or anchor in anchors(linked), f"{page}: {target}"


@pytest.mark.parametrize("page", ["names.md", "glossary.md"])
def test_names_of_the_tables_are_defined_where_the_page_says(page: str) -> None:
    """Of a table's row, each CamelCase or UPPER name is defined in one of the files of the row."""
    for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines():
        row = re.findall(r"`([\w./]+)`", line)
        places = [ROOT / "src" / "windtunnel" / place for place in row if re.search(r"/\w", place) and not (ROOT / place).exists()]
        if not line.startswith("|") or not places:
            continue
        assert all(place.exists() for place in places), line
        paths = [path for place in places for path in ([place] if place.is_file() else sorted(place.glob("**/*.py")))]
        text = "".join(path.read_text(encoding="utf-8") for path in paths)
        for name in (word for word in row if re.fullmatch(r"[A-Z]\w+", word) and "/" not in word):
            assert re.search(rf"^(class {name}\b|{name}\b.*=)", text, re.MULTILINE), f"{name}: {line}"


def test_the_reading_order_counts_lines() -> None:
    text = (ROOT / "docs" / "reading-order.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \d+ \| \[`[^`]+`\]\(([^)]+)\) \| (\d+) \|", text, re.MULTILINE)
    counted = [len((ROOT / "docs" / path).read_text(encoding="utf-8").splitlines()) for path, _ in rows]
    assert 12 <= len(rows) <= 15
    said = re.search(r"([\d,]+) lines", text)
    assert said and int(said.group(1).replace(",", "")) == pytest.approx(sum(counted), rel=0.1)
    assert [int(lines) for _, lines in rows] == pytest.approx(counted, rel=0.25, abs=10)


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_accuracy_of_the_readme_is_that_of_the_accuracy_page(page: str) -> None:
    shown = ACCURACY.findall((ROOT / page).read_text(encoding="utf-8"))
    page_text = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    scored = re.findall(r"\| (\d+)(?: of \d+)? \| ([\d.]+) % \| ([\d.]+) % \| ([-+][\d.]+) % \|", page_text)
    assert len(shown) >= 8
    assert [row for row in shown if row not in scored] == []


def test_every_model_type_that_is_read_is_listed() -> None:
    text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    assert [kind for kind in FAMILIES if f"`{kind}`" not in text] == []


def test_the_readme_is_short() -> None:
    assert all(len((ROOT / page).read_text(encoding="utf-8").splitlines()) <= 150 for page in ("README.md", "README.zh-CN.md"))
