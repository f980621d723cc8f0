"""Nobody delivers beside its successor: consumers that are stopped, and networks that are cut in two."""

from __future__ import annotations

import time

import pytest
from long_cases import mark_long
from stage import ONE, TWO, Stage, topics

from statemachines.drivers.tcp import parse_address
from statemachines.testing.fault_proxy import run_in_thread
from statemachines.trace.log import read_logs

BATCH = 5


def takes_over(stage, streams):
    """Whether the first consumer has got something of each of these streams under a later grant than the second."""
    theirs = {line.stream: line.grant for line in stage.got(TWO)}
    ours = {line.stream: line.grant for line in stage.got(ONE)}
    return all(ours.get(stream, 0) > theirs[stream] for stream in streams)


def last_grants(stage, name):
    """Stream -> the grant under which it last got something."""
    return {line.stream: line.grant for line in stage.got(name)}


def held_topics(held):
    """The topics of these streams."""
    return [stream.partition("/")[2] for stream in held]


def second_consumer(stage):
    """The rows of its log."""
    (log,) = (log for log in read_logs(stage.trace) if log.head.node == TWO)
    return log.rows


def cut_off(stage, since):
    """Whether the second consumer has looked for a leader twice since (wall nanoseconds), and heard from nobody.

    That its lease has ended is not enough: on a slow machine it may have ended before the network was cut, and an
    answer that came before the cut may still be read after it; twice in a row nothing came.
    """
    lives = [row for row in second_consumer(stage) if row[2].endswith("/borrower") and row[0] > since]
    return [row[5] for row in lives[-2:]] == ["find_leader_timer"] * 2


def handed_over_since(stage):
    """What the second consumer's session has handed over since its lease ended, or its life under it."""
    rows = second_consumer(stage)
    end = max(at for at, row in enumerate(rows) if row[5] in ("lease_ended", "dismiss"))
    return [row for row in rows[end:] if (row[4], row[5]) == ("tell", "deliver")]


@pytest.mark.long
def test_a_consumer_that_slept_past_its_validity_delivers_only_under_a_new_lease(tmp_path):
    with Stage(tmp_path) as stage:
        stage.lead()
        stage.join(ONE, batch=BATCH)
        stage.join(TWO, batch=BATCH, work_ms=20)
        stage.until_serving(ONE, TWO, load=topics(6))
        stage.publish(*topics(6), count=100)
        stage.until_serving(TWO, load=topics(6))
        sleeper = stage.nodes.nodes[TWO]
        stage.note("pause", TWO)
        sleeper.stop()
        asleep = stage.got(TWO)
        held = last_grants(stage, TWO)
        stage.until(lambda: takes_over(stage, held), "its streams to be handed over", load=held_topics(held))
        assert stage.got(TWO) == asleep
        sleeper.resume()
        stage.until(
            lambda: max(line.grant for line in stage.got(TWO)) > max(held.values()),
            "a new lease",
            load=held_topics(held),
        )
        stage.until_done()
        woken = stage.got(TWO)[len(asleep) :]
        late = [line for line in woken if line.grant <= held.get(line.stream, 0)]
        assert len(late) <= BATCH, "no more than what was handed over before it was stopped"
        assert late == woken[: len(late)], "and nothing of that after it had woken"
        assert stage.wrong() == []


@pytest.mark.long
@pytest.mark.parametrize("way", mark_long(["up", "down", "both"], "both"))
def test_a_consumer_behind_a_partition_delivers_nothing_once_its_streams_are_others(tmp_path, way):
    with Stage(tmp_path) as stage:
        stage.lead()
        with run_in_thread(parse_address(stage.leader)) as proxy:
            stage.join(ONE, batch=BATCH)
            stage.join(TWO, batch=BATCH, work_ms=10, leader="{}:{}".format(*proxy.address))
            stage.until_serving(ONE, TWO, load=topics(6))
            stage.publish(*topics(6), count=100)
            stage.note("partition", TWO)
            proxy.block(way)
            cut = time.time_ns()
            held = last_grants(stage, TWO)
            stage.until(lambda: cut_off(stage, cut), "it to be cut off")
            if way != "down":  # else the leader hears it all the time, and keeps its streams for it
                stage.until(lambda: takes_over(stage, held), "its streams to be handed over", load=held_topics(held))
            stage.publish(*topics(6), count=20)
            stage.until_serving(ONE, load=topics(6))
            assert handed_over_since(stage) == [], "its lease ended before anybody else was granted its streams"
            proxy.heal()
            stage.until_serving(TWO, load=topics(6))
            stage.until_done()
            assert stage.wrong() == []
