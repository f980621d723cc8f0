"""The invariants of the machines tell records that break them from records that do not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.kernel import InvariantViolated, Map, Node
from statemachines.shared_subscriptions.assignment import AssignmentRecord, AssignmentStatus
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import KnownStream, LeaderRecord, LeaderStatus, Rank
from statemachines.shared_subscriptions.member import MemberRecord
from statemachines.shared_subscriptions.message import UpdateProgress
from statemachines.shared_subscriptions.private_subscription import PRIVATE, PrivateRecord
from statemachines.shared_subscriptions.session import SESSION
from statemachines.shared_subscriptions.session_record import OwnerLease, SessionRecord, StreamReading, reading_key
from statemachines.shared_subscriptions.stream import Finish, StreamLink, StreamRecord, StreamStatus

C = Configuration()
LINK = StreamLink("c1~1/1", "leader~1/1", 5, 2)


def holds(fsm, clause):
    """Looked up when it is needed: where the invariant is gone, nothing tells the two apart."""
    (found,) = [one.holds for one in fsm.invariants if one.clause == clause]
    return found


HELD = StreamRecord(LINK, "s", StreamStatus.GRANTED, grant=3)
READING = StreamReading("c1~1/1", "s", 3, progress=4, delivered=6, fetched=9)
KEY = reading_key("c1~1/1", "s")
SESSION_RECORD = SessionRecord(
    "c1~1/0",
    buffer=8,
    leases=Map({"c1~1/1": OwnerLease(streams=Map({"s": True}))}),
    readings=Map({KEY: READING}),
)


@pytest.mark.parametrize("change", [{"installed": Map({"t": True})}, {"seen": Map({"t": (0, 0)})}])
def test_SS_191_of_all_that_is_read_or_was_found_a_progress_is_known(change):
    good = PrivateRecord("c1~1/1", "#", 0, progress=Map({"s": 4}), installed=Map({"s": True}))
    assert holds(PRIVATE, "SS-191")(good)
    assert not holds(PRIVATE, "SS-191")(replace(good, **change))


ASSIGNED = AssignmentRecord(LINK, "0.0/s", 7, 0, 1, 1, 1, AssignmentStatus.GRANTED)
MEMBER = MemberRecord(LINK, C, grants=Map({7: "0.0/s"}), count=1)
LEADING = replace(
    LeaderRecord("leader~1/1", "g", "#", C),
    members=Map({"c1~1/1": MEMBER}),
    assignments=Map({"0.0/s": ASSIGNED}),
    streams=Map({"0.0/s": KnownStream(0, 0, 0)}),
    ranks=Map({(0, 0): Rank(streams=Map({"0.0/s": True}), live=1, open=True)}),
    live=1,
)


@pytest.mark.parametrize(
    "change",
    [{"members": Map({"c1~1/1": replace(MEMBER, count=0)})}, {"live": 0}, {"assignments": Map()}, {"ranks": Map()}],
)
def test_SS_161_what_members_count_is_assigned_and_every_live_stream_is_somewhere(change):
    assert holds(LEADER, "SS-161")(LEADING)
    assert not holds(LEADER, "SS-161")(replace(LEADING, **change))


@pytest.mark.parametrize(
    ("fsm", "record", "event", "name"),
    [
        (
            LEADER,
            replace(
                LEADING, epoch=5, status=LeaderStatus.LEADING, members=Map({"c1~1/1": replace(MEMBER, grants=Map())})
            ),
            UpdateProgress("c1~1/1", 5, 2, "0.0/s", 6, 1, False),
            "assignments-have-owners",
        ),
        (
            SESSION,
            replace(SESSION_RECORD, readings=Map({KEY: replace(READING, fetched=5)})),
            Finish("c1~1/1", "s", 3),
            "offsets-in-order",
        ),
        (
            SESSION,
            replace(SESSION_RECORD, leases=Map({"c1~1/1": OwnerLease()})),
            Finish("c1~1/1", "s", 3),
            "owners-match",
        ),
    ],
)
def test_SS_106_SS_112_SS_160_a_step_on_what_breaks_an_invariant_says_so_at_once(fsm, record, event, name):
    """And not only when everything is looked at, after many steps."""
    with pytest.raises(InvariantViolated, match=name):
        Node(fsm, record, name="n", now_ns=0, check=True).feed(event, 0)
