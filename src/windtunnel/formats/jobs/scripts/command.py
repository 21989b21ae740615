"""A launch script or command line as the words of the command that it would launch. Nothing is executed.

The script is parsed by tree-sitter's bash grammar and walked in order: assignments, arrays, default values, arithmetic, functions,
and `if` and `case` over what the script itself sets. A condition that the text cannot decide (a file, another command's answer)
counts as false; `exit` is passed over; `source FILE` and `bash FILE` are followed where the file lies beside the script; a loop's
body is walked once, with its first value, one over the script's parameters as often as there are any.

Flags without a script around them as words: quotes, comments and continued lines.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from windtunnel.base.dataclasses import dataclass, field
from windtunnel.base.errors import FileError
from windtunnel.formats.jobs.scripts.conditions import fits, holds
from windtunnel.formats.jobs.scripts.expansion import heredoc_of, print_format, printed_file, written_file
from windtunnel.formats.jobs.scripts.missing_arguments import OpenQuestions, PassedBranch
from windtunnel.formats.jobs.scripts.said import LARGEST_WORD_COUNT, plain_words
from windtunnel.formats.jobs.scripts.script_call import MOST_FILES, named_file, open_array, slurm_variables, text_of
from windtunnel.formats.jobs.scripts.values import LARGEST_FILLED, Values
from windtunnel.formats.jobs.scripts.wide_characters import narrow, node_text

if TYPE_CHECKING:
    from tree_sitter import Node


LARGEST_SCRIPT = 512 * 1024
"""Characters. The longest launch scripts in use have some tens of KiB."""

_DEEPEST = 60
_MOST_ROUNDS = 1000
_MOST_STATEMENTS = 200_000
_STATEMENTS_OF_A_PARSE = 100
"""What a text that is parsed anew counts for: `eval` and `bash -c`."""
_SETS = re.compile(r"(?:(?:^|[\s;])(?:export\s+|local\s+)?|\$\{)([A-Za-z_]\w*):?\+?=")
_FLAG_NAME = re.compile(r"--([A-Za-z][\w-]*)")
_SHELLS = ("bash", "sh")
_SOURCED = ("source", ".")
_TOLD = {"ray.sub": "COMMAND"}
"""Scripts that run what a variable holds: NeMo RL's, which starts Ray on the nodes of a Slurm job."""
_ENDINGS = (".sh", ".bash", ".slurm", ".sbatch")
_STARTERS = ("srun", "sbatch", "mpirun", "nohup", "time", "exec")
_PLACEHOLDER = re.compile(r"(?<=[\s=:/\"'])<([A-Za-z][\w ./-]{0,60})>(?=[\s/\\,:;}\"']|$)")
"""What a document has where its reader is to put something, `<your token>`: a variable that nothing sets."""
_LEAVES = re.compile(r"(?:^|[\s;])(?:exit|return)\b")
_FLAG = re.compile(r"--[A-Za-z]")
_SCRIPT = re.compile(r"^[ \t]*(?:export\s+)?[A-Za-z_]\w*=|^[ \t]*(?:torchrun|python3?|srun|deepspeed|if|case|for)\s", re.MULTILINE)
_BLOCKS = ("program", "pipeline", "subshell", "compound_statement", "do_group", "redirected_statement", "ERROR", "negated_command")


def words(text: str, where: str) -> list[str]:
    """The words of `launch`, of a script that is started with nothing."""
    return launch(text, where)[0]


