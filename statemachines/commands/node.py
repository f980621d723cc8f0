"""`gapless node`: a role of a protocol as a process of its own; which roles there are, the registrations say."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from statemachines import catalogue
from statemachines.commands.engine import Engine
from statemachines.commands.lazy import failing, keep_listings, write_summaries
from statemachines.kernel import GaplessError


class RoleGroup(TyperGroup):
    """The roles as commands; each is loaded when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """By the shortest name that is clear."""
        from statemachines.drivers import protocol as drivers

        return sorted(drivers.names())

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """What each role does; none is made a command for it, which takes longer than all else in this help."""
        write_summaries(formatter, {name: _read_help(name) for name in self.list_commands(ctx)})

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The role; one that cannot be had says why when it is run."""
        from statemachines.drivers import protocol as drivers

        try:
            role = typer.Typer(add_completion=False, rich_markup_mode=None)
            role.command(cmd_name)(drivers.command(cmd_name))
            command = typer.main.get_command(role)
            keep_listings(command)
            return command
        except (GaplessError, ImportError) as error:
            return failing(cmd_name, error)


def _read_help(role: str) -> str | None:
    from statemachines.drivers import protocol as drivers

    try:
        return drivers.command(role).__doc__
    except (GaplessError, ImportError) as error:
        return f"cannot be loaded: {error}"


app = typer.Typer(
    cls=RoleGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Run a node as a process, in a role of some protocol: ROLE, or PROTOCOL/ROLE.",
)


@app.callback()
def _options(engine: Engine = "") -> None:
    """Roles come from the registrations."""
    if engine:
        catalogue.use_engine(engine)
