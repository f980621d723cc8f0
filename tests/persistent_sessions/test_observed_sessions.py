"""The observers of persistent sessions: each property is broken by one run of events, and not by another near it."""

from __future__ import annotations

import pytest

from statemachines.kernel import Map
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.message import Puback, Publish
from statemachines.persistent_sessions.properties.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.properties.delivered_messages import (
    NOTHING,
    CopyDelivered,
    DeliveredMessages,
    PublishedMessages,
    judge_place,
)
from statemachines.persistent_sessions.properties.opened_sessions import (
    OpenedSessions,
    judge_welcome,
)
from statemachines.persistent_sessions.properties.session_owners import (
    judge_count,
    judge_takeover,
    list_unfinished,
)
from statemachines.persistent_sessions.resume_record import NORMAL, SYNCING, YIELDING, ResumeRecord
from statemachines.persistent_sessions.session_host_record import LeaveClient, LoseClient, TakeAcknowledgements
from statemachines.persistent_sessions.takeover_record import TakeoverRecord
from statemachines.persistent_sessions.times import Times
from statemachines.persistent_sessions.writer_flow_record import DONE, WAITING, WriterFlowRecord

OWNER, NEXT = "a~1/1", "b~1/1"
FIRST, SECOND, THIRD = [("t", f"m{n}") for n in (1, 2, 3)]


def names(broken):
    return [one.name for one in broken]


# -- messages -------------------------------------------------------------------------------------------------------


def stored(*copies, **given):
    """One writer has stored these, and they are in flight under the packets 1, 2 and so on."""
    seen = DeliveredMessages(**given)
    for copy in copies:
        seen = seen.observe_stored("w1", copy, publisher="p")
    return seen.observe_committed((copy, place) for place, copy in enumerate(copies, 1))


def delivered(seen, *events, published=NOTHING):
    """What breaks when these come, one after the other."""
    broken = []
    for event in events:
        seen, more = seen.observe_delivery(event, published)
        broken += names(more)
    return broken


def test_GAP_what_need_not_come_comes_after_what_was_stored_later():
    seen = stored(FIRST, SECOND).observe_lost(FIRST)
    late = CopyDelivered(SECOND, 2), CopyDelivered(FIRST, 1)
    assert delivered(seen, *late) == ["GAP"]
    assert delivered(stored(FIRST, SECOND, forgets=True).observe_lost(FIRST), *late) == ["TWICE"]
    assert delivered(seen, *reversed(late)) == []


def test_TWICE_two_rows_bring_a_copy():
    assert names(judge_place(FIRST, ("w1", 1, 1), ("w1", 2, 1))) == ["TWICE"]
    assert judge_place(FIRST, ("w1", 1, 1), ("w1", 1, 1)) == ()


def test_STRANGER_a_session_that_nobody_has_opened_is_given():
    opened, _ = OpenedSessions().observe_opened("c1", "s1")
    assert names(opened.judge_given("s2")) == ["STRANGER"]
    assert opened.judge_given("s1") == ()


def test_what_a_publisher_hands_over_again_counts_from_then_on_and_its_first_answer_counts():
    published = PublishedMessages().observe_handed("m2").observe_answered("m1")
    assert not published.is_known_before("m1", "m2")
    again = published.observe_handed("m2")
    assert again.is_known_before("m1", "m2")
    assert again.observe_answered("m1") == again
    assert not again.is_known_before("m3", "m2"), "it was never answered"


# -- sessions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_present", [True, False])
@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_PRESENT(is_present, was_there, is_clean):
    broken = judge_welcome("s1", is_present=is_present, was_there=was_there, is_clean=is_clean)
    holds = is_present == was_there and not (is_present and is_clean)
    assert set(names(broken)) == (set() if holds else {"PRESENT"})


# -- owners ---------------------------------------------------------------------------------------------------------


def test_ENDS_and_TAKES_name_what_an_owner_has_not_come_to():
    def unfinished(status, flow=DONE, takeover=None):
        flows = Map({"w1": WriterFlowRecord("s1", "w1", OWNER, 1, Times(), status=flow)})
        record = ResumeRecord(OWNER, "c1", 1, Times(), status=status, flows=flows, takeover=takeover)
        return names((*judge_takeover(OWNER, record), *list_unfinished(OWNER, record)))

    takeover = TakeoverRecord("s1", "c1", OWNER, 1, NEXT, Times())
    assert unfinished(NORMAL) == []
    assert unfinished(SYNCING) == unfinished(NORMAL, WAITING) == ["ENDS"]
    assert unfinished(YIELDING) == ["TAKES", "ENDS"]
    assert unfinished(NORMAL, takeover=takeover) == ["TAKES"]
    assert names(judge_count(2, 1)) == ["ENDS"]
    assert judge_count(1, 1) == ()


# -- acknowledgements -----------------------------------------------------------------------------------------------


def sent(packet, message, qos=1):
    return Publish(packet, message, "t", qos, False)


def acknowledged(*messages):
    return TakeAcknowledgements(OWNER, messages)


def observed(*events):
    seen = AcknowledgedMessages()
    for event in events:
        seen, broken = seen.observe(OWNER, event)
        assert broken == ()
    return seen


def redelivered(seen, event, owner=NEXT):
    return names(seen.observe(owner, event)[1]) == ["REDELIVERED"]


@pytest.mark.parametrize("goes", [LeaveClient(OWNER), LoseClient(OWNER)])
@pytest.mark.parametrize(("why", "again"), [("left", True), ("lost", True), ("superseded", False), ("timeout", False)])
def test_REDELIVERED_what_was_acknowledged_before_the_end_counts_where_the_node_says_so(goes, why, again):
    seen = observed(sent(1, "m1"), sent(2, "m2"), acknowledged(Puback(1)), goes, SessionClosed("s1", why))
    assert redelivered(seen, sent(7, "m1"), OWNER) is again
    assert not redelivered(seen, sent(2, "m2")), "it was not acknowledged"
    after, _ = seen.observe(NEXT, sent(7, "m1"))
    assert redelivered(after, sent(7, "m1")) is again


# -- the collector --------------------------------------------------------------------------------------------------
