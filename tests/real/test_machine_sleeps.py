"""A machine that sleeps: the clock that a loop's timers count by (CLOCK_MONOTONIC) stands still meanwhile, the steady
one (CLOCK_BOOTTIME) goes on, and so do the others; `stepped_clock.py` has both clocks do so in a real process."""

from __future__ import annotations

import time

import pytest
from groups_workload import CONSUMERS, LEADERS, LINES, GroupRun, begin, finish
from stored_group import TENTH

SLEEPER, OTHERS = CONSUMERS[0], CONSUMERS[1:]
"""The network of the first goes by a proxy."""

LEASE_S = (TENTH["ping_interval_ms"] + TENTH["ping_timeout_ms"]) / 1_000


def until(holds, what):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, what
        time.sleep(0.02)


@pytest.mark.long
def test_SS_10_who_slept_while_its_streams_became_others_delivers_nothing_under_its_old_grants(tmp_path):
    with GroupRun(tmp_path, str(tmp_path / "messages.db"), seed=5, times=TENTH) as run:
        everything = run.topics
        run.topics = {topic: lines[: LINES // 2] for topic, lines in everything.items()}
        begin(run)
        assert run.publish("publisher").wait() == 0
        until(lambda: len(run.lines(SLEEPER)) > 20, "the sleeper gets its share")
        child, line = run.nodes[SLEEPER], run.to_host[LEADERS[0]]
        fell, fell_ns = time.monotonic(), time.time_ns()
        line.block()
        child.stop()
        until(lambda: "it expired" in log(tmp_path, f"{SLEEPER}~1"), "it is given up")
        had = {line[1] for line in run.lines(SLEEPER)}
        run.topics = everything
        publisher = run.publish("publisher-2", LINES // 2)
        until(lambda: had <= taken_since(run, fell_ns), "its streams are others'")
        run.set_clock(SLEEPER, slept_s=time.monotonic() - fell)
        woke_ns = time.time_ns()
        child.resume()
        time.sleep(3 * LEASE_S)  # it has the store, and nobody has told it anything yet
        line.heal()
        finish(run, publisher)
        assert run.judge()[0] == []
        got = [line for line in run.lines(SLEEPER) if line[0] == "got"]
        before = {line[5] for line in got if line[6] < fell_ns}
        assert before, "it had got something"
        late = [line for line in got if line[5] in before and line[6] >= woke_ns]
        assert len(late) <= 5, "but for the batch that it had in hand when it fell asleep"


def log(folder, life):
    """What a leader host has said of one life."""
    said = "".join((folder / f"{name}.err").read_text() for name in LEADERS)
    return "\n".join(line for line in said.splitlines() if f" {life}" in line)


def taken_since(run, at_ns):
    """Streams that others have got something of since then."""
    return {line[1] for name in OTHERS for line in run.lines(name) if line[0] == "got" and line[6] > at_ns}
