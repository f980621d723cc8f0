"""An owner that stood still takes or sends what a later owner has committed or sent: that is no repetition.  A message
that is taken, committed or sent a second time otherwise is one."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from session_story import FIRST, SECOND, SESSION, THIRD, Story, columns_of, told

from statemachines_reports.columns import NEEDED, Columns
from statemachines_reports.persistent_sessions.histories import Histories
from statemachines_sim.campaign import campaign
from statemachines_sim.scenario import Phases, find_scenario


def wrong_of(columns):
    """Check and words of all that is wrong."""
    return [(one.check, one.detail) for one in Histories(columns).findings.wrong]


def continued(tell_more):
    """What is wrong with the story of a takeover, in which the third owner has committed 2/2, when it goes on."""
    story = Story()
    story.rows = told()
    tell_more(story)
    return wrong_of(columns_of(story.rows))


def test_a_superseded_owner_takes_what_the_later_owner_has_committed():
    assert continued(lambda story: story.take(SECOND, 2, 2, 2)) == []


def test_a_superseded_owner_commits_what_the_later_owner_has_committed():
    def tell_more(story):
        story.take(SECOND, 2, 2, 2)
        story.row(SECOND, "ask", "mark_delivered", key="w", term=2, first=2)

    assert continued(tell_more) == [("twice", f"w: 2/2 is committed a second time, by {SECOND}")]


def test_an_owner_takes_again_what_it_has_committed():
    found = continued(lambda story: story.take(THIRD, 2, 2, 2))
    assert ("twice", f"w: 2/2 is taken again by {THIRD} under token 3, and was committed under 3") in found


def test_a_later_owner_takes_what_an_owner_before_it_has_committed():
    found = continued(lambda story: story.take(THIRD, 2, 1, 1))
    assert ("twice", f"w: 2/1 is taken again by {THIRD} under token 3, and was committed under 2") in found


def test_D_560_what_comes_marked_is_a_repetition_though_no_log_says_that_it_was_sent_before():
    rows = tell_late(FIRST, 1).rows[:-1]
    sums = Histories(columns_of(rows)).sums
    assert (sums[0, "sent_new"], sums[0, "sent_again"]) == (1, 1)


def sent_late(owner, packet):
    """What is wrong with that story."""
    return wrong_of(columns_of(tell_late(owner, packet).rows))


def tell_late(owner, packet):
    """A story in which the first owner commits m1 under packet 1 and stands still; the second loads
    that and sends m1 marked; then an owner sends m1 unmarked."""
    story = Story()
    story.load(FIRST, 1)
    story.begin_epoch(1)
    story.store(1, 1, "m1")
    story.take(FIRST, 1, 1, 1)
    story.ask_commit(FIRST, 1)
    story.load(SECOND, 2)
    story.send(SECOND, "m1", 1, again=1)
    told_of = {"machine": "delivery", "source": "committing", "dest": "ready"}
    story.row(f"{FIRST}:{SESSION}", "step", "state_committed", **told_of)
    story.row(FIRST, "ask", "mark_delivered", key="w", term=1, first=1)
    story.send(owner, "m1", packet)
    return story


def test_a_superseded_owner_sends_late_what_the_later_owner_has_sent_marked():
    assert sent_late(FIRST, packet=1) == []


@pytest.mark.parametrize(("owner", "packet"), [(FIRST, 2), (SECOND, 1)])
def test_a_message_that_is_sent_again_unmarked_by_the_same_owner_or_under_another_packet_is_found(owner, packet):
    assert ("twice", f"m1 is sent by {owner} as new, and was sent before") in sent_late(owner, packet)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """The rows of a run in which nodes stood still while others took their sessions over."""
    folder = tmp_path_factory.mktemp("stopped")
    scenario = replace(find_scenario("persistent_sessions/stopped_nodes"), phases=Phases(5.0, 120.0))
    (outcome,) = campaign(scenario, range(14, 15), out=folder, processes=1)
    assert outcome.is_held
    (path,) = folder.glob("trace-*.parquet")
    return pq.read_table(path, columns=list(NEEDED))


def repeated(table, place, behind):
    """The rows, with the one at `place` once more behind another."""
    return Columns(table.take([*range(behind + 1), place, *range(behind + 1, len(table))]))


def place_of(table, since=0, **wanted):
    """The first row with these values."""
    columns = {name: table[name].to_pylist() for name in wanted}
    rows = range(since, len(table))
    return next(row for row in rows if all(columns[name][row] == value for name, value in wanted.items()))


def test_a_clean_run_with_stopped_nodes_has_no_repetition(stopped):
    """Superseded owners take in it what later owners have committed."""
    assert wrong_of(Columns(stopped)) == []


def test_a_message_that_a_run_sends_a_second_time_unmarked_is_found(stopped):
    sent = place_of(stopped, kind="send", event="publish", grant=0, first=1)
    found = wrong_of(repeated(stopped, sent, behind=sent))
    assert [check for check, detail in found if "as new, and was sent before" in detail] == ["twice"]


def test_a_row_that_a_run_takes_again_after_its_commit_is_found(stopped):
    taken = place_of(stopped, kind="step", event="take", first=1, last=1)
    writer, instance = stopped["key"][taken].as_py(), stopped["instance"][taken].as_py()
    owner = instance.partition(":")[0]
    marked = place_of(stopped, since=taken, event="mark_delivered", instance=owner, key=writer, first=1)
    found = wrong_of(repeated(stopped, taken, behind=marked))
    assert "twice" in [check for check, detail in found if f"1/1 is taken again by {owner}" in detail]
