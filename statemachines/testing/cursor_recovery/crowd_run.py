"""Crowd run: very many processes come to a queue and go, by themselves or by SIGKILL at any moment; judged from
outside.

    python -m statemachines.testing.cursor_recovery.crowd_run --lives 2000 --seed 0

Each life puts some messages and takes some, in a drawn order and never waiting, and notes it in a file of its own; then
it leaves in good order, leaves without a word, or stays until it is killed.  So that some die amid an operation, those
that are to be killed go on putting and taking.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from statemachines.cursor_recovery.memory import SLOTS
from statemachines.drivers.cursor_recovery import CircularQueue, Instruments, Outcome, ReadOutcome
from statemachines.testing.cursor_recovery import crash_run
from statemachines.testing.cursor_recovery.crash_judge import (
    PATIENCE_S,
    CrashViolation,
    Evidence,
    HeldBlock,
    Plan,
    ReadMessage,
    judge,
    message_of,
)

CAPACITY = 4096
THRESHOLD_MS = 20
OPERATIONS = 4
"""Of a life that leaves by itself."""
AT_ONCE = 255
"""So many processes, and the one that starts them: all that a queue takes."""
ENDED = re.compile(rb"^[age]", re.MULTILINE)
"""What a life notes when an operation has ended: a message is put, got, or there is none."""


class Crowd(msgspec.Struct):
    """What a run came to: `lives` of which so many were `killed`, and what was seen."""

    lives: int
    killed: int
    delivered: int
    lost: int
    violations: list[CrashViolation]


def _live(name: str, folder: Path, life: int, seed: int) -> None:
    os.nice(19)  # all of them are busy: whoever starts and kills them would wait for every one of them in turn
    chance = Random(f"{seed}/{life}")
    log = os.open(folder / f"life-{life}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    hook = None
    if life % 2:
        holding = crash_run.HeldCursors(folder / f"held-{life}")
        hook = holding.see
    queue: CircularQueue[bytes] = CircularQueue.attach(name, instruments=Instruments(hook=hook))
    stays = chance.random() < 0.5
    left, number = OPERATIONS, 0
    while stays or left:
        if chance.random() < 0.5:
            size = chance.randint(0, 40)
            os.write(log, f"b {number} {size}\n".encode())
            if queue.try_put(message_of(life, number, size)) is Outcome.WRITTEN:
                os.write(log, f"a {number}\n".encode())
            number += 1
        else:
            _take(queue, log)
        left -= not stays
        if stays and chance.random() < 0.2:
            time.sleep(chance.random() / 20)  # not all of them at once
    if chance.random() < 0.5:
        queue.close()


def _take(queue: CircularQueue[bytes], log: int) -> bool:
    os.write(log, b"t\n")
    got = queue.try_get()
    if got.outcome is ReadOutcome.DELIVERED and got.message is not None:
        os.write(log, f"g {got.position} {got.message.hex()}\n".encode())
    else:
        os.write(log, b"e\n")
    return got.outcome is ReadOutcome.DELIVERED


def run_crowd(seed: int, lives: int, at_once: int = AT_ONCE) -> Crowd:
    """So many lives, `at_once` of them at one time."""
    with tempfile.TemporaryDirectory(prefix="gapless-crowd-") as made:
        folder = Path(made)
        name = f"crowd-{os.getpid()}-{seed}"
        with CircularQueue[bytes].create(name, capacity=CAPACITY, threshold=THRESHOLD_MS / 1000) as queue:
            killed = _come_and_go(name, folder, seed, lives, at_once)
            seen = Evidence(readers_killed=killed)
            _take_the_rest(queue, folder, lives, seen)
            plan, in_hand = _gather(folder, lives + 1, seen)
            seen.stuck += crash_run.check_that_cursors_become_free(queue, THRESHOLD_MS / 1000)
            lost = queue.stats().lost
            seen.lost = lost + in_hand
            seen.guards = crash_run.guards_hold(queue)
        return Crowd(lives, killed, len(seen.deliveries), lost, judge(plan, seen))


def _come_and_go(name: str, folder: Path, seed: int, lives: int, at_once: int) -> int:
    """Start one life after the other; who is one too many is killed, and somebody now and then once it is half full.
    How many died of it."""
    chance = Random(seed)
    living: list[int] = []
    dying: list[int] = []
    life_of: dict[int, int] = {}
    killed = 0
    for life in range(lives):
        living.append(crash_run.fork(partial(_live, name, folder, life, seed)))
        life_of[living[-1]] = life
        living = [pid for pid in living if os.waitpid(pid, os.WNOHANG)[0] == 0]
        while len(living) >= at_once or (len(living) > at_once // 2 and chance.random() < 0.3):
            dying.append(living.pop(chance.randrange(len(living))))
            os.kill(dying[-1], signal.SIGKILL)
        while len(living) + len(dying) >= at_once:  # on a busy machine the dead of low priority take their time
            killed += _bury(dying.pop(0))
    _await_operations([folder / f"life-{life_of[pid]}" for pid in living])
    for pid in living:
        os.kill(pid, signal.SIGKILL)
    return killed + sum(_bury(pid) for pid in (*dying, *living))


def _await_operations(logs: list[Path]) -> None:
    """Until each has ended an operation: on a busy machine a small crowd would die before it has done anything."""
    until_s = time.monotonic() + PATIENCE_S
    for log in logs:
        while not (log.exists() and ENDED.search(log.read_bytes())) and time.monotonic() < until_s:
            time.sleep(0.01)


def _bury(pid: int) -> bool:
    """Wait until it is dead; whether it died of SIGKILL."""
    return os.WIFSIGNALED(os.waitpid(pid, 0)[1])


def _take_the_rest(queue: CircularQueue[bytes], folder: Path, life: int, seen: Evidence) -> None:
    log = os.open(folder / f"life-{life}", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    until_s = time.monotonic() + PATIENCE_S
    while queue.stats().used:
        if not _take(queue, log):
            time.sleep(0.001)
        if time.monotonic() > until_s:
            seen.stuck.append(("READ", f"what is left does not come: {queue.stats()}"))
            break
    os.close(log)


def _gather(folder: Path, lives: int, seen: Evidence) -> tuple[Plan, int]:
    """What the lives noted: the plan that they turned out to have, and how many died while they took: each may have had
    a message that was delivered to it, and could not say so."""
    in_hand = 0
    sizes: list[tuple[tuple[int, ...], ...]] = []
    for life in range(lives):
        blocks: list[tuple[int, ...]] = []
        lines = crash_run.lines_of(folder / f"life-{life}")
        in_hand += lines[-1:] == ["t"]
        for line in lines:
            kind, first, *rest = [*line.split(" "), ""]
            if kind == "b":
                blocks.append((int(rest[0]),))
                seen.begun[life, int(first)] = message_of(life, int(first), int(rest[0]))
            elif kind == "a":
                seen.acknowledged.add((life, int(first)))
            elif kind == "g":
                seen.deliveries.append(ReadMessage(life, 0, int(first), bytes.fromhex(rest[0])))
        sizes.append(tuple(blocks))
        for line in crash_run.lines_of(folder / f"held-{life}"):
            cursor, since_ns, until_ns = line.split(" ")
            seen.held.append(HeldBlock(cursor, f"life {life}", int(since_ns), int(until_ns)))
    return Plan(0, CAPACITY, 4, 4, tuple(sizes), (), (), False, THRESHOLD_MS), in_hand


def main(arguments: Sequence[str] | None = None) -> int:
    """One crowd; 1 if it broke a property."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lives", type=int, default=2000)
    parser.add_argument("--at-once", type=int, default=AT_ONCE, help=f"1 to {SLOTS - 1}: one place is this process's")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    if not 1 <= given.at_once < SLOTS:
        parser.error(f"--at-once: 1 to {SLOTS - 1} are possible, {given.at_once} is not")
    begun_s = time.monotonic()
    crowd = run_crowd(given.seed, given.lives, given.at_once)
    for name, text in crowd.violations:
        print(f"{name}: {text}", flush=True)
    print(
        f"{crowd.lives} lives, {crowd.killed} killed, {crowd.delivered} messages, {crowd.lost} lost, "
        f"{len(crowd.violations)} violations, {time.monotonic() - begun_s:.1f} s"
    )
    return int(bool(crowd.violations))


if __name__ == "__main__":
    sys.exit(main())
