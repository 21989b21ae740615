"""A group of verbs, each imported on first use."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

from windtunnel.base.errors import Nothing, SpecError, UnknownName
from windtunnel.base.registry import offered_by_packages
from windtunnel.base.units import parse_whole
from windtunnel.cli.shared.amounts import check_one_machine, name_machine

Verbs = dict[str, tuple[str | ModuleType, str]]
"""Verb -> module of `windtunnel.cli` with its `command` (or, for a group, with `VERBS`), or `module:function` where a file has the
commands of several verbs; and its line in the help. A room above the command line states its module in full:
`windtunnel.service.command`. Examples of a verb stand in `examples.toml` by the first of these, or are the module's `EXAMPLES`."""


class Command(NamedTuple):
    """The command of a verb whose file has those of several."""

    command: Callable[..., None]


def verb_module(name: str | ModuleType) -> ModuleType | Command:
    """The module of a verb, or its command, as `Verbs` names it."""
    if not isinstance(name, str):
        return name
    path, _, function = name.partition(":")
    module = import_module(path if path.startswith("windtunnel.") else f"windtunnel.cli.{path}")
    return Command(getattr(module, function)) if function else module


def with_packages(verbs: Verbs, group: str) -> Verbs:
    """The verbs, and behind them those of other packages: entry points of `windtunnel.GROUP`, each a module with its `command` and
    `ABOUT`, its line in the help."""
    return {**{name: (module, module.ABOUT) for name, module in offered_by_packages(group).items()}, **verbs}


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

    shown_as = ""
    """What `examples.toml` calls it."""

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
        if self.shown_as and self.epilog is None:
            import tomllib

            examples = tomllib.loads(Path(__file__).with_name("examples.toml").read_text(encoding="utf-8")).get(self.shown_as)
            self.epilog = f"\b\nExamples:\n{examples}" if examples else None
        super().format_epilog(ctx, formatter)


class _Commands(dict[str, Any]):
    """Commands by name, each built on first use."""

    def __init__(self, verbs_with: Callable[[str], Verbs]) -> None:
        super().__init__()
        self._verbs_with = verbs_with

    def __missing__(self, name: str) -> Any:
        module, text = self._verbs_with(name)[name]
        module_found = verb_module(module)
        if isinstance(module_found, ModuleType) and hasattr(module_found, "VERBS"):
            command = typer.main.get_command(
                application(
                    module_found.VERBS, text, getattr(module_found, "OTHERWISE", None), getattr(module_found, "SHOWN", None)
                )
            )
        else:
            one = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
            one.command(name, cls=JobCommand, help=text, epilog=getattr(module_found, "EXAMPLES", None))(module_found.command)
            command = typer.main.get_command(one)
            assert isinstance(command, JobCommand)
            command.shown_as = module if isinstance(module, str) else ""
        command.name = name
        self[name] = command
        return command


def group_of(own: Verbs, otherwise: str | None = None, packages: str | None = None, shown: str | None = None) -> type[TyperGroup]:
    """The class of a group over verbs that lists them without importing them. `packages`: the group of entry points by which other
    packages add verbs; they are looked for when a name is none of `own`, or all are listed.

    An argument that is not a verb goes to the verb `otherwise`, if there is one. `shown`: what the help calls that verb, if it also
    takes no argument at all.
    """

    def verbs_with(name: str = "") -> Verbs:
        return own if packages is None or name in own else with_packages(own, packages)

    class Group(TyperGroup):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.commands = _Commands(verbs_with)

        def parse_args(self, ctx: Any, args: list[str]) -> Any:
            if otherwise is not None and (args and args[0] not in (*own, "-h", "--help") or not args and shown is not None):
                args = [otherwise, *args]
            return super().parse_args(ctx, args)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(verbs_with())

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return self.commands[cmd_name] if cmd_name in verbs_with(cmd_name) else None

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            with formatter.section("Verbs"):
                named = {otherwise: shown} if shown is not None else {}
                formatter.write_dl([(named.get(name, name), text) for name, (_, text) in verbs_with().items()])

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args and not args[0].startswith("-") and args[0] not in verbs_with(args[0]):
                raise UnknownName("verb", args[0], list(verbs_with()))
            return super().resolve_command(ctx, args)

    return Group


def bare_application(
    verbs: Verbs,
    otherwise: str | None = None,
    completion: bool = False,
    packages: str | None = None,
    shown: str | None = None,
) -> typer.Typer:
    """A Typer application over `verbs`, without a callback. `completion` adds --install-completion and --show-completion;
    `packages`, `shown`: as in `group_of`."""
    return typer.Typer(
        cls=group_of(verbs, otherwise, packages, shown),
        add_completion=completion,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def application(verbs: Verbs, text: str, otherwise: str | None = None, shown: str | None = None) -> typer.Typer:
    """A Typer application over `verbs`; typed alone it prints its help, or does what `shown` says (`group_of`)."""
    app = bare_application(verbs, otherwise, shown=shown)

    @app.callback(invoke_without_command=True, help=text)
    def show_help(ctx: typer.Context) -> None:
        if ctx.invoked_subcommand is None:
            typer.echo(ctx.get_help())

    return app
