"""`gapless check`: explore the shipped machines exhaustively within bounds."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import msgspec
import typer

from statemachines import catalogue, registry
from statemachines.commands.certificates import recheck_certificates
from statemachines.commands.exits import Exit, end_if
from statemachines.commands.scripts import CounterexampleFiles
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json
from statemachines.timer_registry import check_timers

if TYPE_CHECKING:
    from statemachines_spec.coverage import RowsReached
    from statemachines_spec.explorer.explore import Result, Walker
    from statemachines_spec.explorer.system import System
    from statemachines_spec.liveness.judge import LivenessVerdict
    from statemachines_spec.protocol import SystemSelection


def check(
    protocol: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="Its name, `list`, or module:ATTRIBUTE of one, or of a system.")
    ] = "",
    system: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this system; may be repeated.")] = None,
    size: Annotated[str, typer.Option(help="How large; see `list` (default: the first, seconds).")] = "",
    variant: Annotated[str, typer.Option(help="Other rules; see `list` (default: as it is shipped).")] = "",
    without: Annotated[
        list[str] | None, typer.Option(metavar="ORDER", help="Switch a deadline order off, by its name.")
    ] = None,
    engine: Annotated[str, typer.Option(help="auto, compiled (numba) or plain Python.")] = "auto",
    states_max: Annotated[int, typer.Option(min=1000, help="Give up beyond so many states.")] = 400_000_000,
    threads: Annotated[int, typer.Option(min=1, max=64, help="Threads of the compiled walker.")] = 1,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Show a counterexample as a sequence diagram.")] = False,
    test: Annotated[bool, typer.Option("--test", help="Show a counterexample as a pytest function.")] = False,
    script: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a counterexample there, as a script for `replay`."),
    ] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a counterexample there, as a trace for `analyze`.")
    ] = None,
    itf: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a counterexample there, as ITF for Quint and Apalache.")
    ] = None,
    graphml: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the states of one small system there, as GraphML.")
    ] = None,
    live: Annotated[bool, typer.Option("--liveness", help="Obligations under weak fairness, too.")] = False,
    certificate: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Check what this certificate says, and compare.")
    ] = None,
    certify: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a certificate of each system that held there.")
    ] = None,
    again: Annotated[
        bool,
        typer.Option(
            "--certificates", help="Check all certificates of PROTOCOL (none named: of all), small ones first."
        ),
    ] = False,
    stale: Annotated[
        bool,
        typer.Option("--stale", help="With --certificates: only those whose code has changed, or that are missing."),
    ] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="With --certificates: write those anew that are checked, where all holds.")
    ] = False,
    jobs: Annotated[int, typer.Option(min=1, max=64, help="With --certificates: processes.")] = 1,
    no_symmetry: Annotated[
        bool, typer.Option("--no-symmetry", help="Explore states that differ only in who is who as well.")
    ] = False,
    cells: Annotated[
        bool, typer.Option("--cells", help="At the end, also rows that were reached in some of their states only.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")] = False,
) -> None:
    """Explore a protocol exhaustively: every interleaving, loss, copy and fault within bounds that are printed.

    For PROTOCOL `module:ATTRIBUTE` serves too: of a protocol, of a System, or of a function that makes one.

    A run over all systems ends with the rows of the machines that none of them reached, and entries by component.

    Exit code 0: checked within these bounds, everything held. 1: a property breaks; a shortest run is shown. 3: stopped
    before the bounds were reached, or something that must happen sometimes never did. With `--liveness` also: the
    graph is too large, or an obligation is open in no state of any system.
    """
    from statemachines_spec import certificates

    begin_work(compiles=True)
    if again:
        recheck_certificates((protocol,) if protocol else (), stale=stale, renew=renew, jobs=jobs, json=json)
        return
    if stale or renew:
        raise ConfigurationError("--stale, --renew", "", "are about certificates; say --certificates as well")
    if certificate is not None:
        _again(certificate, engine, threads, json)
        return
    if protocol == "list":
        _list(json)
        return
    picked = _picked(protocol, tuple(system or ()), size, variant, tuple(without or ()))
    files = CounterexampleFiles(picked.owner, picked.variant, script, trace, itf)
    if graphml is not None:
        _write_graph(picked, graphml)
    results, met, judged, opened = [], True, True, Counter[str]()
    for one in picked.systems:
        in_full = no_symmetry and bool(one.symmetries)
        one = one.in_full() if no_symmetry else one
        result = _explore(one, engine, states_max, threads)
        results.append(result)
        if not json:
            _show(one, result, mermaid, test)
        if result.path is not None:
            files.write(one, result.path)
        interrupted = result.ended == "interrupted"
        if live and result.is_held and result.ended == "complete":
            verdicts, interrupted = _live(picked, one, engine, states_max, json)
            met = all(verdict.is_held for verdict in verdicts or ()) and met
            judged = verdicts is not None and judged
            opened.update({verdict.name.split()[0]: verdict.open_states for verdict in verdicts or ()})
            unmet = [run for verdict in verdicts or () if (run := verdict.run) is not None]
            if unmet and files.judge_ends():
                files.write(one, unmet[0])
        if certify is not None and result.is_held and result.ended == "complete" and not interrupted:
            path = certificates.write(certify, picked.name, picked.size, picked.variant, result, in_full=in_full)
            print(f"certificate: {path}", file=sys.stderr)
        if interrupted:
            break
    if files.are_wanted:
        print("nothing broke, so there is nothing to write of it", file=sys.stderr)
    rows = () if system else _reached(picked, results)
    _show_all(results, rows, cells, json)
    obliged = any(opened.values()) and (bool(system) or all(opened.values()))
    _end(results, met, judged and (obliged or not live))


def _write_graph(picked: SystemSelection, path: Path) -> None:
    from statemachines_spec.state_graph import state_graph, write_graph

    if len(picked.systems) != 1:
        there = ", ".join(one.name for one in picked.systems)
        raise ConfigurationError("--graphml", picked.name, f"is of one system; choose one (--system): {there}")
    graph = state_graph(picked.systems[0])
    write_graph(path, graph)
    print(f"GraphML: {path}: {len(graph):,} states, {graph.number_of_edges():,} transitions", file=sys.stderr)


def _end(results: list[Result], met: bool, judged: bool) -> None:
    """The exit code.  `met`: no obligation stays open for ever; `judged`: there was one, and every one was judged: it
    is open in some system, or in those that are named another is."""
    is_whole = judged and all(result.ended == "complete" and result.is_shown for result in results)
    is_held = met and all(result.is_held for result in results)
    end_if((not is_held, Exit.VIOLATED), (not is_whole, Exit.INCONCLUSIVE))


def _picked(
    protocol: str, names: tuple[str, ...], size: str, variant: str, without: tuple[str, ...]
) -> SystemSelection:  # fmt: skip
    from statemachines_spec.coverage import machines_in
    from statemachines_spec.protocol import all_parts, choose_systems

    if not protocol:
        rule = f"must be one of: {', '.join(all_parts())}; or module:ATTRIBUTE, or `list`"
        raise ConfigurationError("protocol", protocol, rule)
    picked = choose_systems(protocol, names, size, variant, without)
    check_timers(machines_in(picked.systems))
    return picked


def _explore(system: System, engine: str, states_max: int, threads: int) -> Result:
    from statemachines_spec.explorer.explore import explore

    seen = sys.stderr.isatty()

    def progress(walker: Walker, seconds: float) -> None:
        rate = walker.count / max(seconds, 1e-3)
        text = (
            f"{system.name}: {walker.count:,} states, depth {len(walker.levels) - 2}, {rate:,.0f} a second, "
            f"{walker.bytes_held / 2**20:,.0f} MiB"
        )
        print(f"\r{text}\033[K", end="", file=sys.stderr, flush=True)

    try:
        shown = progress if seen else None
        return explore(system, engine=engine, states_max=states_max, progress=shown, threads=threads, partly=True)
    finally:
        if seen:
            print("\r\033[K", end="", file=sys.stderr, flush=True)


def _show(system: System, result: Result, mermaid: bool, test: bool) -> None:
    from statemachines_spec.explorer import counterexample

    print(f"{system.name}: {system.about}")
    for key, value in result.bounds.items():
        print(f"  {key}: {value}")
    print(
        f"  {result.states:,} states, {result.transitions:,} transitions, depth {len(result.levels) - 1}; "
        f"{sum(result.entries.values()):,} entries; {result.cuts:,} transitions cut at the bounds"
    )
    if result.cuts:
        cut = ", ".join(f"{name} ({entries:,} entries)" for name, entries in result.cut_by.items())
        print(f"  cut: {f'beyond the bounds of {cut}, or ' if cut else ''}where the network had no place")
    if result.stand_for:
        print(f"  by symmetry they stand for {result.stand_for:,} states")
    print(f"  purity: every entry made twice, {result.rechecked:,} of them again under another hash seed")
    for name, count in result.sometimes.items():
        print(f"  sometimes {name}: {f'in {count:,} states' if count else 'NEVER'}")
    if result.path is not None:
        print(f"  VIOLATED {result.path.broken}: {result.path.why}; a shortest run, {len(result.path.legs)} steps:")
        shown = counterexample.describe_path(result.path)
        if mermaid:
            shown = counterexample.draw_mermaid(system, result.path)
        elif test:
            shown = counterexample.pytest_function(system, result.path)
        print(shown)
        return
    names = ", ".join(result.always)
    if result.ended == "complete":
        print(f"  checked within these bounds: {names}")
    else:
        why = "interrupted" if result.ended == "interrupted" else "out of room"
        print(f"  PARTIAL ({why}): nothing broke so far, and the bounds were not reached: {names}")
        most = max(result.entries, key=lambda name: result.entries[name])
        print(f"  most entries: {most}, {result.entries[most]:,}; what only grows needs a bound (FsmActor(bound=))")


def _reached(picked: SystemSelection, results: list[Result]) -> tuple[RowsReached, ...]:
    """After all systems: which rows of the machines they reached."""
    from statemachines_spec.coverage import find_reached, machines_in

    machines = catalogue.machines(picked.owner) if picked.owner else machines_in(picked.systems)
    return find_reached(machines, (cell for result in results for cell in result.cells))


def _show_all(results: list[Result], rows: tuple[RowsReached, ...], cells: bool, json: bool) -> None:
    """Print what there is to say after all systems."""
    if json:
        print(plain_json([*map(_for_programs, results), *_reached_for_programs(results, rows)]))
    elif rows:
        _show_reached(results, rows, cells)


def _reached_for_programs(results: list[Result], rows: tuple[RowsReached, ...]) -> list[dict[str, object]]:
    """The same, and entries by component."""
    entries = {result.system: result.entries for result in results}
    return [{"systems": [result.system for result in results], "reached": rows, "entries": entries}] if rows else []


def _show_reached(results: list[Result], rows: tuple[RowsReached, ...], cells: bool) -> None:
    """Print the same."""
    from statemachines_spec import coverage

    print("entries by component:")
    for result in results:
        by_component = ", ".join(f"{name} {number:,}" for name, number in result.entries.items())
        print(f"  {result.system}: {sum(result.entries.values()):,}: {by_component}")
    print(f"rows reached in these {len(results)} systems (those that refuse an event apart):")
    print(coverage.describe_coverage(rows, cells=cells))


def _live(
    picked: SystemSelection, system: System, engine: str, states_max: int, json: bool
) -> tuple[list[LivenessVerdict] | None, bool]:  # fmt: skip
    """Judge the obligations, and print what came of it (on stderr, where stdout is for programs).  None: the graph is
    too large, or Ctrl-C, which is said besides: nothing more is to be done then."""
    from statemachines_spec.liveness.fair_graph import TooLarge
    from statemachines_spec.liveness.judge import STATES_MAX, live

    out = sys.stderr if json else sys.stdout
    seen = sys.stderr.isatty()

    def progress(text: str) -> None:
        print(f"\r{system.name}: {text}\033[K", end="", file=sys.stderr, flush=True)

    try:
        results = live(
            system,
            picked.obligations(system),
            min(states_max, STATES_MAX),
            engine=engine,
            progress=progress if seen else None,
        )
    except (TooLarge, KeyboardInterrupt) as error:
        interrupted = isinstance(error, KeyboardInterrupt)
        why = "interrupted" if interrupted else f"out of room: {error}"
        print(f"  PARTIAL ({why}): nothing is claimed of obligations", file=out)
        return None, interrupted
    finally:
        if seen:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
    due = ", ".join(budget.name for budget in system.budgets if budget.due is not None) or "none"
    text = "weak: once faults have stopped, what stays possible happens; events with a budget that become due"
    print(f"  fairness: {text}: {due}", file=out)
    if not results:
        text = "nothing is claimed: the system may stand still for ever (System(obligations=...), docs/liveness.md)"
        print(f"  no obligations, so {text}", file=out)
    for one in results:
        _show_live(one, out)
    return results, False


def _show_live(one: LivenessVerdict, out: TextIO) -> None:
    from statemachines_spec.explorer import counterexample

    claimed = f", nothing claimed of {one.bounded:,} parts at the bounds" if one.bounded else ""
    if one.way is None or one.then is None or one.round is None:
        there = f"open in {one.open_states:,} states" if one.open_states else "NEVER open, so nothing is claimed"
        print(f"  eventually {one.name}: {one.text}: {there}{claimed}", file=out)
        return
    print(f"  VIOLATED {one.name}: {one.text}; a run after which it never happens:", file=out)
    for title, path in (("", one.way), ("without faults:", one.then), ("again and again:", one.round)):
        if path.legs:
            print("\n".join(filter(None, (title, counterexample.describe_path(path)))), file=out)
    if not one.round.legs:
        print("and then nothing can happen any more: a deadlock", file=out)


def _for_programs(result: Result) -> dict[str, object]:
    from statemachines_spec.explorer import counterexample

    made = msgspec.structs.asdict(result)
    path = made.pop("path")
    del made["cells"]  # of use only together with those of other systems
    if path is not None:
        made["broken"] = path.broken
        made["script"] = path.script
        made["counterexample"] = counterexample.describe_path(path).splitlines()
    return made


def _list(json: bool) -> None:
    """Every protocol's systems, from its registration; on stderr those that do not load."""
    from statemachines_spec.protocol import all_parts

    for name, error in registry.find_broken().items():
        print(f"{name} does not load: {error}", file=sys.stderr)
    if json:
        listed = {
            name: {
                "systems": part.systems,
                "aside": part.aside,
                "variants": part.variants,
                "sizes": part.sizes,
                "orders": {order.name: order.relation for order in part.orders},
            }
            for name, part in all_parts().items()
        }
        print(plain_json(listed))
        return
    for name, part in all_parts().items():
        print(f"{name}, systems ({', '.join(part.sizes)}):")
        for system, about in part.systems.items():
            print(f"  {system:16} {about}")
        if part.aside:
            print("explored where they are named (--system), for something is to break there:")
        for system, about in part.aside.items():
            print(f"  {system:16} {about}")
        print("variants:")
        for variant, about in part.variants.items():
            print(f"  {variant:16} {about}")
        if part.orders:
            print("deadline orders:")
        for order in part.orders:
            print(f"  {order.name!r}: {order.relation}")


def _again(path: Path, engine: str, threads: int, json: bool) -> None:
    from statemachines_spec import certificates

    kept = certificates.read(path)
    system = certificates.system_of(kept)
    result = _explore(system, engine, kept.states + 1_000_000, threads)
    differences = certificates.list_differences(kept, result)
    if json:
        print(plain_json({"compared": certificates.COMPARED, "differences": differences}))
    else:
        of = ", ".join(filter(None, (kept.size, kept.variant))) or kept.protocol
        print(f"{kept.system} ({of}): {kept.states:,} states, {kept.transitions:,} transitions")
        for key, value in kept.bounds.items():
            print(f"  {key}: {value}")
        print(f"  compared: {', '.join(certificates.COMPARED)}")
        for line in differences:
            print(f"  DIFFERS {line}")
        if not differences:
            print(f"  the same; checked within these bounds: {', '.join(kept.always)}")
    end_if((result.ended in ("interrupted", "full"), Exit.INCONCLUSIVE), (differences, Exit.VIOLATED))
