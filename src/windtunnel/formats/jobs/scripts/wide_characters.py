"""Characters that the grammar's scanner cannot take, as letters that it can.

tree-sitter-bash asks the C library's `isalnum` and `isdigit` about any character behind a `{`. Both read a table of 256 entries:
a character beyond it (`{中`) reads other memory, and some end the process. Such characters are parsed as letters, and come back
where the text of a node is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_MARK = "\u00ff"
"""Stands before and behind the letters; itself one of the characters that are replaced, so that nothing is taken for them."""
_WIDE = re.compile(f"[{_MARK}-\U0010ffff]+")
_PRODUCT = re.compile(r"\]\*\$([A-Za-z_]\w*)")
_LETTERS = re.compile(f"{_MARK}([0-9a-f]+){_MARK}".encode())


def narrow(text: str) -> bytes:
    """UTF-8 without characters from U+00FF on: runs of them are hexadecimal digits between two marks. `]*$N`, in which the grammar
    takes `$` for a word, is `]*${N}`."""
    return _WIDE.sub(_as_letters, _PRODUCT.sub(r"]*${\1}", text)).encode("utf-8", "replace")


def widen(source: bytes) -> str:
    """The text that `narrow` made the bytes from; a part of a run stays as it is."""
    return _LETTERS.sub(lambda run: bytes.fromhex(run[1].decode()), source).decode("utf-8", "replace")


def node_text(node: Node) -> str:
    """A node's text as it stands in the script."""
    return widen(node.text or b"")


def _as_letters(run: re.Match[str]) -> str:
    return f"{_MARK}{run[0].encode('utf-8', 'replace').hex()}{_MARK}"
