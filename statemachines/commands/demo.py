"""`gapless demo`: the main job, end to end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from statemachines.commands.exits import Exit
from statemachines.commands.progress import bar


def demo(
    path: Annotated[
        Path | None,
        typer.Option("--input", metavar="PATH", help="A text file or folder: each file a topic, each line a message."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where its files go.")] = Path("out/demo"),
    seeds: Annotated[int, typer.Option(min=1, max=100_000, help="Simulated runs.")] = 200,
    store: Annotated[
        str,
        typer.Option(
            metavar="sqlite|postgres", help="postgres: a second, shorter real run on a private PostgreSQL server."
        ),
    ] = "sqlite",
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Watch a real consumer group lose a consumer to SIGKILL and no message; then simulate, judge and draw.

    A leader host, three consumers and a publisher run as processes over TCP and SQLite, and with --store postgres once
    more over PostgreSQL.  Exit code 0 only if every verdict held; without --input it reads its own source, repeated up
    to some 20 000 lines.
    """
    from statemachines.demo.shared_subscriptions import show

    def say(text: str) -> None:
        print(text, file=sys.stderr if json else sys.stdout, flush=True)

    with bar("demo") as advance:
        came = show.run(out, path, seeds, say, advance, store)
    if json:
        print(msgspec.json.encode(came).decode())
    else:
        write(came)
    if not came.held:
        raise typer.Exit(Exit.VIOLATED)


def write(came) -> None:  # type: ignore[no-untyped-def]
    """The verdicts as a table, and where the page is."""
    width = max(len(line.check) for line in came.verdicts)
    print()
    for line in came.verdicts:
        print(f"{line.part:9}  {line.check:{width}}  {'held' if line.held else 'VIOLATED':8}  {line.figure}")
    on_postgres = [] if came.postgres is None else came.postgres.wrong
    for wrong in (came.real.wrong + on_postgres + came.simulated.wrong)[:20]:
        print(f"  {wrong}")
    print(f"\n{'everything held' if came.held else 'NOT everything held'}; {came.seconds:.0f} s; page: {came.page}")
