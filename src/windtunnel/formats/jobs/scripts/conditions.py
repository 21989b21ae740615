"""Conditions of a shell script, as far as its text tells: tests, comparisons, `&&`, `||` and patterns."""

from __future__ import annotations

import fnmatch
from typing import TYPE_CHECKING

from windtunnel.formats.jobs.scripts.values import NUMBER, SUMS, Values, reference_of
from windtunnel.formats.jobs.scripts.wide_characters import node_text

if TYPE_CHECKING:
    from tree_sitter import Node

_COMPARED = {"-eq": "==", "-ne": "!=", "-lt": "<", "-gt": ">", "-le": "<=", "-ge": ">="}


def holds(node: Node, values: Values) -> bool:
    """Whether a condition holds, as far as the text tells; false where it does not."""
    children = node.named_children
    arithmetic = node.type == "compound_statement" and len(children) == 1 and node.children[0].type == "(("
    if (arithmetic or node.type in ("test_command", "parenthesized_expression", "redirected_statement")) and children:
        return holds(children[0], values)
    if node.type == "negated_command" and children:
        return not holds(children[0], values)
    if node.type in ("list", "binary_expression") and any(child.type in ("&&", "||") for child in node.children):
        first, second = children[0], children[-1]
        both = any(child.type == "&&" for child in node.children)
        return holds(first, values) and holds(second, values) if both else holds(first, values) or holds(second, values)
    if node.type == "unary_expression":
        return _unary(node, values)
    if node.type == "binary_expression":
        return _compare(node, values)
    return node_text(node) == "true" if node.type == "command" else False


def _unary(node: Node, values: Values) -> bool:
    sign = node_text(node.children[0])
    if sign == "!":
        return not holds(node.children[-1], values)
    text = values.condition_text(node.children[-1])
    return bool(text) if sign == "-n" else not text if sign == "-z" else False


def _compare(node: Node, values: Values) -> bool:
    left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
    signs = [node_text(child) for child in node.children if child is not None and child != left and child != right]
    sign = signs[0] if signs else ""
    if left is None or right is None:
        return False
    a, b = values.condition_text(left), values.condition_text(right)
    whole = sign not in ("=", "==", "!=")
    values.note(left, None if whole else b)
    if b == "" or reference_of(right) is not None:
        values.note(right, None if whole else a)
    if sign in ("=", "=="):
        return fits(a, b)
    if sign == "!=":
        return not fits(a, b)
    if sign in _COMPARED or sign in ("<", ">", "<=", ">="):
        one, other = (int(t) if NUMBER.fullmatch(t.strip() or "x") else values.number(n) for t, n in ((a, left), (b, right)))
        return one is not None and other is not None and bool(SUMS[_COMPARED.get(sign, sign)](one, other))
    return False


def fits(text: str, pattern: str) -> bool:
    """Whether a text fits a shell pattern, which may list several with `|`."""
    return len(pattern) < 200 and len(text) < 10_000 and any(fnmatch.fnmatchcase(text, one.strip()) for one in pattern.split("|"))
