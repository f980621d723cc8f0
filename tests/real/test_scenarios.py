"""The scenarios of the protocol page that are marked R, over real processes, TCP and SQLite; judged by the consumers'
own files.  Numbers are those of the page; 2 and 19 stand with the tests of several leader hosts."""

from __future__ import annotations

import time

import pytest
from stage import CALM, FOUR, LEADER, ONE, THREE, TWO, Stage, topics

from statemachines.trace.log import read_logs


def asking_since(stage, begin_ns):
    """The consumers that look for a leader under an id that they took after `begin_ns`, by their logs."""
    first = {}
    for log in read_logs(stage.trace):
        for row in log.rows:
            if row[2].rpartition("/")[2] == "borrower":
                first.setdefault((log.head.node, row[3]), row[0])
    return {node for (node, _), at_ns in first.items() if at_ns > begin_ns}


def test_1_4_7_a_later_topic_two_members_and_a_share_for_who_joins(tmp_path):
    with Stage(tmp_path, **CALM) as stage:
        stage.publish(*topics(4), count=10)
        stage.lead()
        stage.join(ONE)
        stage.until_done()
        stage.publish(*topics(8), count=10)
        stage.until_done()
        stage.join(TWO)
        stage.until(lambda: len({line.stream for line in stage.got(TWO)}) == 4, "its share", load=topics(8))
        stage.until_done()
        marks = stage.marks()
        stage.publish(*topics(8), count=10)
        stage.until_done()
        owners = stage.owners(marks)
        assert sorted(len(names) for names in owners.values()) == [1] * 8, "each stream is served by one"
        assert sorted(name for names in owners.values() for name in names) == [ONE] * 4 + [TWO] * 4
        assert stage.wrong() == []
        assert stage.twice() == []


@pytest.mark.long
def test_8_9_a_member_leaves_then_all_do_and_after_a_restart_nothing_is_redelivered(tmp_path):
    """A member expires after ten minutes here, and its lease ends after nine: it is its word that frees its streams."""
    with Stage(tmp_path, **CALM) as stage:
        stage.lead()
        stage.join(ONE)
        stage.join(TWO)
        stage.until_serving(ONE, TWO, load=topics(4))
        stage.leave(TWO)
        marks = stage.marks()
        stage.publish(*topics(4), count=20)
        stage.until_done()
        assert set.union(*stage.owners(marks).values()) == {ONE}
        assert {topic for topic, names in stage.owners(marks).items() if names} == set(topics(4))
        stage.leave(ONE)
        stage.leave(LEADER)
        kept = {topic: len(messages) for topic, messages in stage.published.items()}
        assert stage.committed() == kept
        before = len(stage.twice())
        stage.publish(*topics(4), count=20)
        stage.lead()
        stage.join(THREE)
        stage.until_done()
        assert len(stage.twice()) == before, "nothing comes again"
        got = [(line.stream.partition("/")[2], line.offset) for line in stage.got(THREE)]
        assert all(offset >= kept[topic] for topic, offset in got)


def test_6_the_others_take_over_from_a_member_that_was_killed(tmp_path):
    with Stage(tmp_path) as stage:
        stage.lead()
        for name in (ONE, TWO, THREE):
            stage.join(name)
        stage.until_serving(ONE, TWO, THREE, load=topics(6))
        stage.publish(*topics(6), count=50)
        stage.kill(TWO)
        marks = stage.marks()
        stage.publish(*topics(6), count=20)
        stage.until_serving(ONE, THREE, load=topics(6))
        stage.until_done()
        assert stage.wrong() == []
        owners = stage.owners(marks)
        assert set(owners) == set(topics(6))
        assert set.union(*owners.values()) == {ONE, THREE}


@pytest.mark.long
def test_10_two_thousand_messages_and_joins_in_between(tmp_path):
    with Stage(tmp_path, **CALM) as stage:
        stage.lead()
        stage.join(ONE)
        stage.publish_slowly(topics(10), 200, rate=500)
        for share, name in ((0.1, TWO), (0.3, THREE), (0.5, FOUR)):
            stage.until(lambda share=share: stage.acked() > share * 2_000, f"{share:.0%} to be acknowledged")
            stage.join(name)
        stage.until(lambda: stage.nodes.nodes["publisher-2"].exit_code == 0, "everything to be published")
        stage.until_serving(ONE, TWO, THREE, FOUR, load=topics(10))
        stage.until_done()
        assert stage.acked() > 2_000
        assert stage.wrong() == [], "none is missing"
        assert stage.twice() == []


@pytest.mark.long
def test_12_a_member_unsubscribes_under_load(tmp_path):
    """It finishes what is in its hands, and the others go on from there."""
    with Stage(tmp_path, **CALM) as stage:
        stage.lead()
        stage.join(ONE)
        stage.join(TWO, "--drain", work_ms=50)
        stage.until_serving(ONE, TWO, load=topics(6))
        stage.publish(*topics(6), count=200)
        stage.until_serving(TWO, load=topics(6))
        stage.leave(TWO)
        assert stage.acked() < stage.total(), "it left in the middle"
        stage.until_done()
        assert stage.wrong() == []
        assert stage.twice() == []


def test_17_a_killed_leader_comes_back_and_goes_on_from_its_last_commit(tmp_path):
    with Stage(tmp_path) as stage:
        stage.lead()
        stage.join(ONE)
        stage.join(TWO)
        stage.until_serving(ONE, TWO, load=topics(4))
        stage.publish(*topics(4), count=50)
        stage.until_done()
        kept = {topic: len(messages) for topic, messages in stage.published.items()}
        stage.until(lambda: stage.committed() == kept, "a commit of all that")
        stage.publish(*topics(4), count=50)
        marks = stage.marks()
        stage.until(lambda: stage.marks() != marks, "some of the rest")
        killed_ns = time.time_ns()
        stage.kill(LEADER)
        stage.publish(*topics(4), count=50)
        stage.until(lambda: asking_since(stage, killed_ns) == {ONE, TWO}, "each to give up, and ask under a new id")
        marks = stage.marks()
        stage.lead()
        stage.until_serving(ONE, TWO, load=topics(4))
        stage.until_done()
        late = [line for name in (ONE, TWO) for line in stage.got(name)[marks[name] :]]
        assert {line.stream.partition("/")[2] for line in late} == set(topics(4))
        assert all(line.offset >= kept[line.stream.partition("/")[2]] for line in late)
        assert stage.wrong() == []