def launch(
    text: str,
    where: str,
    arguments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    path: Path | None = None,
) -> tuple[list[str], OpenQuestions]:
    """The words of the launch command in `text`, and what it would have to be told for the rest.

    What the script sets is filled in; other variables stay as written. `arguments` are its positional parameters, `path` is where
    it lies: scripts that it sources or starts are looked for there (`sourced`). The launch command is the one with a Python script
    and the most flags. Flags of variables that no command uses, and flags that stand alone, come before it. Raises `FileError` for
    an unclosed quote, more than 20,000 words, or values longer than 1 MiB together.
    """
    if text.lstrip().startswith("--") and not _SCRIPT.search(text):
        return plain_words(text, where), OpenQuestions(where)
    if len(text) > LARGEST_SCRIPT:
        raise FileError(where, f"{len(text)} characters", f"a script of at most {LARGEST_SCRIPT}")
    script = _Script(where, tuple(arguments), environment or {}, path)
    script.run(text)
    launches = [command for command in script.commands if any(word.endswith(".py") for word in command)]
    loose = [command for command in script.commands if command[0].startswith("--")]
    chosen: list[str] = max(launches, key=_flags, default=ShellCommand([], {}))
    if not chosen and not loose:
        chosen = max(script.commands, key=_flags, default=ShellCommand([], {}))
    flags = next((at for at, word in enumerate(chosen) if word.startswith("--")), 0)
    alone = [*script.unused_words(), *(word for command in loose for word in command)]
    listed = [*chosen[:flags], *alone, *chosen[flags:]]
    values = script.values
    unread = tuple(name for name in values.environment if name not in values.used and name not in values.overruled)
    files = () if path is None else tuple(os.path.relpath(file, path.parent) for file in script.files)
    return listed, OpenQuestions(
        where, values.copies, script.choices, tuple(values.overruled), unread, tuple(values.assigned), files
    )


class ShellCommand(list[str]):
    """The words of a command. `own`: the variables in front of it, `X=1 command`."""

    def __init__(self, words: Sequence[str], own: Mapping[str, str]) -> None:
        super().__init__(words)
        self.own = own


@dataclass(frozen=True)
class ScriptCommands:
    """A script's commands and variables, walked over once for all readers that ask. Arguments and errors as of `launch`."""

    text: str
    where: str
    arguments: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None

    @cached_property
    def _walk(self) -> _Script:
        if len(self.text) > LARGEST_SCRIPT:
            raise FileError(self.where, f"{len(self.text)} characters", f"a script of at most {LARGEST_SCRIPT}")
        script = _Script(self.where, tuple(self.arguments), self.environment, self.path)
        script.run(self.text)
        return script

    @property
    def commands(self) -> list[ShellCommand]:
        """Every command with its words filled in."""
        return self._walk.commands

    @cached_property
    def variables(self) -> Mapping[str, str]:
        """What the script or Slurm sets; no arrays."""
        values = self._walk.values
        found = {name: value[0] for name in values.assigned if len(value := values.of(name)) == 1}
        return {**slurm_variables(self.text), **self.environment, **found}

    @property
    def written_files(self) -> Mapping[str, str]:
        """The lines of the files that it writes with here-documents, by name without folder."""
        return self._walk.written


def _flags(command: list[str]) -> int:
    return sum(word.startswith("--") for word in command)


