"""Counterexamples as files: `gapless check --script FILE --trace DIR --itf FILE`, and `gapless replay FILE`."""

from __future__ import annotations

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from statemachines import registry
from statemachines.commands.exits import Exit, end_if
from statemachines.plain_text import plain_json

if TYPE_CHECKING:
    from statemachines_sim.replay_result import ReplayedScript
    from statemachines_spec.explorer.explore import ExploredPath as Run
    from statemachines_spec.explorer.system import System
    from statemachines_spec.script.script import Script

LISTED = 10
"""Deviations of each sort that are printed; `--json` has more."""


class CounterexampleFiles:
    """Where the first counterexample of a run of `check` is written: `script`, a file for `replay`; `trace`, the
    directory for what the simulator makes of it; `itf`, a file for tools of Quint and Apalache (None: nowhere)."""

    def __init__(
        self, protocol: str, variant: str, script: Path | None, trace: Path | None, itf: Path | None = None
    ) -> None:
        self._protocol = protocol
        self._variant = variant
        self._script = script
        self._trace = trace
        self._itf = itf

    @property
    def are_wanted(self) -> bool:
        """Something is asked for, and not written yet."""
        return any(one is not None for one in (self._script, self._trace, self._itf))

    def judge_ends(self) -> bool:
        """Whether runs of the protocol's scripts judge what must be met in the end, too."""
        from statemachines_spec.script.protocol import part_of

        return part_of(self._protocol).lives

    def write(self, system: System, run: Run) -> None:
        """Write it, or say why it has no script; a second one is not written."""
        from statemachines_spec.script import script as scripts
        from statemachines_spec.script.path_to_script import Unscriptable, script_of

        if self._itf is not None:
            from statemachines_spec.itf.export import export_run

            export_run(self._itf, system, run)
            print(f"ITF trace: {self._itf}", file=sys.stderr)
        script, trace, self._script, self._trace, self._itf = self._script, self._trace, None, None, None
        if script is None and trace is None:
            return
        try:
            made = script_of(system, run, protocol=self._protocol, variant=self._variant)
        except Unscriptable as error:
            print(f"no script and no trace: {error}", file=sys.stderr)
            return
        if script is not None:
            scripts.write(script, made)
            print(f"script: {script}; repeat it with: gapless replay {quote(str(script))}", file=sys.stderr)
        if trace is not None:
            replayed = simulate_script(made, "", trace, data=False)
            broke = replayed.broken.get(replayed.name, "it does not break there")
            print(f"trace: {trace}; {replayed.breaks}: {broke}", file=sys.stderr)


def replay(path: Path, content: bytes, variant: str, runtime: bool, trace: Path | None, data: bool, json: bool) -> None:
    """Follow the script that is the content of the file, and print what came of it."""
    from statemachines_spec.script import script as scripts

    made = scripts.read(path, content)
    _check_variant(made, variant)
    if not json:
        bug = f", with the bug {made.bug}" if made.bug and not variant else ""
        rules = f"as {variant}" if variant else made.variant
        rules = f" ({rules}{bug})" if rules or bug else ""
        print(f"script of {made.system}{rules}, {len(made.steps)} steps, breaks {made.breaks}: {made.why}")
    replayed = on_asyncio(made, variant, trace) if runtime else simulate_script(made, variant, trace, data=data)
    if json:
        print(plain_json(replayed))
    else:
        show(replayed)
    end_if((replayed.broken, Exit.VIOLATED), (replayed.followed.stopped, Exit.INCONCLUSIVE))


def simulate_script(made: Script, variant: str, trace: Path | None, *, data: bool) -> ReplayedScript:
    """In the simulator; its trace goes to the directory `trace`."""
    follow = registry.load(made.part.simulator, object, "scripts in the simulator")
    run = follow(made, variant, data=data)  # type: ignore[operator]
    if trace is not None:
        from statemachines_sim.script_trace import write_trace

        write_trace(trace, made, run)
    replayed: ReplayedScript = run.replayed
    return replayed


def on_asyncio(made: Script, variant: str, trace: Path | None) -> ReplayedScript:
    """On the asyncio runtime; the logs of its nodes go to the directory `trace`."""
    follow = registry.load(made.part.asyncio, object, "scripts on the asyncio runtime")
    replayed: ReplayedScript = follow(made, variant, trace)  # type: ignore[operator]
    return replayed


def _check_variant(made: Script, variant: str) -> None:
    if not variant or not made.protocol:
        return
    known = getattr(registry.load_area(made.protocol, "spec"), "variants", {})
    if variant not in known:
        raise registry.make_unknown_error("variant", variant, known)


def show(replayed: ReplayedScript) -> None:
    """What came of a script, for people."""
    followed = replayed.followed
    print(f"followed {followed.steps} of {followed.of} steps" + (f"; {followed.stopped}" if followed.stopped else ""))
    for title, lines in (
        ("unknown to the script, and lost", followed.unknown),
        ("expected, and never sent", followed.missing),
        ("sooner than the script has it", followed.early),
    ):
        for line in lines[:LISTED]:
            print(f"  {title}: {line}")
        if len(lines) > LISTED:
            print(f"  {title}: {len(lines) - LISTED} more")
    ended = "" if replayed.reached else replayed.ended
    for name, detail in replayed.broken.items():
        if name not in (replayed.name, ended):
            print(f"also broken: {name}: {detail}")
    if replayed.reached:
        print(f"VIOLATED {replayed.breaks}: {replayed.broken[replayed.name]}")
    elif ended:
        print(f"VIOLATED {ended}: {replayed.broken[ended]}")
        print(f"that ended the run, so {replayed.breaks} is not judged after it")
    else:
        print(f"{replayed.breaks} does not break here" + ("" if replayed.broken else ", nor does anything else"))
