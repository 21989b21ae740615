"""Expansions of bash that change a value: `${x#*=}`, `${x##*/}`, `${x%.*}`, `${x%%.*}`, `${x:2:3}` and the word of `${x:+word}`."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

CUTS = ("#", "##", "%", "%%")
INSTEAD = (":+", "+")
_LONGEST = 4096
_MOST_TERMS = 99


def heredoc_of(node: Node) -> Node | None:
    """The body of the here-document that a statement is given (`<<EOF`); None without one."""
    for child in node.named_children:
        if child.type == "heredoc_redirect":
            return next((part for part in child.named_children if part.type == "heredoc_body"), None)
    return None


def written_file(node: Node) -> Node | None:
    """The name of the file that a statement writes its here-document to: `cat > FILE <<EOF`, `tee FILE <<EOF`; None for others."""
    command = next((child for child in node.named_children if child.type == "command"), None)
    if command is None or (command.text or b"").split()[0] not in (b"cat", b"tee", b"sudo"):
        return None
    inside = [part for child in node.named_children if child.type == "heredoc_redirect" for part in child.named_children]
    redirects = [one for one in (*node.named_children, *inside) if one.type == "file_redirect"]
    named = redirects[-1] if redirects and (command.text or b"").startswith(b"cat") else command
    return named.named_children[-1] if named is not command or len(command.named_children) > 1 else None


def arithmetic_of(node: Node) -> Node | None:
    """The arithmetic of `$((…))` that the grammar takes for a command, as it does inside `${NAME:=…}`; None for a command."""
    text = node.text or b""
    if not (text.startswith(b"$((") and text.endswith(b"))")):
        return None
    import tree_sitter
    import tree_sitter_bash

    inner = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language())).parse(b"X=" + text).root_node
    found = inner.named_children[0].child_by_field_name("value") if inner.named_children and not inner.has_error else None
    return found if found is not None and found.type == "arithmetic_expansion" else None


def printed_file(node: Node) -> Node | None:
    """The name of the file that `echo WORDS > FILE` writes; None for other statements, and for what goes to a descriptor."""
    command, *others = node.named_children
    redirects = [one for one in others if one.type == "file_redirect" and (one.text or b"").startswith(b">")]
    if command.type != "command" or not (command.text or b"").startswith(b"echo ") or not redirects:
        return None
    return redirects[-1].named_children[-1]


def expr(words: Sequence[str]) -> str | None:
    """What `expr A op B op C` prints for whole numbers, products before sums; None for other words."""
    if len(words) % 2 == 0 or len(words) > _MOST_TERMS or not all(re.fullmatch(r"-?\d{1,15}", word) for word in words[::2]):
        return None
    terms, signs = [int(words[0])], list[str]()
    for sign, word in zip(words[1::2], words[2::2], strict=True):
        number = int(word)
        if sign in ("*", "/", "%") and (sign == "*" or number):
            product = terms[-1] * number if sign == "*" else abs(terms[-1]) // abs(number) if sign == "/" else terms[-1] % number
            terms[-1] = -product if sign == "/" and terms[-1] * number < 0 else product
        elif sign in ("+", "-"):
            terms.append(number)
            signs.append(sign)
        else:
            return None
    total = terms[0] + sum(term if sign == "+" else -term for term, sign in zip(terms[1:], signs, strict=True))
    return str(total) if abs(total) < 10**15 else None


_DIRECTIVE = re.compile(r"%[-+ 0#]*\d*(?:\.\d+)?[sdifguq]")


def print_format(pattern: str, words: Sequence[str]) -> str:
    """What `printf` makes of a pattern with `%s`, `%d`, `%.2f` and the like, again while words are left; the pattern as it is where
    it asks for more than there is, or for a number and gets none."""
    count, left, printed = len(_DIRECTIVE.findall(pattern)), list(words), [""]
    if count == 0 or len(words) % count or not words:
        return pattern

    def fill(found: re.Match[str]) -> str:
        word, kind = left.pop(0), found[0][-1]
        return (
            word if kind in "sq" else found[0].replace("i", "d").replace("u", "d") % (int(word) if kind in "diu" else float(word))
        )

    try:
        while left:
            printed.append(_DIRECTIVE.sub(fill, pattern))
    except ValueError:
        return pattern
    return "".join(printed)


def operator_of(node: Node) -> tuple[str, Node | None]:
    """(sign, what stands behind it) of an expansion that changes the value of its variable; ("", None) of others."""
    if node.type == "string" and len(node.named_children) == 1:
        return operator_of(node.named_children[0])
    named, sign = False, ""
    for child in node.children:
        if child.type in ("variable_name", "subscript", "special_variable_name") and not sign:
            named = True
        elif named and not sign and child.type in (*CUTS, *INSTEAD):
            sign = child.type
        elif sign and child.is_named:
            return sign, child
    return sign, None


def slice_of(node: Node) -> list[Node]:
    """(begin, length) of `${x:begin:length}`, the begin alone without a length; empty for other expansions."""
    if node.type == "string" and len(node.named_children) == 1:
        return slice_of(node.named_children[0])
    kinds = [child.type for child in node.children]
    if ":" not in kinds or node.type != "expansion":
        return []
    return [child for child in node.children[kinds.index(":") + 1 :] if child.is_named][:2]


def is_map(listed: Sequence[str]) -> bool:
    """Whether the words of a variable are those of a map: `declare -A NAME=([KEY]=VALUE …)`."""
    return bool(listed) and all(re.match(r"\[[^\]]*\]=", word) for word in listed)


def cut(value: str, sign: str, pattern: str) -> str:
    """A value without what fits the pattern: from its front (`#`) or its end (`%`), the least or, with the sign doubled, the most.

    Values and patterns longer than 4,096 and 200 characters stay as they are.
    """
    if len(value) > _LONGEST or len(pattern) > 200:
        return value
    lengths = range(len(value) + 1) if len(sign) == 1 else range(len(value), -1, -1)
    for length in lengths:
        part = value[:length] if sign[0] == "#" else value[len(value) - length :]
        if fnmatch.fnmatchcase(part, pattern):
            return value[length:] if sign[0] == "#" else value[: len(value) - length]
    return value
