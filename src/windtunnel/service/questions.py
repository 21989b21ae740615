"""Questions of the service: which verbs are offered, what a request may say, and the command line that it stands for. Which those
are is in the table of verbs; their options are those of the command line.

A question: a verb with its arguments and uploads, checked, as one command line and one key.

Which questions are short: they go first, and one worker is kept for them.

Words of a question that could name a file of the server: refused before anything runs.

A question runs in a folder that holds its uploads and nothing else. A word may name a file in it, or something of the catalogue, so
a relative name without `..` is harmless. The process of the question is confined as well (`work/confine.py`): this check is there
for its message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import typer

from windtunnel.base.dataclasses import dataclass
from windtunnel.base.errors import FileError, Nothing, SpecError, UnknownName, nearest
from windtunnel.base.verbs import OTHERWISE, Verb, all_verbs
from windtunnel.base.version import __version__
from windtunnel.cli.shared.verbs import SHORT

WITHHELD = {
    "json": "the answer is what --json - prints",
    "quiet": "the answer has no report beside it",
    "write": "it changes the catalogue",
}
"""Option of every verb -> why a request may not say it."""

SHARED_OUTPUTS = {"--html": "page.html", "--sheet": "sheet.json", "--csv": "figures.csv"}
"""Option of every verb that writes a file -> the name of the file; a request names the option in `artefacts`."""

RENAMED = {"files": "paths"}
"""Name of a positional argument -> its name in a request, whose `files` are what it uploads."""

CORES = ("jobs", "threads")
"""Options that take cores: a service runs a question on as many as its settings say; answers do not depend on them."""


@dataclass(frozen=True)
class AskedOption:
    """What a request may say of a verb: an option by its long name, or a positional argument by its name."""

    name: str
    word: str
    """The option on the command line; empty for a positional argument."""
    kind: str
    """string, integer, number or boolean."""
    many: bool
    required: bool
    default: Any
    help: str
    metavar: str
    least: float | None = None
    most: float | None = None


@dataclass(frozen=True)
class OfferedVerb:
    """A verb that the service offers: `words` on the command line, `name` with blanks, `path` with slashes."""

    words: tuple[str, ...]
    help: str
    options: tuple[AskedOption, ...]
    outputs: tuple[tuple[str, str, str, bool], ...]
    """Of each artefact: its name, the option that writes it, the name of its file, and whether the verb always writes it."""
    json: bool
    withheld: Mapping[str, str]
    """Option that a request may not say -> why."""
    short: bool

    @property
    def name(self) -> str:
        return " ".join(self.words)

    @property
    def path(self) -> str:
        return "/".join(self.words)

    @property
    def reached_by(self) -> tuple[str, ...]:
        """The words that reach this verb whatever follows them: `import` alone would take a file `torch` for its verb."""
        return (*self.words, OTHERWISE) if self.words == ("import",) else self.words

    def option(self, name: str) -> AskedOption | None:
        """The option that a request calls so; a blank, a dash and an underscore are the same."""
        wanted = name.replace("_", "-")
        return next((one for one in self.options if one.name == wanted), None)


@cache
def offered_verbs() -> dict[str, OfferedVerb]:
    """Name of each offered verb, with blanks between its words -> what a request may say of it."""
    from windtunnel.cli import app

    command = typer.main.get_command(app)
    return {" ".join(verb.words): _offer(verb, command) for verb in all_verbs().values() if verb.offered is True}


def offered_verb(name: str) -> OfferedVerb:
    """The verb of a name with blanks or slashes. UnknownName for another one, with the reason where it is not offered."""
    wanted = " ".join(name.replace("/", " ").split())
    verbs = offered_verbs()
    if wanted not in verbs:
        why = next((verb.offered for verb in all_verbs().values() if " ".join(verb.words) == wanted), None)
        more = f"The service does not offer `windtunnel {wanted}`: {why}." if why is not None else ""
        raise UnknownName("verb", wanted[:80], list(verbs), more=more)
    return verbs[wanted]


def _offer(verb: Verb, command: Any) -> OfferedVerb:
    """What a request may say of a verb. `command`: of typer, the whole command line."""
    for word in verb.name.split():
        command = command.get_command(None, word)
    options, outputs, json = [], [], False
    for parameter in command.params:
        longest = max(parameter.opts, key=len)
        if longest == "--help" or (parameter.name == "help"):
            continue
        json = json or longest == "--json"
        file = verb.outputs.get(longest.lstrip("-"), SHARED_OUTPUTS.get(longest))
        if file is not None:
            outputs.append((longest.lstrip("-"), longest, file, parameter.required))
        elif longest.lstrip("-") not in {*WITHHELD, *verb.withheld}:
            options.append(_option(parameter, longest))
    if getattr(command, "takes_short", False):
        own = {option.name for option in options} | {name for name, *_ in outputs}
        options += [
            AskedOption(word.lstrip("-"), word, "string", False, False, None, f"Short for --set {field}=VALUE.", "VALUE")
            for word, field in SHORT.items()
            if word.lstrip("-") not in own
        ]
    return OfferedVerb(verb.words, verb.about, tuple(options), tuple(outputs), json, verb.withheld, verb.short)


def _option(parameter: Any, longest: str) -> AskedOption:
    positional = parameter.param_type_name == "argument"
    kinds = {"int": "integer", "flo": "number", "boo": "boolean"}  # of integer, integer range, int, …
    kind = kinds.get(str(parameter.type.name)[:3].lower(), "string")
    name = RENAMED.get(parameter.name, parameter.name).replace("_", "-") if positional else longest.lstrip("-")
    default = parameter.default if isinstance(parameter.default, (str, int, float, bool)) else None
    many = bool(getattr(parameter, "multiple", False)) or parameter.nargs != 1
    return AskedOption(
        name, "" if positional else longest, kind, many, parameter.required, default,
        str(getattr(parameter, "help", "") or ""), str(parameter.metavar or ""),
        getattr(parameter.type, "min", None), getattr(parameter.type, "max", None),
    )  # fmt: skip


MOST_NAME = 200
"""Characters of the name of an upload."""
_PARTS = re.compile(r"[\s,=:@|'\"()\[\]{}<>;]+")
_SCHEME = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]*://")
_NAME = re.compile(r"[^/\\\x00-\x1f\x7f]+(?:/[^/\\\x00-\x1f\x7f]+)*")


def check_word(field: str, word: str) -> None:
    """FileError for a word of a question that names a place outside of its uploads: absolute, with `..`, from a home, or a URL."""
    if "\x00" in word:
        raise SpecError(field, word, "text without a null character")
    if not word.isascii():
        try:
            word.encode("utf-8")
        except UnicodeEncodeError as error:
            raise SpecError(field, ascii(word), "text that UTF-8 can hold") from error
    if _SCHEME.search(word):
        raise FileError(
            field, word, "a name of the catalogue or of an upload", "The service opens no URL. Upload the file in `files`."
        )
    for part in _PARTS.split(word):
        if part.startswith(("/", "~", "\\")) or ".." in re.split(r"[/\\]", part):
            hint = "The service reads no file of its machine. Upload the file in `files` and name it here."
            raise FileError(field, word, "a name of the catalogue or of an upload", hint)


def check_name(name: str) -> str:
    """The name of an upload: relative, without `.` and `..`. FileError for another one."""
    parts = name.split("/")
    if (
        not _NAME.fullmatch(name) or len(name) > MOST_NAME or any(part in ("", ".", "..") for part in parts)
        or name.startswith(("~", "-")) or len(parts) > 8 or any(len(part.encode("utf-8", "replace")) > 200 for part in parts)
    ):  # fmt: skip
        raise FileError("files", name[:80], f"a relative name of at most {MOST_NAME} characters, without . and ..")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FileError("files", ascii(name)[:80], "a name that UTF-8 can hold") from error
    return name


INLINE = "job.json"
"""The upload that an inline table becomes."""
MOST_WORDS, MOST_WORD, MOST_FILES = 2000, 1 << 20, 4096


@dataclass(frozen=True)
class AskedQuestion:
    """A checked question. `words`: the command line behind `windtunnel`, without `--json -`; `files`: upload -> its bytes;
    `outputs`: artefact -> name of its file; `arguments`: as they were asked."""

    verb: str
    words: tuple[str, ...]
    files: Mapping[str, bytes]
    outputs: Mapping[str, str]
    json: bool
    key: str

    @property
    def command(self) -> str:
        """The command line that gives the same answer."""
        return command_line(self.words, self.json)


def ask_question(
    verb: str, arguments: Mapping[str, Any], files: Mapping[str, Any] | None = None, artefacts: Any = (), version: str = __version__
) -> AskedQuestion:
    """The question of a request. `arguments`: options by long name and positional arguments by name; `files`: upload -> text,
    bytes or {"base64": text}; `artefacts`: options that write files, by name.

    UnknownName for a verb; SpecError for an argument, FileError for a name of an upload or for a word that names another place.
    """
    found = offered_verb(verb)
    uploads = _uploads(files or {})
    positional: list[str] = []
    options: list[str] = []
    said = _by_option(found, arguments)
    for option in found.options:
        if option.name not in said:
            if option.required and not option.many and not option.word:
                raise SpecError(option.name, Nothing(), option.metavar or "a value", option.help)
            continue
        for word in _words(option, said[option.name], uploads):
            check_word(option.name, word)
            if not option.word:
                positional.append(word)
            elif option.kind == "boolean":
                options.append(option.word if word == "true" else f"--no-{option.word.lstrip('-')}")
            else:
                options.append(f"{option.word}={word}")
    outputs = _outputs(found, artefacts)
    for option_word, file in outputs.values():
        options.append(f"{option_word}={file}")
    words = (
        *found.reached_by,
        *options,
        *(("--", *positional) if any(word.startswith("-") for word in positional) else positional),
    )
    if len(words) > MOST_WORDS:
        raise SpecError("arguments", len(words), f"at most {MOST_WORDS} of them")
    return AskedQuestion(
        found.name, words, uploads, {name: file for name, (_, file) in outputs.items()}, found.json,
        question_key(words, uploads, version),
    )  # fmt: skip


def command_line(words: Sequence[str], json: bool) -> str:
    """What to type for the answer to these words."""
    shown = [word for word in words if word != OTHERWISE]
    end = shown.index("--") if "--" in shown else len(shown)
    return shlex.join(["windtunnel", *shown[:end], *(["--json", "-"] if json else []), *shown[end:]])


def question_key(words: tuple[str, ...], files: Mapping[str, bytes], version: str = __version__) -> str:
    """SHA-256, in hex, of canonical JSON of the version, the command line and the hashes of the uploads."""
    hashes = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    text = json.dumps({"version": version, "words": list(words), "files": hashes}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def _by_option(verb: OfferedVerb, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """What a request says, by the name of the option; without what it leaves open (null, or an option's own default)."""
    said: dict[str, Any] = {}
    for name, value in arguments.items():
        option = verb.option(str(name))
        if option is None:
            raise _unknown(verb, str(name))
        if option.name in said:
            raise SpecError(option.name, value, "one value", "It is said twice.")
        if value is None or (value == option.default and type(value) is type(option.default)) or value == [] or value == {}:
            continue
        said[option.name] = value
    return said


def _unknown(verb: OfferedVerb, name: str) -> SpecError:
    plain = name.replace("_", "-")
    why = WITHHELD.get(plain) or verb.withheld.get(plain)
    known = [option.name for option in verb.options]
    if any(plain == output for output, *_ in verb.outputs):
        return SpecError(name[:80], "an option that writes a file", ", ".join(known), f'Write "artefacts": ["{plain}"].')
    if why is not None:
        return SpecError(name[:80], "an option that the service does not take", ", ".join(known), f"Leave it out: {why}.")
    near = nearest(plain, known)
    return SpecError("arguments", name[:80], ", ".join(known), f"Did you mean {near!r}?" if near else "")


def _uploads(files: Mapping[str, Any]) -> dict[str, bytes]:
    if not isinstance(files, Mapping) or len(files) > MOST_FILES:
        raise SpecError("files", type(files).__name__, f"an object of at most {MOST_FILES} names with text")
    uploads = {check_name(str(name)): _bytes_of(str(name), data) for name, data in files.items()}
    for name in uploads:
        parents = name.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            if "/".join(parents[:depth]) in uploads:
                raise FileError("files", name, "names that are not folders of each other")
    return uploads


def _bytes_of(name: str, data: Any) -> bytes:
    if isinstance(data, bytes):
        return data
    if isinstance(data, str):
        try:
            return data.encode("utf-8")
        except UnicodeEncodeError as error:
            raise FileError(f"files.{name}", ascii(data)[:40], "text that UTF-8 can hold") from error
    if isinstance(data, Mapping) and set(data) == {"base64"} and isinstance(data["base64"], str):
        try:
            return base64.b64decode(data["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise FileError(f"files.{name}", data["base64"][:40], "base64") from error
    raise FileError(f"files.{name}", type(data).__name__, 'text, or {"base64": "…"}')


def _outputs(verb: OfferedVerb, artefacts: Any) -> dict[str, tuple[str, str]]:
    """Artefact -> the option that writes it, and its file."""
    if not isinstance(artefacts, (list, tuple)) or not all(isinstance(name, str) for name in artefacts):
        raise SpecError("artefacts", artefacts, "a list of names")
    known = {name: (word, file) for name, word, file, _ in verb.outputs}
    for name in artefacts:
        if name not in known:
            raise SpecError("artefacts", name[:80], ", ".join(known) or f"none: {verb.name} writes no file")
    return {name: (word, file) for name, word, file, always in verb.outputs if always or name in artefacts}


def _words(option: AskedOption, value: Any, uploads: dict[str, bytes]) -> list[str]:
    """The words of one argument. An object as a job becomes an upload."""
    if isinstance(value, Mapping):
        if option.name == "job":
            return [_inline(value, uploads)]
        if option.name in ("set", "set-a", "set-b"):
            return [f"{key}={_set_value(f'{option.name}.{key}', one)}" for key, one in value.items()]
        raise SpecError(option.name, value, _allowed_words(option))
    if option.many:
        values = value if isinstance(value, (list, tuple)) else [value]
        return [_word(option, one) for one in values]
    return [_word(option, value)]


def _inline(table: Mapping[str, Any], uploads: dict[str, bytes]) -> str:
    if INLINE in uploads:
        raise FileError("files", INLINE, "another name", "An inline job has this one.")
    try:
        text = json.dumps(table, sort_keys=True, allow_nan=False, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise SpecError("job", "a table", "a table of numbers, text, lists and tables") from error
    uploads[INLINE] = text.encode("ascii")
    return INLINE


def _set_value(field: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, (list, tuple)):
        return ",".join(_set_value(field, one) for one in value)
    if isinstance(value, (bool, int, float)) and (not isinstance(value, float) or math.isfinite(value)):
        return json.dumps(value)
    raise SpecError(field, value, "a number, text, true or false, or a list of them")


def _allowed_words(option: AskedOption) -> str:
    kind = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false"}[option.kind]
    bounds = [f"from {option.least:g}"] if option.least is not None else []
    bounds += [f"to {option.most:g}"] if option.most is not None else []
    return " ".join([f"{kind}, or a list" if option.many else kind, *bounds])


def _word(option: AskedOption, value: Any) -> str:
    """One value as a word of the command line. SpecError for a value of another kind, or out of bounds."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    fits = {
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": number,
        "string": isinstance(value, str) or number,
    }[option.kind]
    if fits and number and (option.least is not None and value < option.least or option.most is not None and value > option.most):
        fits = False
    if not fits or (isinstance(value, str) and len(value) > MOST_WORD):
        raise SpecError(option.name, value, _allowed_words(option), option.help)
    return value if isinstance(value, str) else json.dumps(value)


def is_short(question: AskedQuestion) -> bool:
    """Whether it takes about a second: by its verb, without an engine of the network."""
    engines = any(word in ("--network=flow", "--network=packet") for word in question.words)
    return offered_verbs()[question.verb].short and not engines