@dataclass
class _Script:
    """A walk over a script: the commands that it came past, with their words filled in."""

    where: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    path: Path | None = None
    commands: list[ShellCommand] = field(default_factory=list)
    choices: list[PassedBranch] = field(default_factory=list)
    count: int = 0
    depth: int = 0
    walked: int = 0
    files: dict[Path, None] = field(default_factory=dict)
    written: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = Values(self.where, list(self.arguments), self.environment)
        self.functions: dict[str, Node] = {}
        self.began = False

    def run(self, text: str) -> None:
        """Walks a script's text in the state that the ones before left."""
        import tree_sitter
        import tree_sitter_bash

        self.walked += _STATEMENTS_OF_A_PARSE
        text = _PLACEHOLDER.sub(lambda found: "$" + re.sub(r"\W+", "_", found[1]), text)
        if not self.began:
            self.began = True
            for name, value in slurm_variables(text).items():
                self.values.preset(name, value)
        root = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language())).parse(narrow(text)).root_node
        if root.has_error:
            try:
                shlex.split(text, comments=True)
            except ValueError as error:
                raise FileError(self.where, str(error), "a command line whose quotes are closed") from None
            if (unclosed := open_array(root)) is not None:
                raise FileError(
                    self.where, f"{unclosed}=( without its )", "an array that is closed: a ) on a line behind its last flag"
                )
        self.block(root)

    def unused_words(self) -> list[str]:
        """Words of variables that hold flags and that no command used, in the order of their assignment."""
        left = (name for name in self.values.assigned if name not in self.values.used)
        listed = [word for name in left for word in split_flags(self.values.of(name))]
        return listed if any(map(_FLAG.match, listed)) else []

    def block(self, node: Node) -> None:
        """Walks the statements under a node."""
        self.depth += 1
        if self.depth > _DEEPEST:
            raise FileError(self.where, f"statements nested deeper than {_DEEPEST}", "a launch script")
        for child in node.named_children:
            self.statement(child)
        self.depth -= 1

    def statement(self, node: Node) -> None:
        self.walked += 1
        if self.walked > _MOST_STATEMENTS:
            raise FileError(self.where, f"more than {_MOST_STATEMENTS} statements one after the other", "a launch script")
        match node.type:
            case "variable_assignment":
                self.values.assign(node)
            case "declaration_command" | "variable_assignments":
                for child in node.named_children:
                    if child.type == "variable_assignment":
                        self.values.assign(child)
            case "command":
                self.command(node)
            case "if_statement":
                self.choose(node)
            case "case_statement":
                self.case(node)
            case "for_statement":
                self.loop(node)
            case "while_statement":
                self.rounds(node)
            case "c_style_for_statement":
                self.count_through(node)
            case "function_definition":
                name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                if name is not None and body is not None:
                    self.functions[node_text(name)] = body
            case "redirected_statement" if (body := heredoc_of(node)) is not None and self.keep_lines(node, body):
                return
            case "redirected_statement" if (named := printed_file(node)) is not None:
                words = [word for part in node.named_children[0].named_children[1:] for word in self.values.words(part)]
                self.keep_file(node, named, " ".join(words))
            case "list":
                self.outcome(node)
            case kind if kind in _BLOCKS:
                self.block(node)

    def outcome(self, node: Node) -> bool | None:
        """Walks `A && B` and `A || B` as far as tests tell; whether a statement succeeds, None where nothing says it."""
        if node.type == "list" and len(node.named_children) == 2:
            first, second = node.named_children
            either = any(child.type == "||" for child in node.children)
            told = self.outcome(first)
            return told if told is either else self.outcome(second)
        if node.type == "test_command" or node.children and node.children[0].type == "((":
            return holds(node, self.values)
        self.statement(node)
        return True if node.type == "variable_assignment" else None

    def keep_lines(self, node: Node, body: Node) -> bool:
        """Keeps a here-document in the variable or the file that it goes to; False where another command takes it."""
        if node_text(node).startswith("read "):  # read -r -d '' NAME <<EOF
            head = node.child_by_field_name("body")
            names = [] if head is None else [node_text(child) for child in head.named_children]
            self.values.set(names[-1] if names else "", [self.values.heredoc(body)])
            return True
        named = written_file(node)
        if named is not None:
            self.keep_file(node, named, self.values.heredoc(body))
        return named is not None

    def keep_file(self, node: Node, named: Node, text: str) -> None:
        """Keeps the text that a statement writes to a file, behind what is there where it appends."""
        name = self.values.text(named, keep=True).rpartition("/")[2]
        before = self.written.get(name, "") + "\n" if ">>" in node_text(node).partition("\n")[0] else ""
        self.written[name] = before + text

    def command(self, node: Node) -> None:
        with self.values.own_variables(node) as own:  # X=1 command
            self.walk_command(node, own)

    def walk_command(self, node: Node, own: Mapping[str, str]) -> None:
        parts = [
            child
            for child in node.named_children
            if child.type not in ("variable_assignment", "file_redirect", "herestring_redirect")
        ]
        listed = [word for part in parts for word in self.values.words(part)]
        if listed and (begin := self.begin_of_script(listed[0], parts)) and self.walk_named_script(listed[0], parts[begin - 1 :]):
            return
        if listed[:2] == ["printf", "-v"] and len(listed) > 3:
            self.values.set(listed[2], [print_format(listed[3], listed[4:])])
            return
        if not listed or listed[0] in ("echo", "printf", "mkdir", "exit", "source", ".", "cd", "set", "unset", "rm", "cp"):
            return
        if listed[0] == "shift":
            self.values.shift(int(listed[1]) if len(listed) > 1 and re.fullmatch(r"\d{1,3}", listed[1]) else 1)
            return
        if listed[0] in self.functions and self.depth < _DEEPEST // 2:
            self.walk_function(listed)
            return
        if "-c" in listed[:-1] and " " in (inner := listed[listed.index("-c") + 1]):  # bash -c "python …"
            self.depth += 1
            if self.depth < _DEEPEST // 4:
                self.run(inner)
            self.depth -= 1
            return
        if (told := next((_TOLD[word] for word in map(_name_of, listed) if word in _TOLD), None)) is not None:
            held = own.get(told) or " ".join(self.values.of(told))
            if held and self.depth < _DEEPEST // 4:
                self.walk_text(held)
                return
        if listed[0] == "eval" and self.depth < _DEEPEST // 4 and len(listed) > 1:
            self.walk_text(" ".join(listed[1:]))
            return
        flat = split_flags(listed)
        self.count += len(flat)
        if self.count > LARGEST_WORD_COUNT:
            raise FileError(self.where, f"more than {LARGEST_WORD_COUNT} words", "the arguments of one job")
        self.commands.append(ShellCommand(flat, own))

    def walk_text(self, text: str) -> None:
        """A command that a variable holds, with its quotes; split at blanks where they do not close."""
        before = len(self.commands)
        self.depth += 1
        try:
            self.run(text)
        except FileError:
            if self.count > LARGEST_WORD_COUNT or self.values.filled > LARGEST_FILLED or self.walked > _MOST_STATEMENTS:
                raise
        self.depth -= 1
        if len(self.commands) == before:
            self.commands.append(ShellCommand(split_flags([text]), {}))

    def begin_of_script(self, first: str, parts: Sequence[Node]) -> int:
        """Words of a command up to the script that it runs and with it: `source FILE`, `bash FILE`, `srun … bash FILE`, `./FILE`;
        0 without one."""
        if first in _SOURCED:
            return 2
        texts = [self.values.text(part) for part in parts]
        for at, text in enumerate(texts):
            if at and texts[at - 1] in _SHELLS or text.endswith(_ENDINGS) and (at == 0 or first in _STARTERS):
                return at + 1
        return 0

    def walk_named_script(self, reader: str, parts: Sequence[Node]) -> bool:
        """Walks the script that `parts` name first, one of the tree or one written before, with the words behind it; False where
        there is no such file, and for one that is not sourced and starts nothing with flags."""
        name = self.values.text(parts[0], keep=True) if parts else ""
        written = self.written.get(name.rpartition("/")[2])
        file = named_file(name, self.path) if name and self.path is not None and written is None else None
        if file is None and written is None or len(self.files) >= MOST_FILES or self.depth >= _DEEPEST // 4:
            return False
        words = [word for part in parts[1:] for word in self.values.words(part)]
        before, count = (self.path, self.where), len(self.commands)
        if file is not None:
            self.files[file] = None
            self.path, self.where = file, str(file)
        with nullcontext() if reader in _SOURCED and not words else self.values.own_parameters(words):
            self.depth += 1
            self.run(text_of(file, LARGEST_SCRIPT) if file is not None else written or "")
            self.depth -= 1
        self.path, self.where = before
        return reader in _SOURCED or any(map(_flags, self.commands[count:]))

    def walk_function(self, listed: list[str]) -> None:
        """A function's body, with its own positional parameters."""
        with self.values.own_parameters(listed[1:]):
            self.block(self.functions[listed[0]])

    def rounds(self, node: Node) -> None:
        """A `while`: again and again as long as it takes parameters off, else once."""
        condition, body = node.child_by_field_name("condition"), node.child_by_field_name("body")
        if (
            condition is not None
            and body is not None
            and condition.type == "command"
            and node_text(condition).startswith("getopts ")
        ):
            self.options(self.values.words(condition.named_children[1]), node_text(condition.named_children[-1]), body)
            return
        for _ in range(_MOST_ROUNDS):
            left = len(self.values.positional)
            if condition is None or body is None or not holds(condition, self.values):
                return
            self.block(body)
            if len(self.values.positional) >= left:
                return

    def count_through(self, node: Node) -> None:
        """A `for ((i = 0; i < N; i++))`, as long as its numbers are known."""
        begin, test, body = (node.child_by_field_name(name) for name in ("initializer", "condition", "body"))
        update = node.child_by_field_name("update")
        if begin is None or test is None or body is None or update is None or begin.type != "variable_assignment":
            return
        self.values.assign(begin)
        for _ in range(_MOST_ROUNDS):
            if not holds(test, self.values):
                return
            self.block(body)
            if not self.values.step(update):
                return

    def options(self, listed: list[str], variable: str, body: Node) -> None:
        """The body of `while getopts SPEC VARIABLE`, for each option of the parameters."""
        spec, left = "".join(listed), list(self.values.positional)
        while left and len(left[0]) > 1 and left[0].startswith("-") and left[0] != "--":
            letters = left.pop(0)[1:]
            while letters:
                letter, letters = letters[0], letters[1:]
                self.values.set(variable, [letter if letter in spec.replace(":", "") else "?"])
                if f"{letter}:" in spec:
                    self.values.set("OPTARG", [letters or (left.pop(0) if left else "")])
                    letters = ""
                self.block(body)

    def choose(self, node: Node) -> None:
        """The first branch of an `if` whose condition holds."""
        clauses = [child for child in node.named_children if child.type == "elif_clause"]
        conditions = [(node, node.child_by_field_name("condition"))]
        conditions += [(clause, clause.named_children[0] if clause.named_children else None) for clause in clauses]
        self.values.compared = []
        taken = next((clause for clause, test in conditions if test is not None and holds(test, self.values)), None)
        if taken is None:
            fallback = next((child for child in node.named_children if child.type == "else_clause"), None)
            self.note_skipped_branch(node, len(conditions), fallback)
            if fallback is not None:
                self.block(fallback)
        else:
            self.branch(taken)

    def note_skipped_branch(self, node: Node, options: int, fallback: Node | None) -> None:
        """Remembers an `if` or a `case` that took no branch, or only one that gives up."""
        gives_up = fallback is None or bool(_LEAVES.search(node_text(fallback)))
        if self.values.compared and gives_up and not self.values.in_function:
            text, compared = node_text(node), tuple(dict.fromkeys(self.values.compared))
            sets, flags = frozenset(_SETS.findall(text)), frozenset(_FLAG_NAME.findall(text))
            self.choices.append(PassedBranch(compared, sets, flags, options > 1 or fallback is not None))

    def branch(self, node: Node) -> None:
        """The statements of an `if` or `elif` behind its `then`."""
        after_then = False
        for child in node.children:
            if child.type == "then":
                after_then = True
            elif child.type in ("elif_clause", "else_clause"):
                return
            elif after_then and child.is_named:
                self.statement(child)

    def case(self, node: Node) -> None:
        """The first item of a `case` with a pattern that fits."""
        value = node.child_by_field_name("value")
        subject = "" if value is None else self.values.condition_text(value)
        items = [item for item in node.named_children if item.type == "case_item"]
        self.values.compared = []
        for item in items:
            patterns = item.children_by_field_name("value")
            texts = [self.values.text(pattern) for pattern in patterns]
            if any(fits(subject, text) for text in texts):
                if "*" in texts and value is not None:
                    self.note_skipped_branch(node, len(items), item)
                self.item(item, {pattern.id for pattern in patterns})
                return
            if value is not None:
                for text in texts:
                    self.values.note(value, text)
        self.note_skipped_branch(node, len(items), None)

    def item(self, item: Node, patterns: set[int]) -> None:
        """The statements of a `case`'s item."""
        for child in item.named_children:
            if child.id not in patterns:
                self.statement(child)

    def loop(self, node: Node) -> None:
        """The body of a `for`, with the first of its values, or with each of the script's parameters."""
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        over = node.children_by_field_name("value")
        listed = [word for value in over for word in self.values.words(value)]
        parameters = not over or all(node_text(value).strip('"') in ("$@", "${@}", "$*") for value in over)
        if variable is None or body is None:
            return
        for word in self.values.positional[:] if parameters else listed[:1]:
            self.values.set(node_text(variable), [word])
            self.block(body)


def _name_of(path: str) -> str:
    return path.rpartition("/")[2]


def split_flags(listed: list[str]) -> list[str]:
    """Words, those that hold several flags taken apart: `"--bf16 --swiglu"` is a way to keep flags in one variable."""
    return [part for word in listed for part in (_parts(word) if "--" in word else (word,))]


def _parts(word: str) -> Iterator[str]:
    yield from word.replace("\\\n", " ").split() if any(c in word for c in " \n\t") else (word,)
