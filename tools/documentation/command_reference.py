"""Reference of commands: what `--help` of each command says, as tables."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer
from configuration_reference import make_table
from typer.core import TyperGroup
from typer.main import get_command

from statemachines.cli import app

KEPT = "\b\n"
"""What stands before a listing in help whose lines are kept."""

HELP = ["-h", "--help"]
"""As the application has them: a command keeps the option that it has made first."""


def list_commands() -> Iterator[tuple[str, Any]]:
    """(full name, command) of every command, groups included, in the order of `--help`."""
    yield from _below("gapless", get_command(app))


def write_page() -> str:
    """The page of all commands."""
    root = get_command(app)
    parts = [f"# Commands\n\n{root.help}\n\n{root.epilog}\n"]
    for name, command in list_commands():
        if name != "gapless":
            parts.append(
                f"{'#' * (1 + name.count(' '))} {name}\n\n{inspect.cleandoc(command.help or '').replace(KEPT, '')}\n"
            )
            parts.append(_describe_parameters(name, command))
    return "\n".join(parts)


def _below(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    yield name, command
    if isinstance(command, TyperGroup):
        context = typer.Context(command, help_option_names=HELP)
        for one in command.list_commands(context):
            yield from _below(f"{name} {one}", command.get_command(context, one))


def _describe_parameters(name: str, command: Any) -> str:
    """The usage, and a line for each argument and option, as `--help` has them."""
    context = typer.Context(command, help_option_names=HELP)
    records = [one.get_help_record(context) for one in command.params if one.name != "help"]
    rows = [(f"`{record[0]}`", record[1]) for record in records if record]
    usage = " ".join([name, *command.collect_usage_pieces(context)])
    return f"    {usage}\n\n" + (make_table(("argument or option", "meaning"), rows) if rows else "")
