"""Hooks of `make docs`: pages that lie outside of docs/ join the site, and links lead to where a file lies in the site.

The documents are written to be read in the repository: links are relative to the file that they stand in, and some pages lie at
the root. A linked file that is no page is copied into `files/` of the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent
OUTSIDE = {
    "README.md": "index.md",
    "README.zh-CN.md": "index.zh-CN.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "CODE_OF_CONDUCT.md": "conduct.md",
    "SECURITY.md": "security.md",
    "examples/README.md": "examples.md",
}
"""Pages outside of docs/: path in the repository to path in the site."""

LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")


def source_of(uri: str) -> str:
    """Path in the repository of a page of the site."""
    return next((source for source, page in OUTSIDE.items() if page == uri), f"docs/{uri}")


def uri_of(source: str) -> str:
    """Path in the site of a file of the repository."""
    return OUTSIDE.get(source) or (source[len("docs/") :] if source.startswith("docs/") else f"files/{source}")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Lists every decision in the navigation."""
    section = next(entry["Decisions"] for entry in config.nav or [] if "Decisions" in entry)
    section += [f"decisions/{path.name}" for path in sorted((ROOT / "docs" / "decisions").glob("0*.md"))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages of `OUTSIDE` and all files that pages link to."""
    for source, uri in OUTSIDE.items():
        files.append(File.generated(config, uri, content=(ROOT / source).read_text(encoding="utf-8")))
    for page in list(files.documentation_pages()):
        source = source_of(page.src_uri)
        for target in LINK.findall((ROOT / source).read_text(encoding="utf-8")):
            linked = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
            uri = uri_of(linked)
            if files.get_file_from_path(uri) is None and (ROOT / linked).is_file():
                files.append(File.generated(config, uri, content=(ROOT / linked).read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrites the links of a page from paths of the repository to paths of the site."""
    source, uri = source_of(page.file.src_uri), page.file.src_uri

    def moved(match: re.Match[str]) -> str:
        linked = posixpath.normpath(posixpath.join(posixpath.dirname(source), match.group(1)))
        return posixpath.relpath(uri_of(linked), posixpath.dirname(uri) or ".")

    return LINK.sub(moved, markdown)
