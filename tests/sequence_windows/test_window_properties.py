"""The observers of the properties: each property is broken by one run, and not by one near it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from statemachines.sequence_windows.late_join import Join
from statemachines.sequence_windows.loss_notifier import LISTED, LOST_MAX, Advisory
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered, Verdict
from statemachines.sequence_windows.properties import PROPERTIES
from statemachines.sequence_windows.properties.advised_losses import AdvisedLosses
from statemachines.sequence_windows.properties.heard_messages import (
    ArrivedMessage,
    HeardMessages,
    judge_answered,
    judge_join,
    judge_limit,
    judge_ranges,
    remember_publisher,
)
from statemachines.sequence_windows.properties.names import CONTENT
from statemachines.sequence_windows.properties.published_numbers import PublishedNumbers

KNOWN = HeardMessages(arrived=3, delivered=3, known=True)
SECOND = 1_000


def names(broken):
    return [one.name for one in broken]


def say(verdict, lost=0, unknown=False):
    return Judged(Verdict[verdict], 1, 1, 1, lost, unknown)


def judge(heard, message, *told):
    return names(heard.observe(message, say(*told))[1])


def test_every_property_is_broken_by_a_test_here():
    tests = {name.split("_")[1] for name in globals() if name.startswith("test_")}
    assert set(PROPERTIES) <= tests


# -- numbers ----------------------------------------------------------------------------------------------------------


def test_MONO_a_number_is_above_all_before_it():
    numbered, broken = PublishedNumbers().observe(5, 7)
    assert (numbered, broken) == (PublishedNumbers(3, 7), ())
    assert numbered.observe(8, 8)[1] == ()
    assert names(numbered.observe(7, 8)[1]) == names(numbered.observe(9, 8)[1]) == ["MONO"]


# -- what is heard --------------------------------------------------------------------------------------------------


def test_ONCE_what_was_delivered_is_a_repeat_and_nothing_else_is():
    again, new = ArrivedMessage(3, 3), ArrivedMessage(4, 4)
    assert judge(KNOWN, again, "REPEAT") == judge(KNOWN, new, "NEXT") == []
    assert judge(KNOWN, again, "NEXT") == judge(KNOWN, new, "REPEAT") == ["ONCE"]
    assert judge(KNOWN, ArrivedMessage(3, 4), "REPEAT") == ["ONCE"]


def test_ONCE_where_messages_overtake_each_other_what_was_not_delivered_may_be_late():
    heard, _ = replace(KNOWN, ordered=False).observe(ArrivedMessage(5, 5, 1), say("SKIP", 1))
    late, broken = heard.observe(ArrivedMessage(4, 4), say("NEXT"))
    assert (broken, late.delivered) == ((), 5)
    assert judge(late, ArrivedMessage(4, 4), "NEXT") == ["ONCE"]
    assert late.forget() == HeardMessages(arrived=5, ordered=False)


def test_ONCE_what_is_not_wanted_is_not_delivered_and_who_is_not_known_is_first():
    unwanted = ArrivedMessage(4, 4, wanted=False)
    assert judge(KNOWN, unwanted, "NOT_SUBSCRIBED") == judge(HeardMessages(), ArrivedMessage(0, 0), "FIRST") == []
    assert judge(KNOWN, unwanted, "NEXT") == judge(KNOWN, ArrivedMessage(4, 4), "NOT_SUBSCRIBED") == ["ONCE"]
    assert judge(KNOWN.forget(), ArrivedMessage(4, 4), "NEXT") == ["ONCE"]


def test_ONCE_each_message_of_a_range_is_judged_once():
    event = Numbered(1, 2, 4)
    parts = (Judged(Verdict.REPEAT, 1, 2, 2), Judged(Verdict.NEXT, 1, 3, 4))
    assert judge_ranges(event, parts) == ()
    assert names(judge_ranges(event, parts[::-1])) == names(judge_ranges(event, parts[:1])) == ["ONCE"]


def test_EXACT_a_loss_is_what_was_missed_or_the_cap():
    some, many = ArrivedMessage(6, 6, 2), ArrivedMessage(10**6, 10**6, LOSS_MAX + 1)
    assert judge(KNOWN, some, "SKIP", 2) == judge(KNOWN, some, "SKIP", 1, True) == []
    assert judge(KNOWN, many, "SKIP", LOSS_MAX) == []
    assert judge(KNOWN, some, "SKIP", 1) == judge(KNOWN, many, "SKIP", LOSS_MAX + 1) == ["EXACT"]
    assert judge(KNOWN, some, "SKIP", 2, True) == ["EXACT"]


def test_NOFALSE_a_loss_is_told_where_something_was_missed():
    assert judge(KNOWN, ArrivedMessage(5, 5, 1), "SKIP", 1, True) == []
    assert judge(KNOWN, ArrivedMessage(4, 4), "SKIP", 1, True) == ["NOFALSE"]
    assert judge(KNOWN, ArrivedMessage(4, 4), "NEXT", 1) == ["NOFALSE"]


def test_DETECT_what_was_missed_is_told_but_for_what_its_publisher_has_forgotten():
    missed = ArrivedMessage(6, 6, 2, cut=4)
    assert judge(KNOWN, missed, "CYCLE") == judge(KNOWN, missed, "SKIP", 2) == []
    assert judge(KNOWN, missed, "NEXT") == judge(KNOWN, ArrivedMessage(4, 4), "FIRST") == ["DETECT"]
    assert judge(KNOWN, replace(missed, cut=3), "CYCLE") == judge(KNOWN, replace(missed, cut=7), "CYCLE") == ["DETECT"]


def test_DETECT_something_is_said_of_each_message_and_a_limit_that_is_shown_hides_some():
    kept = (judge_answered(True, 1), judge_limit("a", "", 9), judge_limit("a", "a", 1), judge_limit("b", "a", 0))
    assert kept == ((), (), (), ())
    for broken in (judge_answered(False, 1), judge_limit("b", "a", 1), judge_limit("a", "a", 0)):
        assert names(broken) == ["DETECT"]


def test_CROWD_who_was_forgotten_for_others_is_told_of():
    gone, message = KNOWN.displace(), ArrivedMessage(4, 4, crowded=True)
    assert judge(gone, message, "FIRST", 1, True) == judge(gone, replace(message, begins=True), "FIRST") == []
    assert judge(gone, message, "FIRST") == ["CROWD"]
    assert judge(KNOWN.forget(), message, "FIRST") == []


def test_NOFALSE_nobody_was_forgotten_where_there_is_room_or_a_stream_begins():
    message = ArrivedMessage(4, 4, crowded=True)
    for other in (replace(message, crowded=False), replace(message, begins=True)):
        assert judge(KNOWN.displace(), other, "FIRST", 1, True) == ["NOFALSE"]


def test_who_was_silent_longest_is_forgotten_for_others():
    assert remember_publisher(("p", "q"), "p", 2) == (("q", "p"), "")
    assert remember_publisher(("q", "p"), "r", 2) == (("p", "r"), "q")
    assert remember_publisher((), "p", 0) == ((), "")


def test_JOIN_of_a_verified_stream_nothing_is_missing():
    assert judge_join(Join.VERIFIED, 0) == judge_join(Join.UNVERIFIED, 1) == judge_join(Join.UNKNOWN, 1) == ()
    assert names(judge_join(Join.VERIFIED, 1)) == ["JOIN"]


# -- advisories -----------------------------------------------------------------------------------------------------


def advise(advised, told, at=SECOND, content="THROTTLE"):
    advised, broken = advised.observe(told, at, at, SECOND, content)
    return advised, names(broken)


def test_THROTTLE_advisories_are_a_second_apart_and_say_what_waits():
    lost = AdvisedLosses(advised_at=0).lose((("s", 2),), 10).lose((("t", 1),), 20).settle_newest()
    whole = Advisory(3, 2, (("s", 2), ("t", 1)))
    assert advise(lost, whole) == (AdvisedLosses(advised_at=SECOND), [])
    assert advise(lost, whole, SECOND - 1)[1] == ["THROTTLE"]
    for wrong in (Advisory(2, 1, (("s", 2),)), Advisory(3, 1, (("s", 3),)), Advisory(3, 2, ()), Advisory(0, 0, ())):
        assert advise(lost, wrong)[1] == ["THROTTLE"]
        assert advise(lost, wrong, content=CONTENT)[1] == ["CONTENT"]
    assert advise(AdvisedLosses(), Advisory(0, 0, ()))[1] == ["THROTTLE"]


def test_THROTTLE_the_loss_of_the_message_that_is_handled_may_come_with_the_next_advisory():
    lost = AdvisedLosses().lose((("s", 2),), 10).lose((("s", 1),), 20)
    assert advise(lost, Advisory(3, 1, (("s", 3),))) == (AdvisedLosses(advised_at=SECOND), [])
    after, broken = advise(lost, Advisory(2, 1, (("s", 2),)))
    assert (broken, after.waits, after.since) == ([], (("s", 1),), SECOND)
    assert advise(lost.settle_newest(), Advisory(2, 1, (("s", 2),)))[1] == ["THROTTLE"]


def test_THROTTLE_what_does_not_fit_waits_for_the_next_advisory():
    many = tuple((f"s{n}", 1) for n in range(LISTED + 1))
    lost = AdvisedLosses().lose((*many, ("z", LOST_MAX)), 0).settle_newest()
    after, broken = advise(lost, Advisory(LOST_MAX, LISTED + 2, many[:LISTED]))
    assert (broken, after.owed, after.since) == ([], LISTED + 1, SECOND)
    assert names(after.judge_count(0)) == ["THROTTLE"]
    assert after.judge_count(LISTED + 1) == ()


def test_NOTIFY_nothing_waits_longer_than_a_second_unless_excused():
    lost = AdvisedLosses().lose((("s", 1),), 10)
    assert lost.judge_wait(10 + SECOND, SECOND) == lost.judge_wait(5_000, SECOND, 5_000) == ()
    assert names(lost.judge_wait(11 + SECOND, SECOND)) == names(lost.judge_wait(10, SECOND, alarm=False)) == ["NOTIFY"]
    assert AdvisedLosses().judge_wait(9_999, SECOND, alarm=False) == ()


def test_the_past_of_a_client_is_bounded():
    lost = AdvisedLosses(advised_at=0).lose((("s", 1),), 0)
    assert (lost.pass_time(2, 3).since, lost.pass_time(2, 3).advised_at) == (-2, -2)
    assert (lost.pass_time(9, 3).since, lost.pass_time(9, 3).advised_at) == (-3, None)


@pytest.mark.parametrize(("ordinal", "between"), [(3, 0), (4, 0), (5, 1), (7, 3)])
def test_EXACT_messages_between_the_last_that_was_delivered_and_this_one_are_counted(ordinal, between):
    assert KNOWN.count_since(ordinal) == between


@pytest.mark.parametrize(("cut", "hidden"), [(3, False), (4, True), (6, True), (7, False)])
def test_NOFALSE_a_loss_is_hidden_where_the_publisher_forgot_the_subject_in_between(cut, hidden):
    assert KNOWN.is_hidden(ArrivedMessage(6, 6, cut=cut)) is hidden
