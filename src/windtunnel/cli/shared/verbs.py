"""A group of verbs, each imported on first use."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.units import parse_whole
from windtunnel.base.verbs import OTHERWISE, find_verb, verbs_of
from windtunnel.cli.shared.amounts import check_one_machine, name_machine

SHORT = {
    "--gpus": "cluster.gpus",
    "--tp": "plan.tp",
    "--pp": "plan.pp",
    "--cp": "plan.cp",
    "--ep": "plan.ep",
    "--dp": "plan.dp",
    "--vpp": "plan.vpp",
    "--micro-batch": "plan.micro_batch",
    "--batch": "plan.global_batch",
    "--seq": "plan.seq",
    "--framework": "runtime.framework",
}
"""Short options of every verb with a JOB and --set: option -> the field that it sets."""


def spell_short(words: list[str], own: Collection[str]) -> list[str]:
    """A command line with its short options as `--set`s; `own`: options that the verb has itself."""
    spelled: list[str] = []
    place = 0
    while place < len(words):
        option, equals, value = words[place].partition("=")
        if words[place] == "--":
            return [*spelled, *words[place:]]
        if option in SHORT and option not in own:
            if not equals:
                place += 1
                value = words[place] if place < len(words) else ""
                if not value or value.startswith("--"):
                    raise SpecError(option, value or Nothing(), f"a value of {SHORT[option]}")
            spelled += ["--set", f"{SHORT[option]}={value}"]
        else:
            spelled.append(words[place])
        place += 1
    return spelled


def spell_whole_numbers(words: list[str], options: Collection[str]) -> list[str]:
    """A command line whose values of `options`, which take whole numbers, are digits: `2k` is 2000, of lengths `128k` is 131072."""
    spelled = list(words)
    for place, word in enumerate(words[: words.index("--") if "--" in words else len(words)]):
        option, equals, value = word.partition("=")
        at = place if equals else place + 1
        if option not in options or at == len(words):
            continue
        with suppress(ValueError):
            digits = str(parse_whole(value if equals else words[at], binary=option.endswith("-len")))
            spelled[at] = f"{option}={digits}" if equals else digits
    return spelled


class JobCommand(TyperCommand):
    """A verb; one with a JOB and --set also takes the options of SHORT."""

    verb = ""
    """Its name in the table of verbs."""

    @property
    def takes_short(self) -> bool:
        names = {parameter.name for parameter in self.params}
        return "job" in names and not names.isdisjoint(("sets", "overrides"))

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        own = {option for parameter in self.params for option in parameter.opts}
        if self.takes_short:
            args = spell_short(args, own)
        whole = {option for parameter in self.params if parameter.type.name in ("int", "int range") for option in parameter.opts}
        args = spell_whole_numbers(args, whole)
        args = name_machine(args, own)
        if any("--on" in parameter.opts and not getattr(parameter, "multiple", False) for parameter in self.params):
            check_one_machine(args)
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        if self.takes_short:
            own = {option for parameter in self.params for option in parameter.opts}
            with formatter.section("Short for --set"):
                formatter.write_dl([(option, path) for option, path in SHORT.items() if option not in own])

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        if self.epilog is None and (examples := find_verb(self.verb).examples):
            self.epilog = f"\b\nExamples:\n{examples}"
        super().format_epilog(ctx, formatter)


class _Commands(dict[str, Any]):
    """Commands of a group by name, each built on first use."""

    def __init__(self, group: str) -> None:
        super().__init__()
        self._group = group

    def __missing__(self, name: str) -> Any:
        verb = find_verb(f"{self._group} {name}".lstrip())
        if verb.is_group:
            command = typer.main.get_command(application(verb.name, verb.about))
        else:
            from windtunnel.cli.shared.options import command_of

            one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            one.command(name, cls=JobCommand, help=verb.about)(command_of(verb))
            command = typer.main.get_command(one)
            assert isinstance(command, JobCommand)
            command.verb = verb.name
        command.name = name
        self[name] = command
        return command


def group_of(name: str) -> type[TyperGroup]:
    """The class of a group that lists its verbs without importing them. Those that other packages add to the command line itself
    are looked for when a name is none of its own, or all are listed.

    An argument that is not a verb goes to the verb OTHERWISE, if there is one; where that has `shown`, so does no argument at all.
    """
    own = verbs_of(name, packages=False)
    shown = find_verb(f"{name} {OTHERWISE}").shown if OTHERWISE in own else ""

    def verbs_with(word: str = "") -> dict[str, str]:
        return own if word in own else verbs_of(name)

    class Group(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = _Commands(name)

        def parse_args(self, ctx: Any, args: list[str]) -> Any:
            if OTHERWISE in own and (args and args[0] not in (*own, "-h", "--help") or not args and shown):
                args = [OTHERWISE, *args]
            return super().parse_args(ctx, args)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(verbs_with())

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return self.commands[cmd_name] if cmd_name in verbs_with(cmd_name) else None

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Verbs"):
                formatter.write_dl(
                    [(shown if shown and word == OTHERWISE else word, about) for word, about in verbs_with().items()]
                )

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and not args[0].startswith("-") and args[0] not in verbs_with(args[0]):
                raise UnknownName("verb", args[0], list(verbs_with()))
            return super().resolve_command(ctx, args)

    return Group


def bare_application(group: str = "", completion: bool = False) -> typer.Typer:
    """A Typer application over the verbs of a group, without a callback. `completion` adds --install-completion and
    --show-completion."""
    return typer.Typer(
        cls=group_of(group),
        add_completion=completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def application(group: str, text: str) -> typer.Typer:
    """A Typer application over the verbs of a group; typed alone it prints its help, or does what OTHERWISE does without words."""
    app = bare_application(group)

    @app.callback(invoke_without_command=True, help=text)
    def show_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    return app
