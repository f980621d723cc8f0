"""Lazy: commands that protocols contribute: listed from the registrations, loaded when they are used."""

from __future__ import annotations

import sys
from typing import Any, Final, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from statemachines.kernel import ConfigurationError, GaplessError

COMPLETION: Final = ("install_completion", "show_completion")
"""What typer gives an app of its own, and not a part of one."""


class ProtocolCommands(TyperGroup):
    """Our own commands, and those of protocols; where both have a name, it is ours."""

    def invoke(self, ctx: Any) -> Any:
        """A command that is interrupted ends with a word."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            print("interrupted", file=sys.stderr)
            raise

    def list_commands(self, ctx: Any) -> list[str]:
        """Ours first."""
        own = super().list_commands(ctx)
        return own + sorted(set(list_contributed_commands()) - set(own))

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """No protocol is looked for where the command is ours."""
        own = super().get_command(ctx, cmd_name)
        if own is not None:
            return own
        places = list_contributed_commands().get(cmd_name)
        if places is None:
            return None
        try:
            return load(cmd_name, places)
        except (GaplessError, ImportError) as error:
            return failing(cmd_name, error)


def list_contributed_commands() -> dict[str, dict[str, str]]:
    """Command -> protocol -> the place of its typer app."""
    from statemachines import registry

    found: dict[str, dict[str, str]] = {}
    for one in registry.protocols():
        for command, place in one.commands.items():
            found.setdefault(command, {})[one.name] = place
    return found


def load(name: str, places: dict[str, str]) -> Any:
    """Raises `ConfigurationError` for a name that several protocols give to different commands."""
    from statemachines import registry

    if len(set(places.values())) > 1:
        raise ConfigurationError("command", name, f"is of several protocols: {', '.join(places)}; remove all but one")
    protocol, place = next(iter(places.items()))
    app = registry.load(place, typer.Typer, f"{protocol}, command {name}")
    command = typer.main.get_command(app)
    command.name = name
    command.params = [one for one in command.params if one.name not in COMPLETION]
    return command


def failing(name: str, error: Exception) -> Any:
    """A command that cannot be had: it says why when it is run, whatever it is given."""

    def fail(**given: Any) -> NoReturn:
        raise error

    settings = {"ignore_unknown_options": True, "allow_extra_args": True}
    help_text = f"cannot be loaded: {error}"
    return TyperCommand(name, callback=fail, help=help_text, add_help_option=False, context_settings=settings)
