"""`gapless demo`: what protocols do, end to end."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from statemachines.commands.exits import Exit, end_if
from statemachines.commands.progress import bar
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json

LIST = "list"


def demo(
    context: typer.Context,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where its files go.")] = Path("out/demo"),
    seeds: Annotated[int, typer.Option(min=1, max=100_000, help="Simulated runs.")] = 200,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Watch a protocol do its main job in real processes; then simulate, judge and draw.

    `gapless demo PROTOCOL` plays one, without it all play that have a demo.  A protocol may have options of its own:
    `gapless demo list` names them.  Exit code 0 only if every verdict held.
    """
    from statemachines.demo import show
    from statemachines.demo.protocol import DemoStage

    begin_work()
    protocol, words = read_words(context.args)
    if protocol == LIST:
        write_list()
        return
    protocols = (protocol,) if protocol else show.having_demo()
    known = {name: show.options_of(name) for name in protocols}
    for word in words:
        if not any(word in options for options in known.values()):
            listed = ", ".join(sorted({*OWN, *(option for options in known.values() for option in options)}))
            raise ConfigurationError("option", word, f"unknown; there are: {listed}")
    given = {name: show.read_options(name, words) for name in protocols}

    def say(text: str) -> None:
        print(text, file=sys.stderr if json else sys.stdout, flush=True)

    with bar("demo") as advance:
        came = show.run(DemoStage("demo", out, seeds, None, say, advance), given)
    if json:
        print(plain_json(came))
    else:
        write(came)
    end_if((not came.held, Exit.VIOLATED))


OWN = ("--out", "--seeds", "--json")


def read_words(given: list[str]) -> tuple[str, dict[str, str]]:
    """The protocol that is named ("": none), and what the command itself does not know: `--name` -> value.

    Raises `ConfigurationError` for an option without a value, and for a second name.
    """
    protocol, words, left = "", dict[str, str](), list(given)
    while left:
        name, equals, value = left.pop(0).partition("=")
        if not name.startswith("-"):
            if protocol:
                raise ConfigurationError("protocol", name, f"one at a time, and {protocol!r} is named already")
            protocol = name
            continue
        if not equals:
            if not left:
                raise ConfigurationError("option", name, "wants a value")
            value = left.pop(0)
        words[name] = value
    return protocol, words


def write_list() -> None:
    """The protocols that have a demo, and its options."""
    from statemachines.demo import show

    for name in show.having_demo():
        print(f"{name}: {show.demo_of(name).title}")
        for option, about in show.options_of(name).items():
            print(f"  {option}  {about}")


def write(came) -> None:  # type: ignore[no-untyped-def]
    """The verdicts as a table, and where the page is."""
    width = max((len(line.check) for one in came.played for line in one.verdicts), default=0)
    for one in came.played:
        print(f"\n{one.protocol}\n" if len(came.played) > 1 else "")
        for line in one.verdicts:
            print(f"{line.part:9}  {line.check:{width}}  {'held' if line.held else 'VIOLATED':8}  {line.figure}")
        for wrong in one.wrong[:20]:
            print(f"  {wrong}")
    print(f"\n{'everything held' if came.held else 'NOT everything held'}; {came.seconds:.0f} s; page: {came.page}")
