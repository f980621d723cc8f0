"""The observers of persistent sessions: each property is broken by one run of events, and not by another near it."""

from __future__ import annotations

from pathlib import Path

import pytest

from statemachines.kernel import Map
from statemachines.persistent_sessions.collector_request import RowKey, Tag
from statemachines.persistent_sessions.delivery_record import DeliveryRecord
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.message import Puback, Pubcomp, Publish, Pubrec
from statemachines.persistent_sessions.properties import PROPERTIES
from statemachines.persistent_sessions.properties.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.properties.collected_rows import (
    RowNeeds,
    judge_deleted_message,
    judge_deleted_row,
)
from statemachines.persistent_sessions.properties.delivered_messages import (
    NOTHING,
    CopyDelivered,
    DeliveredMessages,
    PublishedMessages,
    judge_place,
    judge_rest,
    judge_room,
)
from statemachines.persistent_sessions.properties.opened_sessions import (
    OpenedSessions,
    judge_return,
    judge_route,
    judge_touch,
    judge_welcome,
)
from statemachines.persistent_sessions.properties.session_owners import (
    SendingOwners,
    judge_count,
    judge_end,
    judge_losses,
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


def test_GAP_a_message_is_left_out():
    seen = stored(FIRST, SECOND)
    in_order = CopyDelivered(FIRST, 1), CopyDelivered(SECOND, 2)
    assert delivered(seen, *in_order) == []
    assert delivered(seen, *in_order[1:]) == ["GAP"]
    assert delivered(seen.observe_over((FIRST,)), *in_order[1:]) == []
    assert delivered(seen.observe_lost(FIRST), *in_order[1:]) == []


def test_GAP_what_need_not_come_comes_after_what_was_stored_later():
    seen = stored(FIRST, SECOND).observe_lost(FIRST)
    late = CopyDelivered(SECOND, 2), CopyDelivered(FIRST, 1)
    assert delivered(seen, *late) == ["GAP"]
    assert delivered(stored(FIRST, SECOND, forgets=True).observe_lost(FIRST), *late) == ["TWICE"]
    assert delivered(seen, *reversed(late)) == []


def test_GAP_numbers_of_a_publisher_fall():
    seen = stored(FIRST, SECOND)
    first = CopyDelivered(FIRST, 1, line="p~1", number=2)
    for line, number, broken in (("p~1", 3, []), ("p~1", 2, ["GAP"]), ("p~2", 1, [])):
        assert delivered(seen, first, CopyDelivered(SECOND, 2, line=line, number=number)) == broken


@pytest.mark.parametrize(
    ("again", "broken"),
    [
        (CopyDelivered(FIRST, 1, is_repeated=True), []),
        (CopyDelivered(FIRST, 1), ["TWICE"]),
        (CopyDelivered(FIRST, 2, is_repeated=True), ["TWICE"]),
        (CopyDelivered(FIRST, 1, is_repeated=True, is_released=True), ["TWICE"]),
    ],
)
def test_TWICE_a_redelivery_is_marked_and_under_its_packet(again, broken):
    seen = stored(FIRST).observe_committed([(FIRST, 2)])
    assert delivered(seen, CopyDelivered(FIRST, 1), again) == broken


def test_TWICE_with_QoS_0_nothing_comes_again():
    without_packet = CopyDelivered(FIRST, 0, is_repeated=True)
    assert delivered(stored(FIRST), without_packet) == []
    assert delivered(stored(FIRST), without_packet, without_packet) == ["TWICE"]


def test_TWICE_two_rows_bring_a_copy():
    assert names(judge_place(FIRST, ("w1", 1, 1), ("w1", 2, 1))) == ["TWICE"]
    assert judge_place(FIRST, ("w1", 1, 1), ("w1", 1, 1)) == ()


def test_UNCOMMITTED_and_STRANGER_and_UNSTORED():
    seen = stored(FIRST)
    assert delivered(seen, CopyDelivered(FIRST, 2)) == ["UNCOMMITTED"]
    assert delivered(seen, CopyDelivered(FIRST, 0)) == []
    assert delivered(seen, CopyDelivered(SECOND, 1)) == ["STRANGER"]
    assert names(seen.judge_answer(SECOND)) == ["UNSTORED"]
    assert seen.judge_answer(FIRST) == ()


def test_STRANGER_a_session_that_nobody_has_opened_is_given():
    opened, _ = OpenedSessions().observe_opened("c1", "s1")
    assert names(opened.judge_given("s2")) == ["STRANGER"]
    assert opened.judge_given("s1") == ()


def test_AGED():
    seen = stored(FIRST)
    over = seen.observe_over((FIRST,))
    assert delivered(over, CopyDelivered(FIRST, 1)) == ["AGED"]
    assert delivered(over, CopyDelivered(FIRST, 2)) == ["AGED", "UNCOMMITTED"]
    assert names(seen.judge_late([FIRST])) == names(seen.judge_expiry(FIRST)) == ["AGED"]
    assert seen.judge_late([]) == over.judge_expiry(FIRST) == ()


def test_ORDER_what_was_answered_before_a_message_was_handed_over_comes_before_it():
    seen = DeliveredMessages().observe_stored("w1", FIRST, publisher="p").observe_stored("w2", SECOND, publisher="p")
    known = PublishedMessages().observe_handed("m1").observe_answered("m1").observe_handed("m2")
    unknown = PublishedMessages().observe_handed("m1").observe_handed("m2").observe_answered("m1")
    late, early = CopyDelivered(SECOND, 0), CopyDelivered(FIRST, 0)
    assert delivered(seen, late, published=known) == ["ORDER"]
    assert delivered(seen, early, late, published=known) == delivered(seen, late, early, published=unknown) == []
    for excused in (seen.observe_over((FIRST,)), seen.observe_lost(FIRST)):
        assert delivered(excused, late, published=known) == []
    other = DeliveredMessages().observe_stored("w1", FIRST, publisher="q").observe_stored("w2", SECOND, publisher="p")
    assert delivered(other, late, published=known) == []


def test_what_a_publisher_hands_over_again_counts_from_then_on_and_its_first_answer_counts():
    published = PublishedMessages().observe_handed("m2").observe_answered("m1")
    assert not published.is_known_before("m1", "m2")
    again = published.observe_handed("m2")
    assert again.is_known_before("m1", "m2")
    assert again.observe_answered("m1") == again
    assert not again.is_known_before("m3", "m2"), "it was never answered"


def test_MAXIMUM():
    assert names(judge_room(3, 2)) == ["MAXIMUM"]
    assert judge_room(2, 2) == ()


def test_COMPLETE():
    seen = stored(FIRST, SECOND, THIRD).observe_over((SECOND,)).observe_lost(THIRD)
    assert seen.find_outstanding() == FIRST
    assert names(judge_rest(FIRST, ())) == names(judge_rest(None, (7,))) == ["COMPLETE"]
    seen, _ = seen.observe_delivery(CopyDelivered(FIRST, 1))
    assert seen.find_outstanding() is None
    assert judge_rest(None, ()) == ()


def test_a_row_that_brings_a_copy_once_more_is_outstanding():
    seen, _ = stored(FIRST).observe_delivery(CopyDelivered(FIRST, 1))
    assert seen.observe_stored("w1", FIRST).find_outstanding() == FIRST
    assert list(stored(FIRST, SECOND).list_newest("w1")) == [SECOND, FIRST]


def test_what_is_seen_is_equal_when_nothing_is_left_to_wait_for():
    assert stored(FIRST).awaited == Map({"p": Map({FIRST: True})})
    assert stored(FIRST).observe_over((FIRST,)).awaited == Map()


# -- sessions -------------------------------------------------------------------------------------------------------


def test_REUSED_a_session_id_is_given_twice():
    opened, first = OpenedSessions().observe_opened("c1", "s1")
    again, same = opened.observe_opened("c1", "s1")
    assert (first, same, again) == ((), (), opened)
    ended = opened.observe_ended("c1")
    for before, client in ((ended, "c1"), (opened, "c2")):
        assert names(before.observe_opened(client, "s1")[1]) == ["REUSED"]
    after, fresh = ended.observe_opened("c1", "s2")
    assert fresh == ()
    assert [after.was_there(session, 1) for session in ("s1", "s2", "s3")] == [True, False, False]


def test_FORGOTTEN_and_EXPIRED():
    assert names(judge_return("s1", "s2")) == names(judge_return("s1", "")) == ["FORGOTTEN"]
    assert judge_return("s1", "s1") == judge_return("", "s1") == judge_return("s1", "s2", may_end=True) == ()
    assert names(judge_return("s1", "s1", may_end=True, has_expired=True)) == ["EXPIRED"]
    assert judge_return("s1", "s2", may_end=True, has_expired=True) == ()


@pytest.mark.parametrize("is_present", [True, False])
@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize("is_clean", [True, False])
def test_PRESENT(is_present, was_there, is_clean):
    broken = judge_welcome("s1", is_present=is_present, was_there=was_there, is_clean=is_clean)
    holds = is_present == was_there and not (is_present and is_clean)
    assert set(names(broken)) == (set() if holds else {"PRESENT"})


def test_OLD_and_STOLEN():
    assert names(judge_route("s2", ["s1"])) == ["OLD"]
    assert names(judge_touch("committed", has_session=False)) == ["STOLEN"]
    assert judge_route("s2", []) == judge_touch("committed", has_session=True) == ()


# -- owners ---------------------------------------------------------------------------------------------------------


def test_SPLIT_an_owner_sends_that_is_replaced():
    yielded = SendingOwners().observe_replaced(OWNER)
    by_turns = SendingOwners().observe_sender(OWNER).observe_sender(NEXT).observe_sender(OWNER)
    for seen in (yielded, by_turns):
        assert names(seen.judge_sender(OWNER)) == ["SPLIT"]
        assert seen.judge_sender(NEXT) == ()
    assert SendingOwners().observe_sender(OWNER).observe_sender(OWNER).judge_sender(OWNER) == ()


def test_SUPERSEDED():
    assert names(judge_end("c1", "superseded") + judge_end("c1", "discarded")) == ["SUPERSEDED", "SUPERSEDED"]
    assert judge_end("c1", "left") == judge_end("c1", "timeout") == ()


def test_COUNTED():
    delivery = DeliveryRecord("s1", "c1", 1, 9)
    assert names(judge_losses(OWNER, DeliveryRecord("s1", "c1", 1, 9, lost=1))) == ["COUNTED"]
    assert judge_losses(OWNER, delivery) == judge_losses(OWNER, None) == ()


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


def test_what_is_acknowledged_behind_the_end_may_come_again():
    events = sent(1, "m1"), sent(2, "m2"), acknowledged(Puback(1)), LoseClient(OWNER), acknowledged(Puback(2))
    seen = observed(*events, SessionClosed("s1", "lost"))
    assert [redelivered(seen, sent(1, one)) for one in ("m1", "m2")] == [True, False]


def test_a_connection_that_ends_by_itself_promises_nothing():
    seen = observed(sent(1, "m1"), acknowledged(Puback(1)), SessionClosed("s1", "lost"))
    assert not redelivered(seen, sent(1, "m1"))
    assert observed(SessionClosed("s1", "left")) == AcknowledgedMessages()


def test_acknowledgements_that_a_node_folds_count_each_and_those_of_QoS_2_as_well():
    events = sent(1, "m1"), sent(2, "m2"), sent(3, "m3", 2), sent(4, "m4", 2)
    acks = acknowledged(Puback(1, 2), Pubrec(3), Pubcomp(4), Puback(9))
    seen = observed(*events, acks, LeaveClient(OWNER), SessionClosed("s1", "left"))
    assert [redelivered(seen, sent(1, f"m{n}")) for n in (1, 2, 3, 4)] == [True, True, True, False]


# -- the collector --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tag", "needs", "free"),
    [
        (Tag.UNDELIVERED, RowNeeds(), RowNeeds(is_taken=True)),
        (Tag.DELIVERED, RowNeeds(is_paired=True), RowNeeds()),
        (Tag.MARKER, RowNeeds(is_awaited=True), RowNeeds()),
        (Tag.ABANDONED, RowNeeds(has_others=True), RowNeeds()),
    ],
)
def test_KEPT_a_row_is_deleted_that_is_needed(tag, needs, free):
    row = RowKey("s1", "w1", 1, 1, tag)
    assert names(judge_deleted_row(row, needs)) == ["KEPT"]
    assert judge_deleted_row(row, free) == ()


@pytest.mark.parametrize("why", ["is_held", "is_wanted", "is_early"])
def test_KEPT_a_message_is_deleted_that_is_needed(why):
    assert names(judge_deleted_message("m1", **{why: True})) == ["KEPT"]
    assert judge_deleted_message("m1") == ()


def test_each_property_is_broken_here():
    text = Path(__file__).read_text()
    assert [one for one in PROPERTIES if f'"{one}"' not in text] == []
