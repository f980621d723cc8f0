"""Random runs of real processes with SIGKILL and SIGSTOP before random accesses; and the judge, on made-up evidence."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from long_cases import mark_long

from statemachines.cursor_recovery.memory import FREE, token
from statemachines.drivers.cursor_recovery import CircularQueue
from statemachines.testing.cursor_recovery.crash_judge import Evidence, HeldBlock, Plan, ReadMessage, judge, messages_in
from statemachines.testing.cursor_recovery.crash_run import check_that_cursors_become_free, run_seed

AT_ONCE = 4


@pytest.mark.long
@pytest.mark.parametrize("runs", mark_long((8, 400), "400"))
def test_random_runs_keep_every_property(runs):
    """Several at once: what a run does most is wait."""
    module = "statemachines.testing.cursor_recovery.crash_run"
    each = runs // AT_ONCE
    programs = [
        subprocess.Popen(
            [sys.executable, "-m", module, "--first", str(first), "--runs", str(each)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for first in range(0, runs, each)
    ]
    said = [program.communicate()[0] for program in programs]
    assert [program.returncode for program in programs] == [0] * AT_ONCE, said
    assert all(f"{each} runs, 0 violations" in one for one in said)


def test_a_run_leaves_other_children_of_its_process_alone():
    """One of them that ends meanwhile is still there for whoever waits for it."""
    other = subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])
    os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
    assert run_seed(3) == []
    assert other.wait() == 7


@pytest.mark.parametrize("pool", ["read", "write"])
def test_all_cursors_of_a_pool_may_be_dead_ones(name, child, pool):
    """Whoever judges frees one after the other: what became free first is not taken twice."""
    with CircularQueue.create(name, capacity=128, read_cursors=2, write_cursors=2, threshold=0.02) as queue:
        for cursor in (0, 1):

            def die(cursor=cursor):
                end = CircularQueue.attach(name)
                here = end._here
                ours = token(here.owner.slot, here.owner.incarnation, time.monotonic_ns())
                assert here.words.states[pool][cursor].cas(FREE, ours) == FREE
                os.kill(os.getpid(), signal.SIGKILL)

            assert os.waitstatus_to_exitcode(os.waitpid(child(die), 0)[1]) == -signal.SIGKILL
        assert check_that_cursors_become_free(queue, 0.02) == []


PLAN = Plan(0, 128, 1, 1, ((((1, 2)), (3,)),), ((),), ((),), True)
MESSAGES = messages_in(PLAN)


def whole_run():
    """Nothing went wrong."""
    return Evidence(
        begun=dict(MESSAGES),
        acknowledged=set(MESSAGES),
        deliveries=[ReadMessage(0, 0, 20 * (number // 2), message) for (_, number), message in MESSAGES.items()],
        heads=[(0, 0, 0), (0, 128, 0), (0, 140, 12)],
        held=[HeldBlock("read/0/state", "reader-0~1", 5, 9), HeldBlock("read/0/state", "reader-1~1", 9, 12)],
    )


def twice(seen):
    seen.deliveries.append(ReadMessage(1, 0, 90, seen.deliveries[0].message))


def torn(seen):
    seen.deliveries[0] = ReadMessage(0, 0, 0, seen.deliveries[0].message[:-1] + b"?")


def never_begun(seen):
    del seen.begun[0, 2]


def backwards(seen):
    seen.deliveries.reverse()


def missing(seen):
    seen.deliveries.pop()


def missing_more_than_the_dead_took(seen):
    seen.deliveries.clear()
    seen.lost, seen.readers_killed = 3, 1


def missing_and_not_counted(seen):
    seen.deliveries.pop()
    seen.readers_killed = 1


def counted_without_a_death(seen):
    seen.lost = 1


def too_far(seen):
    seen.heads.append((0, 132, 0))


def behind(seen):
    seen.heads.append((8, 4, 8))


def shared(seen):
    seen.held.append(HeldBlock("read/0/state", "reader-0~2", 11, 11))


def shared_by_one_that_had_it_all_the_time(seen):
    seen.held = [
        HeldBlock("write/1/state", "a", 1, 9),
        HeldBlock("write/1/state", "b", 9, 10),
        HeldBlock("write/1/state", "c", 3, 4),
    ]


def guards(seen):
    seen.guards = False


def stuck(seen):
    seen.stuck.append(("STALE", "for ever"))


@pytest.mark.parametrize(
    ("spoil", "name"),
    [
        (twice, "ONCE"),
        (torn, "INTEG"),
        (never_begun, "INTEG"),
        (backwards, "ORDER"),
        (missing, "ACK"),
        (missing_more_than_the_dead_took, "ACK"),
        (missing_and_not_counted, "ACK"),
        (counted_without_a_death, "ACK"),
        (too_far, "BOUND"),
        (behind, "BOUND"),
        (shared, "EXCL"),
        (shared_by_one_that_had_it_all_the_time, "EXCL"),
        (guards, "SPACE"),
        (stuck, "STALE"),
    ],
)
def test_the_judge_names_what_is_broken(spoil, name):
    seen = whole_run()
    spoil(seen)
    assert name in [violation.name for violation in judge(PLAN, seen)]
