"""The command line: what verbs do beside asking and showing, a file for those of one idea, imported when the verb is used."""

from __future__ import annotations

import codecs
import errno
import gc
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from windtunnel.base.errors import FileError, WindtunnelError, explain_missing_module, nearest_option, same_option
from windtunnel.base.verbs import verbs_of
from windtunnel.cli.shared.verbs import SHORT, bare_application

INTERRUPTED, BROKEN_PIPE = 130, 1
"""Exit codes after SIGINT (as in shells) and after a closed pipe (as in rich and click)."""


GARBAGE = 100_000
"""Objects that a command makes between two searches for dead circles of them: the imports of most verbs fit below it."""


USAGE: type[Exception] = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")
"""The error of typer for a command line that it cannot parse; its class is in click or in typer, depending on typer's version."""


_FIELD = r"\b(?:plan|cluster|model|runtime|reliability)\.[\w.]+=[^\s()]+"
_SETTING = r"(?s)[A-Za-z_][\w.\[\]-]*=.+"
"""A field with its value, as --set takes it: in a message, and as a word. Both are compiled when they are needed."""


WITH_PAGE = (
    "predict", "plan", "search", "design", "goodput", "sensitivity", "serve-predict", "serve-search", "serve-fleet", "rl-predict",
    "compare", "replay", "validate", "catalog", "fit", "runs show", "fleet show",
)  # fmt: skip
"""Verbs with --html that a reader without a page may look for."""

_PLAIN = "windtunnel.plain"
"""Name of the encoder's fallback for output encodings without some characters, such as ASCII."""


def _to_ascii(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):  # standard output only encodes
        raise error
    near = {"·": ".", "µ": "u", "±": "~", "×": "x", "…": "~"}
    lost = error.object[error.start : error.end]
    return "".join(near.get(c, "#" if "\u2580" <= c <= "\u259f" else "?") for c in lost), error.end


codecs.register_error(_PLAIN, _to_ascii)


_STDOUT = (errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What a write to standard output fails with: its reader left, or it is a file on a disk that is full, gone or over its quota."""

_NO_FILE = (errno.ENAMETOOLONG, errno.ELOOP)
"""What no file of the machine can be called: a word of thousands of letters, or a link that leads to itself."""

app = bare_application(completion=True)


def _version(requested: bool) -> None:
    if requested:
        from windtunnel import __version__

        typer.echo(f"windtunnel {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """A wind tunnel for LLM-training clusters: describe a job, read how it would run.

    JOB is a name of `windtunnel catalog jobs`, a job file (.toml, .yaml, .json), a Hugging Face config.json or a text file with
    Megatron-LM flags. `windtunnel VERB --help` explains a verb.
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns the exit code. Each user error is one message on standard error."""
    if arguments is None:
        _settle_process()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # the shell closed it: `>&-`
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 of the process, to its end
    with suppress(AttributeError, ValueError):  # a terminal without block characters shows # in bars
        sys.stdout.reconfigure(errors=_PLAIN)  # type: ignore[union-attr]
    try:
        code = run_words(sys.argv[1:] if arguments is None else arguments)
        if arguments is None:
            gc.freeze()  # what is left ends with the process: no search of it for circles
        if code == INTERRUPTED:  # what typer makes of Ctrl-C
            return _fail("stopped.", INTERRUPTED)
        return code
    except WindtunnelError as error:
        return _fail(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        missing = explain_missing_module(error)
        if missing is None:
            raise
        return _fail(str(missing), missing.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        return _fail("stopped.", INTERRUPTED)
    except USAGE as error:
        return _fail(usage_message(error), 2)
    except OSError as error:
        if error.errno not in _STDOUT:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter reports it again at exit
        return BROKEN_PIPE if error.errno == errno.EPIPE else _fail(f"standard output: {error.strerror}.", 2)


def run_words(words: Sequence[str]) -> int:
    """Run one command line, and let its errors through: a WindtunnelError, or USAGE for one that typer cannot parse. Returns the
    exit code."""
    try:
        code = typer.main.get_command(app).main(
            args=_one_set_a_field(words) or ["--help"], prog_name="windtunnel", standalone_mode=False
        )
    except OSError as error:
        if error.errno not in _NO_FILE or error.filename is None:
            raise
        raise FileError(str(error.filename)[:60], error.strerror, "the path of a file") from error
    sys.stdout.flush()
    return code if isinstance(code, int) else 0


def _one_set_a_field(words: Sequence[str]) -> list[str]:
    """`--set a=1 b=2` as `--set a=1 --set b=2`: people give several fields behind one option. Words behind `--` stay."""
    asked: list[str] = []
    for number, word in enumerate(words):
        if word == "--":
            return [*asked, *words[number:]]
        if len(asked) > 1 and asked[-2] == "--set" and re.fullmatch(_SETTING, word) and not os.path.exists(word):
            asked.append("--set")
        asked.append(word)
    return asked


def _settle_process() -> None:
    """What holds for a process that is one command: no plugins of pydantic, and fewer searches for circles of dead objects."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.set_threshold(GARBAGE)


_NO_NUMBER = r"is not a valid int(eger)?( range)?$"


def usage_message(error: Any) -> str:
    """Typer's message in one line, with the nearest option and a pointer to the help."""
    context = getattr(error, "ctx", None)
    message = str(getattr(error, "message", "") if hasattr(error, "option_name") else error.format_message()).rstrip(".")
    if context is not None and hasattr(error, "option_name"):
        if error.option_name == "--html":
            instead = "--json FILE has all that it prints"
            if not any(o == "--json" for p in context.command.params for o in p.opts):
                instead = "its text can be kept with > FILE"
            return f"`{context.command_path}` writes no page; {instead}. Pages: {', '.join(WITH_PAGE)}."
        return f"{message}.{_meant(error.option_name, context)} `{context.command_path} --help` lists the options."
    message = re.sub(_NO_NUMBER, "is no whole number, such as 64 or 2k", message)
    fields = re.findall(_FIELD, message)
    if fields and context is not None and any("--set" in parameter.opts for parameter in context.command.params):
        message += f". Each field comes behind --set: {' '.join(f'--set {field}' for field in fields)}"
    return f"{message}." + (f" See `{context.command_path} --help`." if context is not None else "")


def _meant(option: str, context: Any) -> str:
    """What to type in place of an option that a verb does not have: its own word for it, a verb of its kind (serve-predict of
    serve-fleet) that has it, another one of its own, or a field of its job; "" if none is near."""
    command = context.command
    own = [name for parameter in command.params for name in parameter.opts if name.startswith("--")]
    if same := same_option(option, own):
        return f" Did you mean {same}?"
    kind = f"{str(context.info_name).partition('-')[0]}-"
    for verb in (name for name in verbs_of(packages=False) if name.startswith(kind) and context.parent is not None):
        other = context.parent.command.get_command(context.parent, verb)
        if any(option in parameter.opts for parameter in getattr(other, "params", ())):
            return f" `{context.parent.command_path} {verb}` has it."
    job = getattr(command, "takes_short", False)
    near = nearest_option(option, [*own, *(SHORT if job else ())])
    if near is None and job:
        from windtunnel.spec import Job
        from windtunnel.spec.loading.explain import fields_for

        fields = [f"--set {field}=…" for field in fields_for(option.lstrip("-").replace("-", "_"), Job)]
        return f" A field of the job comes behind --set: {' or '.join(fields)}." if fields else ""
    return f" Did you mean {near}?" if near else ""


def _fail(message: str, code: int) -> int:
    with suppress(OSError):
        print(f"windtunnel: {message}", file=sys.stderr)
    return code
