"""Soak: simulated campaigns, groups and machines driven by Hypothesis, real rounds with SIGKILL, fuzzed frames; for a
given time; prints what it did.

    python tools/soak.py --minutes 10

Appends a line of JSON to out/soak.jsonl after each round.  Exit code 1 at the first violation, with what repeats it.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import time
from pathlib import Path

import msgspec
from hypothesis import seed, settings
from hypothesis.stateful import run_state_machine_as_test

from statemachines.demo import real
from statemachines.kernel import GaplessError
from statemachines.shared_subscriptions.message import BorrowerMessage, LeaderWanted, Ping
from statemachines.testing.group import GROUP, GroupTest, PropertyBroken
from statemachines.wire import Codec, FrameError, Frames, Packet
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import named, shipped

OUT = Path("out/soak")
LOG = Path("out/soak.jsonl")
SEEDS = 40
FRAMES = 50_000
EXAMPLES = 200


class Totals(msgspec.Struct):
    """What was done so far."""

    rounds: int = 0
    runs: int = 0
    faults: int = 0
    delivered: int = 0
    kills: int = 0
    lines: int = 0
    frames: int = 0
    moves: int = 0
    violations: int = 0


def simulate(totals: Totals, scenario: str) -> None:
    """Some more seeds of a scenario, never the same."""
    first = totals.rounds * SEEDS
    for outcome in campaign(named(scenario), range(first, first + SEEDS)):
        totals.runs += 1
        totals.faults += sum(outcome.faults.values())
        totals.delivered += outcome.delivered
        if not outcome.held:
            totals.violations += 1
            print(f"{scenario} seed {outcome.seed}: {outcome.monitor}: {outcome.detail}", file=sys.stderr)
            print(f"repeat it with: gapless simulate {scenario} --seed {outcome.seed}", file=sys.stderr)


def play(totals: Totals) -> None:
    """A real group that loses a consumer to SIGKILL."""
    shutil.rmtree(OUT, ignore_errors=True)
    came = real.run(OUT, None, lambda text: None, lambda done, total: None)
    totals.kills += 1
    totals.lines += came.acknowledged
    for wrong in came.wrong:
        totals.violations += 1
        print(f"real run: {wrong}; its files are in {OUT}", file=sys.stderr)


def fuzz(totals: Totals) -> None:
    """Frames with bytes changed, cut out and put in: nothing but a FrameError may come of them."""
    chance = random.Random(totals.rounds)
    codec = Codec(BorrowerMessage)
    good = [
        codec.encode(Packet("c~1/1", "l~1/1", 1, Ping("c~1/1", 1, 2, 3))),
        codec.encode(Packet("c~1/1", "leader", 2, LeaderWanted("c~1/1", "g", "#"))),
    ]
    for number in range(FRAMES):
        data = bytearray(good[number % 2])
        for _ in range(chance.randint(1, 8)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            for body in Frames().feed(bytes(data)):
                codec.decode(body)
        except FrameError:
            pass
        totals.frames += 1


def drive(totals: Totals) -> None:
    """Whole groups under other examples than in any earlier round."""
    kind = seed(totals.rounds)(type("SoakedGroup", (GroupTest,), {}))
    before = GroupTest.moves
    try:
        run_state_machine_as_test(kind, settings=settings(GROUP, derandomize=False, max_examples=EXAMPLES))
    except PropertyBroken as broken:
        totals.violations += 1
        print(broken, file=sys.stderr)
    totals.moves += GroupTest.moves - before


def main() -> int:
    """Rounds until the time is up."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default 10)")
    end = time.monotonic() + 60 * parser.parse_args().minutes
    scenarios = [name for name in shipped() if name not in ("quiet", "joins")]
    totals = Totals()
    LOG.parent.mkdir(parents=True, exist_ok=True)
    while time.monotonic() < end and not totals.violations:
        simulate(totals, scenarios[totals.rounds % len(scenarios)])
        fuzz(totals)
        drive(totals)
        if totals.rounds % 4 == 0:
            try:
                play(totals)
            except GaplessError as error:
                totals.violations += 1
                print(f"real run: {error}", file=sys.stderr)
        totals.rounds += 1
        with LOG.open("ab") as file:
            file.write(msgspec.json.encode(totals) + b"\n")
    print(
        f"{totals.rounds} rounds: {totals.runs} simulated runs, {totals.faults:,} faults, "
        f"{totals.delivered:,} messages; {totals.moves:,} moves of groups under Hypothesis; "
        f"{totals.kills} real runs with a SIGKILL, {totals.lines:,} lines; {totals.frames:,} fuzzed frames; "
        f"{totals.violations} violations"
    )
    return 1 if totals.violations else 0


if __name__ == "__main__":
    sys.exit(main())
