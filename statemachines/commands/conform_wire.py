"""`gapless conform --listen` and `--connect`: an implementation tested over real sockets."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import msgspec

from statemachines.commands.exits import Exit
from statemachines.drivers.tcp import Address
from statemachines.input_file import read_toml
from statemachines.interrupts import begin_work
from statemachines.kernel import ConfigurationError
from statemachines.plain_text import plain_json
from statemachines.testing.conformance import wire_verdict
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.wire_run import (
    ShrunkRun,
    WireRun,
    load_script,
    replay_script,
    save_script,
    shrink_run,
)
from statemachines.testing.conformance.wire_verdict import WireOptions, WireVerdict

EXITS = {
    ConformanceOutcome.PASS: 0,
    ConformanceOutcome.FAIL: Exit.VIOLATED,
    ConformanceOutcome.INCONCLUSIVE: Exit.INCONCLUSIVE,
}


class WirePlan(msgspec.Struct, frozen=True):
    """What else a command asks for: the `role` as it was named, a `script` to be played, where that of a failing run
    is to be saved, and how long it is shortened."""

    role: str
    script: Path | None
    save: Path
    shrink_s: float


def run(role: ConformanceRole, options: WireOptions, command: tuple[str, ...], plan: WirePlan, *, json: bool) -> int:
    """Run the kit, print the address and then the verdict; the exit code."""
    if plan.script is not None:
        options = load_script(plan.script, role.fsm.full_name).apply(options)
    test = WireRun(role, options, command)

    def announce(address: Address) -> None:
        where = "{}:{}".format(*address)
        if json:
            times = msgspec.to_builtins(test.configuration)
            said = {"address": where, "tolerance_s": options.tolerance_s, "seconds": options.seconds}
            print(msgspec.json.encode({**said, "seed": options.seed, "configuration": times}).decode(), flush=True)
            return
        does = "dialling" if test.wire.dials else "listening on"
        print(f"{does} {where} for {options.seconds:g} s; seed {options.seed}")
        print(f"silence counts after {options.tolerance_s:g} s (--tolerance)", flush=True)

    begin_work()
    verdict = asyncio.run(test.judge(announce))
    told = ""
    if plan.script is not None and verdict.outcome is not ConformanceOutcome.FAIL and command:
        verdict, played = asyncio.run(replay_script(role, options, command))
        told = f"  played    {played + 1} times"
    elif verdict.outcome is ConformanceOutcome.FAIL and verdict.violation is not None and command and plan.shrink_s:
        shrunk = asyncio.run(shrink_run(role, options, command, verdict, plan.shrink_s))
        before, verdict, options = verdict, shrunk.verdict, shrunk.options
        told = describe_shrinking(before, shrunk)
    print(plain_json(wire_verdict.json_of(verdict, role)) if json else wire_verdict.text_of(verdict, role))
    if not json and told:
        print(told)
    if verdict.outcome is ConformanceOutcome.FAIL and command and plan.script is None:
        save_script(plan.save, role.fsm.full_name, options)
        if not json:
            side = "--connect" if test.wire.dials else "--listen"
            address = "{}:{}".format(*options.address)
            words = ["gapless", "conform", plan.role, side, address, "--script", str(plan.save), "--", *command]
            print(f"  repeat    {shlex.join(words)}")
    return int(EXITS[verdict.outcome])


def describe_shrinking(before: WireVerdict, shrunk: ShrunkRun) -> str:
    """How much shorter the run is now."""
    after = shrunk.verdict
    sizes = [f"{len(one.inputs)} inputs and {len(one.faults)} faults" for one in (before, after)]
    return f"  shrunk    from {sizes[0]} to {sizes[1]}; {shrunk.attempts} attempts, {shrunk.failed} of them shorter"


def check_side(role: ConformanceRole, listen: str | None, connect: str | None) -> None:
    """Raises `ConfigurationError` where the kit cannot come together with the role in this way."""
    dials = role.wire is not None and role.wire.dials
    given, other = ("--listen", "--connect") if listen is not None else ("--connect", "--listen")
    if (listen is None) == (connect is None):
        raise ConfigurationError("--listen", str(listen), "stands beside --connect; give one of the two")
    if role.wire is not None and dials != (connect is not None):
        does = "listens, and the kit dials it" if dials else "dials the kit"
        raise ConfigurationError(given, str(listen or connect), f"{role.fsm.name} {does}; give {other} in its place")


def read_times(path: Path | None, role: ConformanceRole) -> Any:
    """The times in a TOML file; None: the kit's own.  Raises `ConfigurationError`."""
    if path is None or role.wire is None:
        return None
    found = read_toml(path, "--config", "a configuration", type(role.wire.configuration))
    return found.check() if hasattr(found, "check") else found
