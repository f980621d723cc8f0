"""`gapless itf`: a trace of Quint or Apalache, followed in a closed system or judged by the table of a machine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from statemachines import catalogue, registry
from statemachines.commands.exits import Exit, end_if
from statemachines.commands.scripts import CounterexampleFiles
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError, Fsm
from statemachines.plain_text import plain_json
from statemachines.trace.itf import ItfTrace, read_itf

if TYPE_CHECKING:
    from statemachines_spec.itf.matching import Match
    from statemachines_spec.protocol import SystemSelection


def itf(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A trace in the Informal Trace Format (.itf.json).")],
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A machine, or a protocol or system: its name or module:ATTRIBUTE.")
    ],
    state: Annotated[
        str, typer.Option("--state", metavar="VAR", help="Of a machine: the variable with its state.")
    ] = "",
    event: Annotated[
        str, typer.Option("--event", metavar="VAR", help="Of a machine: the variable with the event of each step.")
    ] = "",
    places: Annotated[
        list[str] | None,
        typer.Option(
            "--map", metavar="VAR=PLACE", help="Of a system: where VAR stands, e.g. tm.status or *.status; repeatable."
        ),
    ] = None,
    ignored: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="VAR", help="Of a system: leave VAR out; repeatable.")
    ] = None,
    system: Annotated[str, typer.Option(metavar="NAME", help="Of a protocol: which of its systems.")] = "",
    size: Annotated[str, typer.Option(help="How large; see `gapless check list`.")] = "",
    variant: Annotated[str, typer.Option(help="Other rules; see `gapless check list`.")] = "",
    script: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the run there, as a script for `replay`.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Follow a trace of Quint or Apalache (ITF) in a closed system, or judge it by the table of a machine.

    In a system every state of the trace must be one that the system reaches by one transition, or none, from the state
    before. A variable is the component of that name, or stands where `--map` says. Of a machine every step must be a
    row. With `--state` or `--event` TARGET may be a factory of a `transitions` machine, as for `judge`.

    Exit code 0: the whole trace is a run. 1: it is none; the first step that is not is shown. 3: too many states agree.
    """
    begin_work(compiles=True)
    trace = read_itf(file)
    fsm = _machine(target, is_machine=bool(state or event))
    if fsm is not None:
        if places or ignored or system or size or variant or script:
            rule = "judges a machine: --map, --ignore, --system, --size, --variant and --script are of systems"
            raise ConfigurationError("itf", target, rule)
        _judge_machine(fsm, trace, state, event, json)
        return
    if state or event:
        raise ConfigurationError("itf", target, "is no machine; --state and --event are of machines")
    _follow(trace, _system(target, system, size, variant), places or [], ignored or [], script, json)


def _machine(target: str, is_machine: bool) -> Fsm[Any] | None:
    """The machine called so; None where it is something else.  What a factory makes is a `transitions` machine where
    the command says that it is one of machines."""
    if ":" in target:
        found: object = registry.load(target, object, "target")
        if is_machine and not isinstance(found, Fsm) and callable(found):
            from statemachines.adoption.declared_table import adopt_machine

            return adopt_machine(target, found)
        return found if isinstance(found, Fsm) else None
    return None if target in registry.names() else catalogue.machine(target)


def _system(target: str, name: str, size: str, variant: str) -> SystemSelection:
    from statemachines_spec.protocol import choose_systems

    picked = choose_systems(target, (name,) if name else (), size, variant)
    if len(picked.systems) > 1:
        there = ", ".join(one.name for one in picked.systems)
        raise ConfigurationError("system", target, f"has several; choose one (--system): {there}")
    return picked


def _judge_machine(fsm: Fsm[Any], trace: ItfTrace, state: str, event: str, json: bool) -> None:
    from statemachines_spec.itf.machine_rows import judge_rows

    verdict = judge_rows(fsm, trace, state, event)
    if json:
        print(plain_json(verdict))
    elif verdict.wrong:
        print(f"VIOLATED rows of {verdict.machine}: {verdict.wrong}")
    else:
        rows = ", ".join(map(str, verdict.rows)) or "none"
        print(f"{verdict.machine}: {verdict.steps} steps are rows of its table (level: rows); rows: {rows}")
    end_if((verdict.wrong, Exit.VIOLATED))


def _follow(
    trace: ItfTrace, picked: SystemSelection, maps: list[str], ignored: list[str], script: Path | None, json: bool
) -> None:
    from statemachines_spec.itf.matching import match_run

    (system,) = picked.systems
    places = dict(_place(one) for one in maps)
    match = match_run(system, trace, places, ignored)
    if json:
        print(plain_json({"steps": match.steps, "of": match.of, "why": match.why, "broken": _broken(match)}))
    elif match.run is None:
        print(f"{'PARTIAL' if match.bounded else 'VIOLATED'}: state {match.steps} of {match.of}: {match.why}")
    else:
        broken = _broken(match)
        ends = f"; at its end {broken} does not hold" if broken else ""
        print(f"{system.name}: the trace is a run of it: {match.of} states, {len(match.run.legs)} transitions{ends}")
    if match.run is not None:
        CounterexampleFiles(picked.owner, picked.variant, script, None).write(system, match.run)
        return
    raise typer.Exit(Exit.INCONCLUSIVE if match.bounded else Exit.VIOLATED)


def _broken(match: Match) -> str:
    return "" if match.run is None else match.run.broken


def _place(text: str) -> tuple[str, str]:
    name, equals, place = text.partition("=")
    if not (name and equals and place):
        raise ConfigurationError("--map", text, "must be VAR=PLACE, such as tmState=tm.status")
    return name, place
