"""Values of a shell script: variables, arrays, expansions, arithmetic and conditions, from the nodes of its syntax tree."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.jobs.scripts.expansion import (
    INSTEAD,
    arithmetic_of,
    cut,
    expr,
    heredoc_of,
    is_map,
    operator_of,
    print_format,
    slice_of,
)
from windtunnel.formats.jobs.scripts.wide_characters import node_text, widen

if TYPE_CHECKING:
    from tree_sitter import Node

LARGEST_FILLED = 2**20
"""Characters of all values together that are put in place of variables: ten variables of ten of the one before are 10^10."""

_Whole = TypeVar("_Whole", str, list[str])
_DEEPEST = 60
_LARGEST_NUMBER = 10**15
NUMBER = re.compile(r"-?\d{1,18}")
SUMS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.floordiv, "%": operator.mod,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_OPEN = re.compile(r"\$(?:(\d)(?!\d)|\{(\d{1,3})\})")
_ALTERNATIVE = re.compile(r"\|\|\s*echo\s+[\"']?([^\s\"'$|&;]*)[\"']?\s*$")
_BLANKS = re.compile(r"(?:\s|\\\n)*", re.ASCII)


@dataclass(frozen=True)
class Compared:
    """A question of a condition: is the parameter at a position, or the variable of a name, this `option`? None asks for a number.

    `value` is what it is; None for a parameter that was not given.
    """

    subject: int | str
    value: str | None
    option: str | None


@dataclass
class Values:
    """The variables of a script. A variable is a list of words; a plain one has one word."""

    where: str
    positional: list[str] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)
    filled: int = 0
    depth: int = 0

    def __post_init__(self) -> None:
        self._lists: dict[str, list[str]] = {name: [value] for name, value in self.environment.items()}
        self.shifted = 0
        self.in_function = False
        self.copies: dict[int, str] = {}  # position: the variable that it goes to
        self.overruled: dict[str, None] = {}  # of the environment
        self.compared: list[Compared] = []
        self.assigned: dict[str, None] = {}  # in order
        self.used: set[str] = set()

    def of(self, name: str) -> list[str]:
        """The words of a variable; none where it is not set."""
        return self._lists.get(name, [])

    def set(self, name: str, listed: list[str]) -> None:
        """Sets a variable."""
        self._lists[name] = listed
        self.assigned.setdefault(name)

    def assign(self, node: Node) -> None:
        """An assignment `NAME=VALUE`, `NAME+=VALUE` or `NAME=(…)`."""
        name_node, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name_node is not None and name_node.type == "subscript" and value is not None:
            self._assign_element(name_node, self.text(value, keep=True))
        if name_node is None or name_node.type != "variable_name":
            return
        name = node_text(name_node)
        reference = reference_of(value) if value is not None else None
        if reference is not None and reference[0].isdecimal() and not self.in_function:
            self.copies.setdefault(int(reference[0][:3]) + self.shifted, name)
        elif name in self.environment and (value is None or not re.search(rf"\b{name}\b", node_text(value))):
            self.overruled.setdefault(name)
        if value is None:
            listed: list[str] = []
        elif value.type == "array":
            listed = [word for child in value.named_children for word in self.words(child)]
        else:
            listed = [self.text(value, keep=True)]
        if any(child.type == "+=" for child in node.children):
            before = self.of(name)
            joined = value is not None and value.type != "array"
            listed = ["".join((*before[:1], *listed)), *before[1:]] if joined else before + listed
        self.set(name, listed)

    def _assign_element(self, subscript: Node, value: str) -> None:
        """An assignment `NAME[INDEX]=VALUE`: of a list up to its next element, else of a map, whose words are "[KEY]=VALUE"."""
        name, index = (subscript.child_by_field_name(part) for part in ("name", "index"))
        if name is None or index is None:
            return
        listed, key = list(self.of(node_text(name))), self.text(index)
        if key.isdecimal() and int(key) <= len(listed) and not is_map(listed):
            listed[int(key) : int(key) + 1] = [value]
        else:
            listed = [word for word in listed if not word.startswith(f"[{key}]=")] + [f"[{key}]={value}"]
        self.set(node_text(name), listed)

    def _element(self, node: Node) -> str | None:
        """What `${NAME[INDEX]}` is, and how much `${#NAME[@]}` counts; None where it is not set, and for other expansions."""
        node = node.named_children[0] if node.type == "string" and len(node.named_children) == 1 else node
        subscript = next((child for child in node.named_children if child.type == "subscript"), None)
        name, index = (subscript.child_by_field_name(part) for part in ("name", "index")) if subscript else (None, None)
        if name is None or index is None:
            return None
        listed, key = self.of(node_text(name)), self.text(index)
        self._use(node_text(name))
        if node_text(index) in ("@", "*"):
            return (
                str(len(listed)) if node_text(name) in self._lists and any(child.type == "#" for child in node.children) else None
            )
        if is_map(listed):
            return next((word.partition("]=")[2] for word in listed if word.startswith(f"[{key}]=")), None)
        place = int(key) if NUMBER.fullmatch(key) else self.number(index)
        return listed[place] if place is not None and -len(listed) <= place < len(listed) else None

    def words(self, node: Node) -> list[str]:
        """The words that a node stands for: an array's elements, the pieces of an unquoted variable, else one word."""
        if node.type == "comment":
            return []
        if node.type == "command_name" and len(node.named_children) == 1:
            return self.words(node.named_children[0])
        reference = reference_of(node)
        if reference is not None and reference[1] and (reference[1] not in "@*" or self._element(node) is not None):
            text = self.text(node, keep=True)
            return [text] if node.type == "string" else text.split()
        if reference is not None and not operator_of(node)[0]:
            name, index = reference
            if index in ("@", "*") and name not in self._lists and not self._default(node):
                return []  # an array is not inherited: one that is not set has no words
            if name in ("@", "*"):
                return self._part(node, ["", *self.positional])[0 if slice_of(node) else 1 :]
            if name not in self._lists and not (node.type == "string" and not self._default(node)):
                return [word for word in self.text(node, keep=True).split() if word]
            self._use(name)
            listed = self.of(name)
            listed = self._part(node, listed) if index in ("@", "*") else [self._part(node, word) for word in listed]
            if index in ("@", "*") or node.type != "string":
                self._count(sum(map(len, listed)))
                return [piece for word in listed for piece in ([word] if index else word.split())]
        text = self.text(node, keep=True)
        if node.type in ("expansion", "simple_expansion"):
            return text.split()
        return [text] if text else []

    def text(self, node: Node, keep: bool = False) -> str:
        """The text that a node stands for. What the script does not set is empty, or stays as written with `keep`."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise FileError(self.where, f"values nested deeper than {_DEEPEST}", "a launch script")
        try:
            return self._text(node, keep)
        finally:
            self.depth -= 1

    def _text(self, node: Node, keep: bool) -> str:
        match node.type:
            case "raw_string":
                return node_text(node)[1:-1]
            case "string":
                return _unescape(
                    self._join_children(node, keep).strip('"') if not node.named_children else self._join_children(node, keep)
                )
            case "simple_expansion" | "expansion":
                return self._expansion(node, keep)
            case "arithmetic_expansion":
                value = self.number(node)
                return node_text(node) if value is None else str(value)
            case "concatenation" | "command_name":
                return self._join_children(node, keep)
            case "string_content":
                return node_text(node)
            case "command_substitution" if (sum_of := arithmetic_of(node)) is not None:
                return self._text(sum_of, keep)
            case "command_substitution":
                said = self._run_substitution(node)
                return said if said is not None else node_text(node) if keep else ""
        return node_text(node).replace("\\\n", "").replace("\\", "")

    def _run_substitution(self, node: Node) -> str | None:
        """What `$(expr 16 / $N)` and `$(cat <<EOF …)` print; None for commands that only a shell could run."""
        inner = node.named_children[-1] if node.named_children else None
        if inner is None or any(child.type != "variable_assignment" for child in node.named_children[:-1]):
            return None
        if inner.type == "command" and node_text(inner).startswith("echo "):
            return self._echo(inner, node.named_children[:-1])
        if len(node.named_children) > 1:
            return None
        if inner.type == "list" and (other := _ALTERNATIVE.search(node_text(inner))):  # what cannot be asked counts as false
            return str(other[1])
        if inner.type == "redirected_statement":
            body = heredoc_of(inner)
            return self.heredoc(body) if body is not None and node_text(inner).startswith("cat") else None
        if inner.type == "command" and node_text(inner).startswith("expr "):
            return expr([self.text(child) for child in inner.named_children[1:]])
        if inner.type == "command" and re.match(r"printf\s+[^-\s]", node_text(inner)):
            words = [word for child in inner.named_children[1:] for word in self.words(child)]
            return print_format(words[0], words[1:]) if words else ""
        return None

    def _echo(self, command: Node, assigned: Sequence[Node]) -> str | None:
        """What `echo "${A[*]}"` prints, which the first character of IFS joins; None for an option, and for what is not set."""
        last = next((node for node in reversed(assigned) if node.named_children and node_text(node).startswith("IFS=")), None)
        blank = " " if last is None else self.text(last.named_children[-1])[:1]
        said = []
        for node in command.named_children[1:]:
            reference = reference_of(node)
            if reference is not None and reference[1] == "*" and node.type == "string":
                said.append(blank.join(self.of(reference[0])))
            else:
                said.extend(self.words(node))
        text = " ".join(said)
        self._count(len(text))
        return None if "$" in text or text.startswith("-") else text

    def step(self, node: Node) -> bool:
        """Does `i++`, `i--` or `i += N`; false where the number is not known."""
        written = re.fullmatch(r"\s*([A-Za-z_]\w*)\s*(\+\+|--|\+=|-=)\s*(.*)", node_text(node), re.DOTALL)
        if written is None:
            return False
        name, sign, behind = written.groups()
        before, by = self._value(name), "1" if sign in ("++", "--") else self._value(behind) or behind
        if before is None or not NUMBER.fullmatch(before.strip()) or not NUMBER.fullmatch(by.strip()):
            return False
        self.set(name, [str(int(before) + (int(by) if sign[0] == "+" else -int(by)))])
        self._use(name)
        return True

    def heredoc(self, body: Node) -> str:
        """The lines of a here-document, with its variables filled in."""
        text = self._join_children(body, keep=True)
        self._count(len(text))
        return text.strip("\n")

    def preset(self, name: str, value: str) -> None:
        """A variable that is there before the script runs, unless the caller's environment has it."""
        self._lists.setdefault(name, [value])

    def _join_children(self, node: Node, keep: bool) -> str:
        """A node's text with its children's values in place of them."""
        source, start, pieces, at = node.text or b"", node.start_byte, [], 0
        for child in node.children:
            if not child.is_named:
                if child.type == '"':
                    pieces.append(widen(source[at : child.start_byte - start]))
                    at = child.end_byte - start
                continue
            pieces.append(widen(source[at : child.start_byte - start]))
            if child.type == "expansion":  # the grammar counts blanks in front of `${` to it
                pieces.append(_BLANKS.match(node_text(child)).group())  # type: ignore[union-attr]
            pieces.append(self.text(child, keep))
            at = child.end_byte - start
        pieces.append(widen(source[at:]))
        return "".join(pieces)

    def _expansion(self, node: Node, keep: bool) -> str:
        reference = reference_of(node)
        if reference is None:
            return node_text(node) if keep else ""
        name, index = reference
        default = self._default(node)
        value = self._element(node) if index else None
        if value is None and index in ("", "@", "*"):
            value = self._value(name)
        sign, behind = operator_of(node)
        if sign and (value is not None or sign in INSTEAD):
            return self._apply_operator(name, value or "", sign, behind, keep)
        if value is not None and (value or default is None):
            value = self._part(node, value)
            self._use(name)
            self._count(len(value))
            return value
        if default is not None:
            text = self.text(default, keep)
            if any(child.type in (":=", "=") for child in node.children):
                self.set(name, [text])
            return text
        if value is None and any(child.type in (":-", "-", ":=", "=") for child in node.children):
            return ""
        if name.isdecimal() and name != "0":
            return self._open(int(name[:3]), keep)
        return node_text(node) if keep else ""

    def _part(self, node: Node, whole: _Whole) -> _Whole:
        """What `${x:begin:length}` takes of a text or a list; all of it for other expansions, and where a number is not known."""
        numbers = [self.text(part).strip() for part in slice_of(node)]
        if not numbers or not all(map(NUMBER.fullmatch, numbers)):
            return whole
        rest = whole[int(numbers[0]) :]
        return rest if len(numbers) == 1 else rest[: int(numbers[1])]

    def _apply_operator(self, name: str, value: str, sign: str, behind: Node | None, keep: bool) -> str:
        """A value that an operator cuts, or what stands in the place of one that is not empty."""
        self._use(name)
        if sign in INSTEAD:
            return self.text(behind, keep) if value and behind is not None else ""
        changed = cut(value, sign, "" if behind is None else self.text(behind))
        self._count(len(changed))
        return changed

    def _open(self, position: int, keep: bool) -> str:
        """A positional parameter without a value: empty in a function, else as written, counted from the script's first."""
        if self.in_function or not keep:
            return ""
        position += self.shifted
        return f"${position}" if position < 10 else f"${{{position}}}"

    @contextmanager
    def own_parameters(self, words: list[str]) -> Iterator[None]:
        """Positional parameters of a function or of another script: `words`."""
        before = self.positional, self.in_function
        self.positional, self.in_function = words, True
        yield
        self.positional, self.in_function = before

    @contextmanager
    def own_variables(self, command: Node) -> Iterator[dict[str, str]]:
        """What stands in front of a command, `X=1 command`, which the script has as before when it has ended."""
        nodes = [child for child in command.named_children if child.type == "variable_assignment"]
        before: dict[str, list[str]] = dict(self._lists) if nodes else {}
        for node in nodes:
            self.assign(node)
        named = [node_text(child) for node in nodes if (child := node.child_by_field_name("name")) is not None]
        yield {name: " ".join(self.of(name)) for name in named}
        for name in named:
            self._lists.pop(name, None)
            self._lists |= {name: before[name]} if name in before else {}

    def shift(self, count: int) -> None:
        """The parameters without their first `count`."""
        if not self.in_function:
            self.shifted += count
        self.positional = self.positional[count:]

    def condition_text(self, node: Node) -> str:
        """As `text` for a condition: a parameter without a value is empty, also in the variable that it was copied to."""
        return _OPEN.sub("", text) if (text := self.text(node)) and "$" in text else text

    def note(self, node: Node, option: str | None) -> None:
        """Remembers that a condition asks whether a parameter or a variable is `option`; None for a number."""
        text, reference = self.text(node, keep=True), reference_of(node)
        if positions := open_positions(text):
            self.compared.extend(Compared(position, None, option) for position in positions)
        elif reference is not None and reference[0] not in ("#", "@", "*", "?"):
            named = int(reference[0][:3]) + self.shifted if reference[0].isdecimal() else reference[0]
            value = None if isinstance(named, str) and named not in self._lists else text
            self.compared.append(Compared(named, value, option))

    def _value(self, name: str) -> str | None:
        if name.isdecimal():
            at = int(name[:3]) - 1
            if 0 <= at < len(self.positional):
                return self.positional[at]
            copied = None if self.in_function else self.copies.get(at + 1 + self.shifted)
            if copied is None or copied not in self.environment:
                return None
            self._use(copied)
            return self.environment[copied]
        if name == "#":
            return str(len(self.positional))
        if name in ("@", "*"):
            return " ".join(self.positional)
        return " ".join(self._lists[name]) if name in self._lists else None

    def _default(self, node: Node) -> Node | None:
        """The word behind `:-`, `-` or `:=` of an expansion."""
        after = False
        for child in node.children:
            if child.type in (":-", "-", ":=", "="):
                after = True
            elif after and child.is_named:
                return child
        return None

    def number(self, node: Node) -> int | None:
        """The value of an arithmetic expression; None where it is not known."""
        self.depth += 1
        try:
            if self.depth > _DEEPEST:
                raise FileError(self.where, f"arithmetic nested deeper than {_DEEPEST}", "a launch script")
            return self._number(node)
        finally:
            self.depth -= 1

    def _number(self, node: Node) -> int | None:
        if node.type in ("arithmetic_expansion", "parenthesized_expression"):
            return self.number(node.named_children[0]) if len(node.named_children) == 1 else None
        if node.type == "binary_expression":
            left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
            sign = next((node_text(child) for child in node.children if node_text(child) in SUMS), "")
            if left is None or right is None or not sign:
                return None
            a, b = self.number(left), self.number(right)
            if a is None or b is None or sign in "/%" and b == 0:
                return None
            value = int(SUMS[sign](a, b))
            return value if abs(value) <= _LARGEST_NUMBER else None
        if node.type == "ternary_expression":
            parts = [node.child_by_field_name(name) for name in ("condition", "consequence", "alternative")]
            test = None if parts[0] is None else self.number(parts[0])
            taken = parts[1] if test else parts[2]
            return None if test is None or taken is None else self.number(taken)
        name = node_text(node)
        text = self._value(name) if node.type in ("variable_name", "word") and name.isidentifier() else self.text(node)
        if node.type in ("variable_name", "word") and text is not None:
            self._use(name)
        return int(text) if text is not None and NUMBER.fullmatch(text.strip()) else None

    def _use(self, name: str) -> None:
        self.used.add(name)

    def _count(self, characters: int) -> None:
        self.filled += characters
        if self.filled > LARGEST_FILLED:
            what = f"variables whose values are longer than {LARGEST_FILLED} characters together"
            raise FileError(self.where, what, "the arguments of one job")


def open_positions(text: str) -> list[int]:
    """Positional parameters that a text still names, other commands' texts left out."""
    if "`" in text or re.search(r"\$\((?!\()", text):
        return []
    return [int(one or other) for one, other in _OPEN.findall(text) if (one or other) != "0"]


def reference_of(node: Node) -> tuple[str, str] | None:
    """(variable, index) of an expansion, or of a string that is one: `${A[@]}` is ("A", "@")."""
    if node.type == "string":
        return reference_of(node.named_children[0]) if len(node.named_children) == 1 else None
    if node.type not in ("simple_expansion", "expansion"):
        return None
    for child in node.named_children:
        if child.type == "subscript":
            name, index = child.child_by_field_name("name"), child.child_by_field_name("index")
            return (node_text(name), node_text(index)) if name is not None and index is not None else None
        if child.type in ("variable_name", "special_variable_name"):
            return node_text(child), ""
    return None


def _unescape(text: str) -> str:
    return re.sub(r"\\([\\\"$`])", r"\1", text.replace("\\\n", ""))
