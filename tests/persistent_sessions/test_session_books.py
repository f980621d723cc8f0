"""The books of reports of sessions: a flow, and owners that come after each other, each by itself."""

from __future__ import annotations

import pytest
from session_story import FIRST, Story, columns_of

from statemachines_reports.persistent_sessions.findings import GAP, Findings
from statemachines_reports.persistent_sessions.histories import Histories
from statemachines_reports.persistent_sessions.session import SessionHistory
from statemachines_reports.persistent_sessions.session_owner import OwnedFlow, OwnerHistory
from statemachines_reports.persistent_sessions.written_rows import PutRequest


@pytest.fixture
def findings():
    return Findings()


@pytest.fixture
def flow(findings):
    """It has taken 1 to 3; its marker says 5."""
    one = OwnedFlow("o", findings)
    one.step(0, "begin", "new", "waiting", -1, -1)
    one.take(1, 1, 1, 3)
    one.step(2, "live_marker", "waiting", "syncing", 1, 5)
    return one


def wrong(findings):
    return [one.detail for one in findings.wrong]


def finish(flow):
    flow.step(8, "polled", "syncing", "finalizing", -1, -1)
    flow.take(9, 1, 4, 4)
    flow.step(10, "settled", "finalizing", "done", -1, -1)


def test_what_comes_while_the_database_is_read_is_kept_and_a_gap_is_not(flow, findings):
    flow.step(3, "live", "syncing", "syncing", 1, 5)
    flow.step(4, "live", "syncing", "syncing", 1, 5)  # once more
    flow.step(5, "live", "syncing", "syncing", 1, 6)
    finish(flow)
    assert flow.expects == (5, 6)
    flow.take(11, 1, 5, 6)
    assert not flow.is_from_database()
    assert wrong(findings) == []


def test_a_marker_of_before_changes_nothing(flow, findings):
    flow.step(3, "live", "syncing", "syncing", 1, 5)
    flow.step(4, "live_marker", "syncing", "syncing", 1, 4)
    finish(flow)
    assert flow.expects == (5, 5)


@pytest.mark.parametrize("back", ["waiting", "fencing"])
def test_behind_a_marker_that_has_no_meaning_any_more_nothing_is_kept_or_cut(flow, findings, back):
    flow.step(3, "live", "syncing", "syncing", 1, 5)
    flow.step(4, "link_lost", "syncing", back, -1, -1)
    flow.step(5, "handed", back, back, -1, -1)
    flow.take(6, 1, 4, 6)
    assert flow.is_from_database()
    assert (flow.k, flow.kept) == (0, 0)
    assert wrong(findings) == []


def test_a_flow_of_the_next_epoch_has_taken_nothing_of_it(flow, findings):
    flow.step(3, "live_marker", "waiting", "syncing", 2, 1)
    flow.step(4, "settled", "finalizing", "done", -1, -1)
    assert wrong(findings) == []
    flow.step(5, "live_marker", "waiting", "syncing", 2, 2)
    flow.step(6, "settled", "finalizing", "done", -1, -1)
    assert wrong(findings) == ["o takes what was kept from 2 on, and has taken up to 0"]


def owner_of(session, token, row):
    """It has asked for the state in that row."""
    owner = OwnerHistory(f"n{token}~1/1", f"n{token}", row)
    owner.token, owner.loaded = token, row
    return owner


def test_who_asked_for_the_state_before_a_newer_owner_may_hear_of_it_later(findings):
    session = SessionHistory("s", findings)
    old, new = owner_of(session, 2, 1), owner_of(session, 3, 2)
    session.load(3, new, 0)
    session.load(4, old, 0)
    assert wrong(findings) == []
    session.ask_commit(5, old, True)
    session.commit(6, old, 0)
    assert wrong(findings) == ["n2~1/1 commits under token 2, and it had been loaded under 3"]
    session.ask_commit(7, new, True)
    session.commit(8, new, 0)
    assert len(wrong(findings)) == 1


def test_the_last_who_takes_over_counts(findings):
    session = SessionHistory("s", findings)
    older, newer = owner_of(session, 2, 1), owner_of(session, 3, 2)
    session.begin_takeover(newer)
    session.begin_takeover(older)
    session.send(3, older, "m", 1, again=True)
    assert wrong(findings) == ["n2~1/1 sends m under token 2, and 3 has taken over"]


def test_a_message_of_two_subscriptions_is_sent_once_for_each_and_with_qos_0_for_itself(findings):
    session = SessionHistory("s", findings)
    owner, written = owner_of(session, 1, 0), session.writer("w")
    for number, qos in ((1, 1), (2, 0), (3, 1)):
        put = PutRequest((1, number), "m", qos, number, stale=False)
        written.ask(put, (1, number - 1))
        session.put(written, put)
    written.take(4, owner.party, owner.token, 1, 1, 3, 0)
    for number in (1, 2, 3):
        written.mark(4, owner.party, owner.token, (1, number))
    assert session.send(5, owner, "m", 1, again=False)
    assert session.send(6, owner, "m", 0, again=False)
    assert session.send(7, owner, "m", 2, again=False)
    assert written.sent == {(1, 1), (1, 2), (1, 3)}
    assert wrong(findings) == []
    session.send(8, owner, "m", 0, again=False)
    assert wrong(findings) == ["m is sent by n1~1/1 as new, and was sent before"]


def test_what_an_owner_of_before_may_have_committed_is_sent_by_the_next(findings):
    session = SessionHistory("s", findings)
    old, new, written = owner_of(session, 1, 0), owner_of(session, 2, 0), session.writer("w")
    for number in (1, 2):
        put = PutRequest((1, number), f"m{number}", 1, number, stale=False)
        written.ask(put, (1, number - 1))
        session.put(written, put)
    written.take(4, old.party, old.token, 1, 1, 2, 0)
    assert session.send(5, new, "m1", 1, again=True)
    session.send(6, new, "m2", 2, again=False)
    assert wrong(findings) == []


def test_an_epoch_that_is_heard_of_late_is_not_the_highest(findings):
    written = SessionHistory("s", findings).writer("w")
    written.hear(3)
    written.hear(2)
    assert written.epoch == 3


@pytest.mark.parametrize(("last", "gaps"), [("starve", []), ("polled", [GAP])])
def test_an_owner_is_in_normal_operation_when_its_flows_have_taken_the_same_step(last, gaps):
    """The rows of its flows follow its own: what a flow without room leaves to be read later is not left out."""
    story = Story()
    story.begin_epoch(1)
    story.store(1, 1, "m1")
    story.load(FIRST, 1)
    story.flow(FIRST, "begin", "new", "waiting")
    story.flow(FIRST, "live_marker", "waiting", "syncing", key="w", term=1, first=2)
    story.resume(FIRST, "polled", "syncing", "normal", key="w")
    story.flow(FIRST, last, "syncing", "behind" if last == "starve" else "done", term=1, first=2)
    found = Histories(columns_of(story.rows)).findings
    assert [one.check for one in found.wrong] == gaps
