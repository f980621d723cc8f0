"""Property REDELIVERED: what a client has acknowledged before it left or was lost does not come again."""

from __future__ import annotations

import pytest

from statemachines.persistent_sessions.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.message import Puback, Pubcomp, Publish, Pubrec
from statemachines.persistent_sessions.session_host_record import LeaveClient, LoseClient, TakeAcknowledgements

OWNER, NEXT = "a~1/1", "b~1/1"


def sent(packet, message, qos=1):
    return Publish(packet, message, "t", qos, False)


def acknowledged(*messages):
    return TakeAcknowledgements(OWNER, messages)


def observed(*events):
    seen = AcknowledgedMessages()
    for event in events:
        seen = seen.observe(OWNER, event)
    return seen


@pytest.mark.parametrize("goes", [LeaveClient(OWNER), LoseClient(OWNER)])
@pytest.mark.parametrize(("why", "again"), [("left", True), ("lost", True), ("superseded", False), ("timeout", False)])
def test_REDELIVERED_what_was_acknowledged_before_the_end_counts_where_the_node_says_so(goes, why, again):
    seen = observed(sent(1, "m1"), sent(2, "m2"), acknowledged(Puback(1)), goes, SessionClosed("s1", why))
    assert seen.is_redelivered(sent(7, "m1")) is again
    assert not seen.is_redelivered(sent(2, "m2")), "it was not acknowledged"
    assert seen.observe(NEXT, sent(7, "m1")).is_redelivered(sent(7, "m1")) is again


def test_what_is_acknowledged_behind_the_end_may_come_again():
    events = sent(1, "m1"), sent(2, "m2"), acknowledged(Puback(1)), LoseClient(OWNER), acknowledged(Puback(2))
    seen = observed(*events, SessionClosed("s1", "lost"))
    assert [seen.is_redelivered(sent(1, one)) for one in ("m1", "m2")] == [True, False]


def test_a_connection_that_ends_by_itself_promises_nothing():
    seen = observed(sent(1, "m1"), acknowledged(Puback(1)), SessionClosed("s1", "lost"))
    assert not seen.is_redelivered(sent(1, "m1"))
    assert observed(SessionClosed("s1", "left")) == AcknowledgedMessages()


def test_acknowledgements_that_a_node_folds_count_each_and_those_of_QoS_2_as_well():
    events = sent(1, "m1"), sent(2, "m2"), sent(3, "m3", 2), sent(4, "m4", 2)
    acks = acknowledged(Puback(1, 2), Pubrec(3), Pubcomp(4), Puback(9))
    seen = observed(*events, acks, LeaveClient(OWNER), SessionClosed("s1", "left"))
    assert [seen.is_redelivered(sent(1, f"m{n}")) for n in (1, 2, 3, 4)] == [True, True, True, False]
