"""Each property is broken by what breaks it, and not by what is near that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.kernel import Map
from statemachines.shared_subscriptions import stream_store
from statemachines.shared_subscriptions.assignment import AssignmentRecord, AssignmentStatus
from statemachines.shared_subscriptions.borrower import BorrowerRecord, BorrowerStatus
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped
from statemachines.shared_subscriptions.group_store import Claim, Commit, Properties, StoredRecord
from statemachines.shared_subscriptions.leader_record import KnownStream, LeaderRecord, LeaderStatus, Rank
from statemachines.shared_subscriptions.member import MemberRecord
from statemachines.shared_subscriptions.message import END_OF_STREAM, UpdateProgress
from statemachines.shared_subscriptions.properties.agreement import check_agreement
from statemachines.shared_subscriptions.properties.committed_claim import CommittedClaim, check_leader, check_unclaimed
from statemachines.shared_subscriptions.properties.delivered_messages import (
    DeliveredMessages,
    DeliveryPlace,
    check_durable,
    check_marked,
    check_none_left_out,
    check_topic,
    compile_filter,
)
from statemachines.shared_subscriptions.properties.delivery_right import (
    check_granted,
    check_hand_over,
    check_right,
)
from statemachines.shared_subscriptions.properties.failing_history import (
    FailingHistory,
    check_letter,
    check_no_letter,
    check_passed,
)
from statemachines.shared_subscriptions.properties.granted_stream import GrantedStream, check_generations, list_earlier
from statemachines.shared_subscriptions.properties.known_progress import (
    KnownProgress,
    check_kept_ranges,
    check_progress,
    check_ranges,
)
from statemachines.shared_subscriptions.properties.offset_ranges import OffsetRanges
from statemachines.shared_subscriptions.properties.settled_group import (
    find_begun_again,
    find_dead_members,
    find_leaderless,
    find_resets,
    find_taken_back,
    find_unbalanced,
    find_uncommitted,
    find_unconnected,
    find_unended,
    find_ungranted,
    find_unread,
    find_unshared,
    find_waiting_publisher,
)
from statemachines.shared_subscriptions.properties.status_order import StatusHistory
from statemachines.shared_subscriptions.properties.time_limits import check_claim_end, derive_limits
from statemachines.shared_subscriptions.properties.timers_needed import (
    check_timers,
)
from statemachines.shared_subscriptions.session_record import (
    Deliver,
    OwnerLease,
    SessionRecord,
    StreamReading,
    reading_key,
)
from statemachines.shared_subscriptions.stream import StreamLink, StreamRecord, StreamStatus

C = Configuration()
LEADER, OWNER, OTHER = "leader-1~1/1", "c1~1/1", "c2~1/1"
LINK, OTHERS = StreamLink(OWNER, LEADER, 5, 2), StreamLink(OTHER, LEADER, 5, 3)
STREAM, LATER = "0.0/a", "0.1/a"
MEMBER = MemberRecord(LINK, C, count=1)
ASSIGNED = AssignmentRecord(LINK, STREAM, 7, 4, 1, 1, 1, AssignmentStatus.GRANTED)
LEADING = LeaderRecord(
    LEADER, "g", "#", C, LeaderStatus.LEADING, members=Map({OWNER: MEMBER}), assignments=Map({STREAM: ASSIGNED})
)
HOLDING = BorrowerRecord(
    OWNER, "g", "#", ("leader-1",), C, BorrowerStatus.CONNECTED, link=LINK, leased=True,
    streams=Map({STREAM: StreamRecord(LINK, STREAM, StreamStatus.GRANTED, 7, 4)}),
)  # fmt: skip
LIMITS = derive_limits(C)
KEY = "/1.1/g/#:"


def batch(party, epoch, root=None, *, expect=None, stream=""):
    """Of `party` under this epoch; without a root it takes the claim."""
    put = [(f"{KEY}claim", Claim(party, epoch))]
    put += [] if root is None else [(f"{KEY}root", root)]
    put += [(f"{KEY}progress:{stream}", 3)] if stream else []
    return Commit(1, () if expect is None else ((f"{KEY}claim", expect),), tuple(put))


def commit(party, epoch, root=None, *, is_over=False, **keys):
    """What breaks where the leader of epoch 5 has the claim, and 2 was the last root."""
    held = CommittedClaim(StoredRecord(Claim(LEADER, 5), 9), 2)
    return held.observe(party, batch(party, epoch, root, **keys), is_over, 10)[1]


SEEN = OffsetRanges(((0, 3),))


def deliver(first, last=None):
    return Deliver(OWNER, STREAM, 7, first, first if last is None else last)


def delivered(*pairs):
    known, broken = DeliveredMessages(), ()
    for first, last in pairs:
        known, broken = known.observe(deliver(first, last))
    return broken


def placed(*firsts, **keys):
    place, broken = DeliveryPlace(7, 0, **keys), ()
    for first in firsts:
        place, broken = place.observe(deliver(first))
    return broken


def moved(*statuses):
    history, broken = StatusHistory(), ()
    for source, dest in statuses:
        history, broken = history.observe("one", source, dest)
    return broken


def granted(progress=4, **keys):
    known = GrantedStream(**keys)
    return known.observe_grant(LEADER, replace(ASSIGNED, progress=progress), durable=2)[1]


def progressed(borrower=OWNER, registration=2, grant=7, accepted=0, kept=4):
    event = UpdateProgress(borrower, 5, registration, STREAM, grant, 4, False)
    return GrantedStream(7, LINK, accepted).observe_progress(LEADER, event, kept)[1]


def earlier(*read):
    before = list_earlier(LATER, (STREAM, LATER, "1.0/b"))
    return check_generations(LEADER, LATER, before, read.__contains__)


def agreed(**change):
    return check_agreement(LEADING, replace(HOLDING, **change))


def held(status, grant, progress):
    return Map({STREAM: StreamRecord(LINK, STREAM, status, grant, progress)})


def timers(**change):
    return check_timers("leader", replace(LEADING, **change), {("expiry", OWNER): 1, ("renew", ""): 1})


def fails(deliveries, alone):
    history = FailingHistory()
    for _ in range(deliveries):
        history = history.observe_delivery(alone)
    return history.check_set_aside(MessageDropped(LEADER, STREAM, 3, 2, False), 3)


SECOND = MemberRecord(OTHERS, C, count=3)
GRANTING, GRANTED, REVOKED = AssignmentStatus.GRANTING, AssignmentStatus.GRANTED, AssignmentStatus.REVOKED
ONCE = (AssignmentStatus.NONE, GRANTING)
HOUR = 3_600 * 10**9
BY_FIRST, BY_SECOND = ("c1~1", LEADER, 7), ("c2~1", LEADER, 8)
BY_NEXT_LIFE = ("c1~2", LEADER, 8)
UNSHARED = replace(LEADING, members=Map({OWNER: MEMBER, OTHER: SECOND}))
SHARED = replace(LEADING, members=Map({OWNER: MEMBER, OTHER: replace(SECOND, count=2)}))
FREE = replace(
    LEADING, ranks=Map({(0, 0): Rank(Map({LATER: True}), 1, True)}), streams=Map({LATER: KnownStream(3, 0, 1)})
)


def assigned(status):
    return replace(LEADING, assignments=Map({STREAM: replace(ASSIGNED, status=status)}))


def handed_over(by, before, may_still=False, is_again=False):
    return check_hand_over(STREAM, by, before, may_still=may_still, is_again=is_again)


def committed_for(leader):
    """The holder of the claim of epoch 5 commits root 3, and puts a claim of this leader."""
    held = CommittedClaim(StoredRecord(Claim(LEADER, 5), 9), 2)
    puts = ((f"{KEY}claim", Claim(leader, 5)), (f"{KEY}root", 3))
    return held.observe(LEADER, Commit(1, (), puts), False, 10)[1]


def granting(absent):
    """The leader is granting under grant 7; the borrower does not hold the stream, and has seen this grant of it."""
    return check_agreement(assigned(GRANTING), replace(HOLDING, streams=held(StreamStatus.ABSENT, absent, 4)))


def ended(grant):
    """The owner says its progress after the stream was taken back under this grant."""
    known = GrantedStream(7, LINK).observe_end(grant)
    return known.observe_progress(LEADER, UpdateProgress(OWNER, 5, 2, STREAM, 7, 4, False), 4)[1]


def dropped(topic):
    return check_passed(MessageDropped(LEADER, STREAM, 3, 2, False, topic), {(STREAM, 4)})


RUNS = [
    ("S1", moved(ONCE, (GRANTING, GRANTED), (GRANTED, GRANTING)), moved(ONCE, (GRANTING, GRANTED))),
    ("S1", moved(ONCE, (GRANTED, REVOKED)), moved(ONCE, (GRANTING, REVOKED))),
    ("S1", moved((GRANTING, GRANTED)), moved(ONCE)),
    ("S2", granted(grant=6, link=OTHERS), granted()),
    ("S3", commit(OTHER, 6), commit(OTHER, 6, is_over=True)),
    ("S3", commit(OTHER, 5, is_over=True), commit(OTHER, 6, is_over=True)),
    ("S3", commit(OTHER, 5, 3), commit(LEADER, 5, 3)),
    ("S3", commit(LEADER, 5, 2), commit(LEADER, 5, 3)),
    (
        "S3",
        commit(LEADER, 5, 3, expect=StoredRecord(Claim(LEADER, 5), 8)),
        commit(LEADER, 5, 3, expect=StoredRecord(Claim(LEADER, 5), 9)),
    ),
    ("S3", commit(LEADER, 6, 3), commit(LEADER, 5, 3)),
    ("S3", committed_for(OTHER), committed_for(LEADER)),
    ("S3", check_claim_end(LEADER, 9, 9, deliver(0)), check_claim_end(LEADER, 8, 9, deliver(0))),
    ("S4", progressed(borrower=OTHER), progressed()),
    ("S4", progressed(registration=1), progressed()),
    ("S4", progressed(grant=6), progressed()),
    ("S4", ended(7), ended(6)),
    ("S4", check_granted(STREAM, BY_FIRST, LATER), check_granted(STREAM, BY_FIRST, STREAM)),
    (
        "S5",
        check_right(OWNER, STREAM, replace(HOLDING, leased=False), False, True),
        check_right(OWNER, STREAM, HOLDING, False, True),
    ),
    (
        "S5",
        check_right(OWNER, STREAM, replace(HOLDING, link=None), False, True),
        check_right(OWNER, STREAM, HOLDING, False, True),
    ),
    ("S5", handed_over(BY_SECOND, BY_FIRST, may_still=True), handed_over(BY_SECOND, BY_FIRST)),
    ("S5", handed_over(BY_SECOND, BY_FIRST, is_again=True), handed_over(BY_SECOND, BY_FIRST)),
    ("S6", check_progress(STREAM, 4, "durable", 3, 9), check_progress(STREAM, 3, "durable", 3, 9)),
    (
        "S6",
        check_progress(STREAM, END_OF_STREAM, "durable", 3, 9),
        check_progress(STREAM, END_OF_STREAM, "durable", 9, 9),
    ),
    (
        "S6",
        check_ranges(STREAM, ((4, 6),), "durable", OffsetRanges(((4, 5),))),
        check_ranges(STREAM, ((4, 5),), "durable", OffsetRanges(((4, 5),))),
    ),
    ("S6", check_none_left_out(deliver(4), 3), check_none_left_out(deliver(3), 3)),
    ("S7", KnownProgress(4).observe(STREAM, 3, "durable")[1], KnownProgress(4).observe(STREAM, 5, "durable")[1]),
    ("S7", check_kept_ranges(STREAM, ((4, 6),), 4, ((4, 5),)), check_kept_ranges(STREAM, ((4, 6),), 5, ((5, 6),))),
    (
        "S8",
        KnownProgress(END_OF_STREAM).observe(STREAM, 3, "durable")[1],
        KnownProgress(3).observe(STREAM, END_OF_STREAM, "durable")[1],
    ),
    ("S8", granted(progress=END_OF_STREAM), granted()),
    ("S8", progressed(accepted=END_OF_STREAM), progressed(accepted=END_OF_STREAM, kept=END_OF_STREAM)),
    ("S9", earlier(), earlier(STREAM)),
    ("S10", agreed(streams=held(StreamStatus.GRANTED, 6, 4)), agreed()),
    ("S10", agreed(streams=held(StreamStatus.GRANTED, 7, 3)), agreed()),
    ("S10", agreed(streams=held(StreamStatus.ABSENT, 7, 4)), agreed()),
    ("S10", granting(7), granting(6)),
    ("S10", agreed(streams=HOLDING.streams.set(LATER, HOLDING.streams[STREAM])), agreed()),
    (
        "S11",
        check_right(OWNER, STREAM, replace(HOLDING, link=None), True, True),
        check_right(OWNER, STREAM, HOLDING, True, True),
    ),
    ("S11", LIMITS.check_effect(OWNER, LEADER, HOUR, "is let go"), LIMITS.check_effect(OWNER, LEADER, 0, "is let go")),
    ("S12", check_topic(deliver(0), compile_filter("b")), check_topic(deliver(0), compile_filter("a"))),
    ("S13", delivered((0, 3), (3, 4)), delivered((0, 3), (4, 5))),
    ("S13", granted(progress=1), granted(progress=2)),
    ("S13", placed(0, 1, acked=((1, 2),)), placed(0, 3, acked=((1, 2),))),
    ("S13", placed(0, 2, acked=((1, 2),)), placed(0, 3, acked=((1, 2),))),
    ("S13", check_durable(deliver(3), 4), check_durable(deliver(4), 4)),
    ("S14", placed(0, 2), placed(0, 1)),
    ("S14", placed(3, acked=((0, 0), (1, 1))), placed(2, acked=((0, 0), (1, 1)))),
    ("S14", placed(0, 3, acked=()), placed(0, 3, acked=(), returned=frozenset((3,)))),
    ("S15", handed_over(BY_NEXT_LIFE, BY_FIRST, may_still=True), handed_over(BY_NEXT_LIFE, BY_FIRST)),
    ("S16", check_progress(STREAM, 10, "durable", 3, 9), check_progress(STREAM, 9, "durable", 9, 9)),
    ("S17", check_leader(OWNER, LINK, {(LEADER, 4)}), check_leader(OWNER, LINK, {(LEADER, 5)})),
    ("S20", fails(1, alone=True), fails(2, alone=True)),
    ("S20", fails(2, alone=False), fails(2, alone=True)),
    ("S21", check_letter((STREAM, 3), {(STREAM, 3)}), check_letter((STREAM, 3), {(STREAM, 4)})),
    ("S21", dropped("dead"), dropped("")),
    ("S21", check_no_letter(deliver(2, 4), {(STREAM, 3)}), check_no_letter(deliver(2, 4), {(STREAM, 5)})),
    ("S21", check_no_letter(deliver(2, 4), {(STREAM, 4)}), check_no_letter(deliver(2, 4), {(STREAM, 1)})),
    ("S22", check_marked(deliver(2, 4), SEEN), check_marked(replace(deliver(2, 4), handed=4), SEEN)),
    ("S22", check_marked(replace(deliver(2, 4), failed=1), SEEN), check_marked(replace(deliver(3), failed=1), SEEN)),
    (
        "L1",
        find_unconnected(OWNER, replace(HOLDING, status=BorrowerStatus.CONNECTING)),
        find_unconnected(OWNER, HOLDING),
    ),
    ("L2", find_unread(replace(LEADING, assignments=Map()), [STREAM]), find_unread(LEADING, [])),
    ("L2", find_ungranted(assigned(GRANTING)), find_ungranted(LEADING)),
    ("L2", LIMITS.check_repeated(LEADER, STREAM, 7, HOUR), LIMITS.check_repeated(LEADER, STREAM, 7, 0)),
    ("L2", LIMITS.check_reads(OWNER, HOUR, 3), LIMITS.check_reads(OWNER, HOUR, 2)),
    ("L3", find_taken_back(assigned(REVOKED)), find_taken_back(LEADING)),
    ("L4", find_unbalanced(UNSHARED), find_unbalanced(SHARED)),
    ("L4", find_unshared(FREE), find_unshared(replace(FREE, streams=Map({LATER: KnownStream(END_OF_STREAM, 0, 1)})))),
    ("L5", find_unread(LEADING, [STREAM]), find_unread(LEADING, [])),
    ("L5", find_uncommitted(STREAM, 4, 3), find_uncommitted(STREAM, 4, 4)),
    ("L5", find_waiting_publisher(1), find_waiting_publisher(0)),
    ("L6", find_leaderless((LEADER, OTHER), False), find_leaderless((LEADER,), True)),
    ("L6", find_leaderless((), True), find_leaderless((), False)),
    ("L7", find_unended(OWNER, True, False), find_unended(OWNER, True, True)),
    ("L7", find_begun_again(OWNER, True, True), find_begun_again(OWNER, False, True)),
    ("L7", LIMITS.check_leaving(OWNER, HOUR), LIMITS.check_leaving(OWNER, 0)),
    ("L8", find_resets(2, 1), find_resets(1, 1)),
    ("L8", LIMITS.check_resets(0), LIMITS.check_resets(HOUR)),
    ("L9", find_dead_members((OWNER,)), find_dead_members(())),
    ("L9", LIMITS.check_gone(OWNER, LEADER, HOUR), LIMITS.check_gone(OWNER, LEADER, 0)),
    ("L10", timers(members=Map()), timers()),
    ("L11", LIMITS.check_answer(LEADER, 7, HOUR), LIMITS.check_answer(LEADER, 7, 0)),
    ("L11", LIMITS.check_patience(LEADER, STREAM, 7, 0), LIMITS.check_patience(LEADER, STREAM, 7, HOUR)),
    ("L11", LIMITS.check_window(LEADER, OWNER, C.grant_window + 1), LIMITS.check_window(LEADER, OWNER, C.grant_window)),
]


@pytest.mark.parametrize(("name", "broken", "near"), RUNS)
def test_a_property_is_broken_by_what_breaks_it_alone(name, broken, near):
    assert name in [one.name for one in broken]
    assert near == ()


@pytest.mark.parametrize(
    ("check", "limit_ns"),
    [
        (lambda ns: LIMITS.check_effect(OWNER, LEADER, ns, "is let go"), LIMITS.validity_ns),
        (lambda ns: LIMITS.check_gone(OWNER, LEADER, ns), LIMITS.validity_ns),
        (lambda ns: LIMITS.check_leaving(OWNER, ns), LIMITS.leaving_ns),
        (lambda ns: LIMITS.check_answer(LEADER, 7, ns), LIMITS.answer_ns),
        (lambda ns: LIMITS.check_repeated(LEADER, STREAM, 7, ns), LIMITS.resend_ns),
        (lambda ns: LIMITS.check_reads(OWNER, ns, 3), LIMITS.validity_ns),
    ],
)
def test_a_wait_may_last_as_long_as_its_limit_and_no_longer(check, limit_ns):
    assert check(limit_ns) == ()
    assert check(limit_ns + 1)


@pytest.mark.parametrize(("stream", "value"), [("0.0/a", 3), ("", 7)])
def test_S3_without_the_claim_nothing_but_a_declaration_is_committed(stream, value):
    declared = Commit(1, (), ((f"{KEY}properties", Properties(0, 1000, 2000, 15000)),))
    named = f"{KEY}progress:{stream}" if stream else f"{KEY}root"
    assert check_unclaimed(OWNER, declared) == ()
    assert [one.name for one in check_unclaimed(OWNER, Commit(1, (), ((named, value),)))] == ["S3"]


READING = StreamReading(OWNER, STREAM, 7, 4, 4, 4)
SESSION = SessionRecord(
    "c1~1/0", leases=Map({OWNER: OwnerLease(held=True)}), readings=Map({reading_key(OWNER, STREAM): READING})
)


def test_S14_what_is_given_back_is_next_or_comes_alone():
    assert DeliveryPlace(7, 3).give_back(1).observe(deliver(1))[1] == ()
    relaxed = DeliveryPlace(7, 3, ()).give_back(1)
    assert relaxed.observe(deliver(1))[1] == ()
    assert relaxed.observe(deliver(1, 2))[1]


@pytest.mark.parametrize(
    ("topic_filter", "matching", "others"),
    [
        ("#", ("a", "a/b", ""), ()),
        ("+", ("a", ""), ("a/b", "a/")),
        ("a/+/c", ("a/b/c", "a//c"), ("a/b", "a/b/c/d", "a.b.c")),
        ("a/#", ("a", "a/b", "a/b/c"), ("ab", "b/a")),
        ("a.b/+", ("a.b/c",), ("axb/c",)),
    ],
)
def test_S12_the_observer_has_its_own_idea_of_what_a_filter_matches(topic_filter, matching, others):
    pattern = compile_filter(topic_filter)
    assert all(pattern.fullmatch(topic) and stream_store.matches(topic_filter, topic) for topic in matching)
    assert not any(pattern.fullmatch(topic) or stream_store.matches(topic_filter, topic) for topic in others)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5))), st.integers(0, 20), st.integers(0, 5))
def test_ranges_are_the_set_of_their_offsets(added, first, more):
    known, offsets = OffsetRanges(), set()
    for begin, length in added:
        known = known.add(begin, begin + length)
        offsets |= set(range(begin, begin + length + 1))
    asked = set(range(first, first + more + 1))
    assert known.count_in(first, first + more) == len(offsets & asked)
    assert known.has_all(first, first + more) == (asked <= offsets)
    assert known.prefix == next(offset for offset in range(30) if offset not in offsets)
    assert {offset for begin, end in known.ranges for offset in range(begin, end + 1)} == offsets
