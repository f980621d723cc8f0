"""WireShrink: a run over the wire that failed is made shorter: inputs and faults are left out as long as it fails.

    shrunk = asyncio.run(shrink_run(role, options, command, verdict, bound_s=20.0))

Time is real, so a run need not fail again.  An attempt counts when it does; what is left is what it needed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.input_file import decode_input, read_input
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.interface import InterfaceError
from statemachines.testing.conformance.role import ConformanceRole
from statemachines.testing.conformance.wire_choice import LeftOut
from statemachines.testing.conformance.wire_run import WireRun
from statemachines.testing.conformance.wire_verdict import WireOptions, WireVerdict

LONGER: Final = 1.5
"""An attempt takes at most so many times as long as the run that failed, and half a second."""

TOGETHER: Final = 4
"""So many attempts are made at a time, where the port is free to choose."""

TRIES: Final = 5
"""A script is played so often, until it fails."""


class WireScript(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What repeats a run over the wire: what draws it, and what of that is left out."""

    role: str
    seed: int
    seconds: float
    rate: float
    faults: float
    without: LeftOut

    def apply(self, options: WireOptions) -> WireOptions:
        """The options of a run of this script."""
        return replace(
            options, seed=self.seed, seconds=self.seconds, rate=self.rate, faults=self.faults, without=self.without
        )


class ShrunkRun(msgspec.Struct, frozen=True):
    """The shortest run that failed, after so many `attempts`, of which so many `failed`."""

    verdict: WireVerdict
    options: WireOptions
    attempts: int
    failed: int


async def shrink_run(
    role: ConformanceRole, options: WireOptions, command: tuple[str, ...], verdict: WireVerdict, bound_s: float
) -> ShrunkRun:
    """Shorten a run that failed, for `bound_s` seconds."""
    ends = time.monotonic() + bound_s
    options = _narrow(options, verdict)
    attempts = failed = 0
    together = TOGETHER if options.address[1] == 0 else 1
    candidates = _list_shorter(options.without, verdict)
    while batch := [replace(options, without=without) for without in islice(candidates, together)]:
        if time.monotonic() + options.seconds > ends:
            break
        found = await asyncio.gather(*(_judge(role, tried, command) for tried in batch))
        attempts += len(batch)
        shorter = [pair for pair in zip(batch, found, strict=True) if _is_shorter(pair[1], verdict)]
        failed += len(shorter)
        for tried, after in shorter[:1]:
            assert after is not None
            verdict, options = after, _narrow(tried, after)
            candidates = _list_shorter(options.without, verdict)
    return ShrunkRun(verdict, options, attempts, failed)


async def replay_script(
    role: ConformanceRole, options: WireOptions, command: tuple[str, ...]
) -> tuple[WireVerdict, int]:
    """Play a script until it fails, `TRIES` times at most; the last verdict, and how often it was played."""
    played = 0
    while True:
        played += 1
        verdict = await WireRun(role, options, command).judge(lambda address: None)
        if verdict.outcome is ConformanceOutcome.FAIL or played == TRIES:
            return verdict, played


def _is_shorter(found: WireVerdict | None, verdict: WireVerdict) -> bool:
    """Whether a run failed in the same way, and with less."""
    return found is not None and _sign(found) == _sign(verdict) and _size(found) < _size(verdict)


def _sign(verdict: WireVerdict) -> tuple[Any, ...] | None:
    """What tells a failure from others: what came, and the clause that was broken last."""
    found = verdict.violation
    if found is None:
        return None
    return tuple(one.name for one in found.came), found.expected[0][1][-1:], found.wrong.partition(":")[0]


def _size(verdict: WireVerdict) -> int:
    return len(verdict.inputs) + len(verdict.faults)


def _narrow(options: WireOptions, verdict: WireVerdict) -> WireOptions:
    """The run ends soon after it failed, and nothing is drawn that was not needed."""
    without = replace(
        options.without,
        inputs_from=max(verdict.inputs, default=-1) + 1,
        faults_from=max(verdict.faults, default=-1) + 1,
    )
    return replace(options, seconds=min(options.seconds, verdict.at_ns / 1e9 * LONGER + 0.5), without=without)


def _list_shorter(without: LeftOut, verdict: WireVerdict) -> Iterator[LeftOut]:
    """What else may be left out: all faults, then inputs and faults, halves first."""
    if verdict.faults:
        yield replace(without, faults_from=0)
    for part in _list_parts(verdict.inputs):
        yield replace(without, inputs=without.inputs | part)
    for part in _list_parts(verdict.faults):
        yield replace(without, faults=without.faults | part)


def _list_parts(numbers: tuple[int, ...]) -> Iterator[frozenset[int]]:
    size = (len(numbers) + 1) // 2
    while size:
        for first in range(0, len(numbers), size):
            yield frozenset(numbers[first : first + size])
        size = size // 2


async def _judge(role: ConformanceRole, options: WireOptions, command: tuple[str, ...]) -> WireVerdict | None:
    try:
        return await WireRun(role, options, command).judge(lambda address: None)
    except InterfaceError:
        return None


# -- files ----------------------------------------------------------------------------------------------------------


def save_script(path: Path, role: str, options: WireOptions) -> None:
    """Write what repeats a run."""
    script = WireScript(role, options.seed, options.seconds, options.rate, options.faults, options.without)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(script, order="sorted") + b"\n")


def load_script(path: Path, role: str) -> WireScript:
    """Read it.  Raises `ConfigurationError` for a file that is none, or of another role."""

    def decode(data: Any) -> WireScript:
        script = msgspec.json.decode(data, type=WireScript)
        if script.role != role:
            raise msgspec.ValidationError(f"is of the role {script.role}; test that one, or give a script of {role}")
        return script

    return decode_input(path, "--script", "a script of a run over the wire", read_input(path, "--script"), decode)
