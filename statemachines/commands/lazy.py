"""Lazy: commands that protocols contribute: listed from the registrations, loaded when they are used."""

from __future__ import annotations

import resource
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from statemachines.commands.command_list import COMMANDS
from statemachines.kernel import ConfigurationError, GaplessError

COMPLETION: Final = ("install_completion", "show_completion")
"""What typer gives an app of its own, and not a part of one."""


OPEN_FILES_MIN: Final = 64
"""With fewer open files an event loop or a database fails to begin, each in words of its own."""

OTHER_OPTIONS: Final = {"ignore_unknown_options": True, "allow_extra_args": True}
"""Of a command that is given options that it does not declare."""


class ProtocolCommands(TyperGroup):
    """Our own commands, and those of protocols; where both have a name, it is ours.  Each is imported when it is used:
    the list of all imports none."""

    def invoke(self, ctx: Any) -> Any:
        """A command that is interrupted ends with a word; one that may open too few files does not begin."""
        allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if allowed != resource.RLIM_INFINITY and allowed < OPEN_FILES_MIN:
            rule = f"must be {OPEN_FILES_MIN} or more; allow more open files (ulimit -n), and run it again"
            raise ConfigurationError("ulimit -n", allowed, rule)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """Ours first."""
        return [*COMMANDS, *sorted(set(list_contributed_commands()) - set(COMMANDS))]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """What each does, in the help, by what one wants: ours as listed, those of protocols as they say themselves."""
        grouped: dict[str, dict[str, str | None]] = {}
        for name, one in COMMANDS.items():
            grouped.setdefault(one.group, {})[name] = one.summary
        contributed = list_contributed_commands()
        others = (name for name in self.list_commands(ctx) if name not in COMMANDS)
        grouped["Operate"] = {name: read_help(name, contributed[name]) for name in others}
        for heading, helps in grouped.items():
            write_summaries(formatter, helps, heading)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """No protocol is looked for where the command is ours."""
        if cmd_name in COMMANDS:
            return load_own(cmd_name)
        places = list_contributed_commands().get(cmd_name)
        if places is None:
            return None
        try:
            return part_of(load(cmd_name, places), cmd_name)
        except (GaplessError, ImportError) as error:
            return failing(cmd_name, error)


@cache
def load_own(name: str) -> Any:
    """One of `COMMANDS`."""
    module, _, attribute = COMMANDS[name].place.partition(":")
    found = getattr(import_module(module), attribute)
    app = found if isinstance(found, typer.Typer) else typer.Typer(add_completion=False, rich_markup_mode=None)
    if app is not found:
        settings = OTHER_OPTIONS if COMMANDS[name].takes_others else {}
        app.command(name, context_settings=settings)(found)
    return part_of(app, name)


def part_of(app: typer.Typer, name: str) -> Any:
    """An app as a command of ours: completion is installed for all of them together."""
    command = typer.main.get_command(app)
    keep_listings(command)
    command.name = name
    command.params = [one for one in command.params if one.name not in COMPLETION]
    return command


def keep_listings(command: Any) -> None:
    """In the help of the command, and of those in it, an indented listing keeps its lines."""
    paragraphs = [
        f"\b\n{one}" if one and all(line.startswith(" ") for line in one.splitlines()) else one
        for one in (command.help or "").split("\n\n")
    ]
    command.help = "\n\n".join(paragraphs)
    for part in getattr(command, "commands", {}).values():
        keep_listings(part)


def write_summaries(formatter: Any, helps: Mapping[str, str | None], heading: str = "Commands") -> None:
    """A section of commands in a help: of each its name, and the first paragraph of its own help."""
    with formatter.section(heading):
        formatter.write_dl([(name, " ".join((text or "").split("\n\n")[0].split())) for name, text in helps.items()])


def list_contributed_commands() -> dict[str, dict[str, str]]:
    """Command -> protocol -> the place of its typer app."""
    from statemachines import registry

    found: dict[str, dict[str, str]] = {}
    for one in registry.protocols():
        for command, place in one.commands.items():
            found.setdefault(command, {})[one.name] = place
    return found


def load(name: str, places: dict[str, str]) -> typer.Typer:
    """The app of a command that protocols contribute.

    Raises `ConfigurationError` for a name that several protocols give to different commands.
    """
    from statemachines import registry

    if len(set(places.values())) > 1:
        raise ConfigurationError("command", name, f"is of several protocols: {', '.join(places)}; remove all but one")
    protocol, place = next(iter(places.items()))
    return registry.load(place, typer.Typer, f"{protocol}, command {name}")


def read_help(name: str, places: dict[str, str]) -> str | None:
    """What such a command says of itself, or why it cannot be had; no command is made of it, which takes longer."""
    try:
        app = load(name, places)
    except (GaplessError, ImportError) as error:
        return f"cannot be loaded: {error}"
    parts = [app.info.help, *(one.help or one.callback.__doc__ for one in app.registered_commands if one.callback)]
    return next((one for one in parts if isinstance(one, str)), None)


def failing(name: str, error: Exception) -> Any:
    """A command that cannot be had: it says why when it is run, whatever it is given."""

    def fail(**given: Any) -> NoReturn:
        raise error

    help_text = f"cannot be loaded: {error}"
    return TyperCommand(name, callback=fail, help=help_text, add_help_option=False, context_settings=OTHER_OPTIONS)
