"""Each property is broken by what breaks it, and not by what is near that.

The invariants of the machines tell records that break them from records that do not.

SS-268: what a borrower of many streams reports at once is bounded, and nothing of it is forgotten.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from statemachines.kernel import InvariantViolated, Map, Node, Send
from statemachines.shared_subscriptions import borrower, stream_store
from statemachines.shared_subscriptions.assignment import AssignmentRecord, AssignmentStatus
from statemachines.shared_subscriptions.borrower import BORROWER, BorrowerRecord, BorrowerStatus, OnDisconnect, Start
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.failed_deliveries import MessageDropped
from statemachines.shared_subscriptions.group_store import Claim, Commit, Properties, StoredRecord
from statemachines.shared_subscriptions.leader import LEADER
from statemachines.shared_subscriptions.leader_record import KnownStream, LeaderRecord, LeaderStatus, Rank
from statemachines.shared_subscriptions.member import MemberRecord
from statemachines.shared_subscriptions.message import (
    END_OF_STREAM,
    Disconnect,
    Grant,
    LeaderConnectResponse,
    PingResponse,
    Revoked,
    UpdateProgress,
)
from statemachines.shared_subscriptions.private_subscription import PRIVATE, PrivateRecord
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
from statemachines.shared_subscriptions.properties.delivery_right import check_granted, check_hand_over, check_right
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
from statemachines.shared_subscriptions.properties.timers_needed import check_timers
from statemachines.shared_subscriptions.session import SESSION
from statemachines.shared_subscriptions.session_record import (
    Deliver,
    OwnerLease,
    SessionRecord,
    StreamReading,
    reading_key,
)
from statemachines.shared_subscriptions.stream import Finish, StreamLink, StreamRecord, StreamStatus

C = Configuration()
GROUP_PROPERTIES_LEADER, OWNER, OTHER = "leader-1~1/1", "c1~1/1", "c2~1/1"
LINK, OTHERS = StreamLink(OWNER, GROUP_PROPERTIES_LEADER, 5, 2), StreamLink(OTHER, GROUP_PROPERTIES_LEADER, 5, 3)
STREAM, LATER = "0.0/a", "0.1/a"
MEMBER = MemberRecord(LINK, C, count=1)
ASSIGNED = AssignmentRecord(LINK, STREAM, 7, 4, 1, 1, 1, AssignmentStatus.GRANTED)
LEADING = LeaderRecord(
    GROUP_PROPERTIES_LEADER,
    "g",
    "#",
    C,
    LeaderStatus.LEADING,
    members=Map({OWNER: MEMBER}),
    assignments=Map({STREAM: ASSIGNED}),
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
    held = CommittedClaim(StoredRecord(Claim(GROUP_PROPERTIES_LEADER, 5), 9), 2)
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
    return known.observe_grant(GROUP_PROPERTIES_LEADER, replace(ASSIGNED, progress=progress), durable=2)[1]


def progressed(borrower=OWNER, registration=2, grant=7, accepted=0, kept=4):
    event = UpdateProgress(borrower, 5, registration, STREAM, grant, 4, False)
    return GrantedStream(7, LINK, accepted).observe_progress(GROUP_PROPERTIES_LEADER, event, kept)[1]


def earlier(*read):
    before = list_earlier(LATER, (STREAM, LATER, "1.0/b"))
    return check_generations(GROUP_PROPERTIES_LEADER, LATER, before, read.__contains__)


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
    return history.check_set_aside(MessageDropped(GROUP_PROPERTIES_LEADER, STREAM, 3, 2, False), 3)


SECOND = MemberRecord(OTHERS, C, count=3)
GRANTING, GRANTED, REVOKED = AssignmentStatus.GRANTING, AssignmentStatus.GRANTED, AssignmentStatus.REVOKED
ONCE = (AssignmentStatus.NONE, GRANTING)
HOUR = 3_600 * 10**9
BY_FIRST, BY_SECOND = ("c1~1", GROUP_PROPERTIES_LEADER, 7), ("c2~1", GROUP_PROPERTIES_LEADER, 8)
BY_NEXT_LIFE = ("c1~2", GROUP_PROPERTIES_LEADER, 8)
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
    held = CommittedClaim(StoredRecord(Claim(GROUP_PROPERTIES_LEADER, 5), 9), 2)
    puts = ((f"{KEY}claim", Claim(leader, 5)), (f"{KEY}root", 3))
    return held.observe(GROUP_PROPERTIES_LEADER, Commit(1, (), puts), False, 10)[1]


def granting(absent):
    """The leader is granting under grant 7; the borrower does not hold the stream, and has seen this grant of it."""
    return check_agreement(assigned(GRANTING), replace(HOLDING, streams=held(StreamStatus.ABSENT, absent, 4)))


def ended(grant):
    """The owner says its progress after the stream was taken back under this grant."""
    known = GrantedStream(7, LINK).observe_end(grant)
    return known.observe_progress(GROUP_PROPERTIES_LEADER, UpdateProgress(OWNER, 5, 2, STREAM, 7, 4, False), 4)[1]


def dropped(topic):
    return check_passed(MessageDropped(GROUP_PROPERTIES_LEADER, STREAM, 3, 2, False, topic), {(STREAM, 4)})


RUNS = [
    ("S1", moved(ONCE, (GRANTING, GRANTED), (GRANTED, GRANTING)), moved(ONCE, (GRANTING, GRANTED))),
    ("S1", moved(ONCE, (GRANTED, REVOKED)), moved(ONCE, (GRANTING, REVOKED))),
    ("S1", moved((GRANTING, GRANTED)), moved(ONCE)),
    ("S2", granted(grant=6, link=OTHERS), granted()),
    ("S3", commit(OTHER, 6), commit(OTHER, 6, is_over=True)),
    ("S3", commit(OTHER, 5, is_over=True), commit(OTHER, 6, is_over=True)),
    ("S3", commit(OTHER, 5, 3), commit(GROUP_PROPERTIES_LEADER, 5, 3)),
    ("S3", commit(GROUP_PROPERTIES_LEADER, 5, 2), commit(GROUP_PROPERTIES_LEADER, 5, 3)),
    (
        "S3",
        commit(GROUP_PROPERTIES_LEADER, 5, 3, expect=StoredRecord(Claim(GROUP_PROPERTIES_LEADER, 5), 8)),
        commit(GROUP_PROPERTIES_LEADER, 5, 3, expect=StoredRecord(Claim(GROUP_PROPERTIES_LEADER, 5), 9)),
    ),
    ("S3", commit(GROUP_PROPERTIES_LEADER, 6, 3), commit(GROUP_PROPERTIES_LEADER, 5, 3)),
    ("S3", committed_for(OTHER), committed_for(GROUP_PROPERTIES_LEADER)),
    (
        "S3",
        check_claim_end(GROUP_PROPERTIES_LEADER, 9, 9, deliver(0)),
        check_claim_end(GROUP_PROPERTIES_LEADER, 8, 9, deliver(0)),
    ),
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
    (
        "S11",
        LIMITS.check_effect(OWNER, GROUP_PROPERTIES_LEADER, HOUR, "is let go"),
        LIMITS.check_effect(OWNER, GROUP_PROPERTIES_LEADER, 0, "is let go"),
    ),
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
    (
        "S17",
        check_leader(OWNER, LINK, {(GROUP_PROPERTIES_LEADER, 4)}),
        check_leader(OWNER, LINK, {(GROUP_PROPERTIES_LEADER, 5)}),
    ),
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
    (
        "L2",
        LIMITS.check_repeated(GROUP_PROPERTIES_LEADER, STREAM, 7, HOUR),
        LIMITS.check_repeated(GROUP_PROPERTIES_LEADER, STREAM, 7, 0),
    ),
    ("L2", LIMITS.check_reads(OWNER, HOUR, 3), LIMITS.check_reads(OWNER, HOUR, 2)),
    ("L3", find_taken_back(assigned(REVOKED)), find_taken_back(LEADING)),
    ("L4", find_unbalanced(UNSHARED), find_unbalanced(SHARED)),
    ("L4", find_unshared(FREE), find_unshared(replace(FREE, streams=Map({LATER: KnownStream(END_OF_STREAM, 0, 1)})))),
    ("L5", find_unread(LEADING, [STREAM]), find_unread(LEADING, [])),
    ("L5", find_uncommitted(STREAM, 4, 3), find_uncommitted(STREAM, 4, 4)),
    ("L5", find_waiting_publisher(1), find_waiting_publisher(0)),
    ("L6", find_leaderless((GROUP_PROPERTIES_LEADER, OTHER), False), find_leaderless((GROUP_PROPERTIES_LEADER,), True)),
    ("L6", find_leaderless((), True), find_leaderless((), False)),
    ("L7", find_unended(OWNER, True, False), find_unended(OWNER, True, True)),
    ("L7", find_begun_again(OWNER, True, True), find_begun_again(OWNER, False, True)),
    ("L7", LIMITS.check_leaving(OWNER, HOUR), LIMITS.check_leaving(OWNER, 0)),
    ("L8", find_resets(2, 1), find_resets(1, 1)),
    ("L8", LIMITS.check_resets(0), LIMITS.check_resets(HOUR)),
    ("L9", find_dead_members((OWNER,)), find_dead_members(())),
    (
        "L9",
        LIMITS.check_gone(OWNER, GROUP_PROPERTIES_LEADER, HOUR),
        LIMITS.check_gone(OWNER, GROUP_PROPERTIES_LEADER, 0),
    ),
    ("L10", timers(members=Map()), timers()),
    ("L11", LIMITS.check_answer(GROUP_PROPERTIES_LEADER, 7, HOUR), LIMITS.check_answer(GROUP_PROPERTIES_LEADER, 7, 0)),
    (
        "L11",
        LIMITS.check_patience(GROUP_PROPERTIES_LEADER, STREAM, 7, 0),
        LIMITS.check_patience(GROUP_PROPERTIES_LEADER, STREAM, 7, HOUR),
    ),
    (
        "L11",
        LIMITS.check_window(GROUP_PROPERTIES_LEADER, OWNER, C.grant_window + 1),
        LIMITS.check_window(GROUP_PROPERTIES_LEADER, OWNER, C.grant_window),
    ),
]


@pytest.mark.parametrize(("name", "broken", "near"), RUNS)
def test_a_property_is_broken_by_what_breaks_it_alone(name, broken, near):
    assert name in [one.name for one in broken]
    assert near == ()


@pytest.mark.parametrize(
    ("check", "limit_ns"),
    [
        (lambda ns: LIMITS.check_effect(OWNER, GROUP_PROPERTIES_LEADER, ns, "is let go"), LIMITS.validity_ns),
        (lambda ns: LIMITS.check_gone(OWNER, GROUP_PROPERTIES_LEADER, ns), LIMITS.validity_ns),
        (lambda ns: LIMITS.check_leaving(OWNER, ns), LIMITS.leaving_ns),
        (lambda ns: LIMITS.check_answer(GROUP_PROPERTIES_LEADER, 7, ns), LIMITS.answer_ns),
        (lambda ns: LIMITS.check_repeated(GROUP_PROPERTIES_LEADER, STREAM, 7, ns), LIMITS.resend_ns),
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
GROUP_PROPERTIES_SESSION = SessionRecord(
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


INVARIANTS_LINK = StreamLink("c1~1/1", "leader~1/1", 5, 2)


def holds(fsm, clause):
    """Looked up when it is needed: where the invariant is gone, nothing tells the two apart."""
    (found,) = [one.holds for one in fsm.invariants if one.clause == clause]
    return found


HELD = StreamRecord(INVARIANTS_LINK, "s", StreamStatus.GRANTED, grant=3)
INVARIANTS_READING = StreamReading("c1~1/1", "s", 3, progress=4, delivered=6, fetched=9)
INVARIANTS_KEY = reading_key("c1~1/1", "s")
SESSION_RECORD = SessionRecord(
    "c1~1/0",
    buffer=8,
    leases=Map({"c1~1/1": OwnerLease(streams=Map({"s": True}))}),
    readings=Map({INVARIANTS_KEY: INVARIANTS_READING}),
)


@pytest.mark.parametrize("change", [{"installed": Map({"t": True})}, {"seen": Map({"t": (0, 0)})}])
def test_SS_191_of_all_that_is_read_or_was_found_a_progress_is_known(change):
    good = PrivateRecord("c1~1/1", "#", 0, progress=Map({"s": 4}), installed=Map({"s": True}))
    assert holds(PRIVATE, "SS-191")(good)
    assert not holds(PRIVATE, "SS-191")(replace(good, **change))


INVARIANTS_ASSIGNED = AssignmentRecord(INVARIANTS_LINK, "0.0/s", 7, 0, 1, 1, 1, AssignmentStatus.GRANTED)
INVARIANTS_MEMBER = MemberRecord(INVARIANTS_LINK, C, grants=Map({7: "0.0/s"}), count=1)
INVARIANTS_LEADING = replace(
    LeaderRecord("leader~1/1", "g", "#", C),
    members=Map({"c1~1/1": INVARIANTS_MEMBER}),
    assignments=Map({"0.0/s": INVARIANTS_ASSIGNED}),
    streams=Map({"0.0/s": KnownStream(0, 0, 0)}),
    ranks=Map({(0, 0): Rank(streams=Map({"0.0/s": True}), live=1, open=True)}),
    live=1,
)


@pytest.mark.parametrize(
    "change",
    [
        {"members": Map({"c1~1/1": replace(INVARIANTS_MEMBER, count=0)})},
        {"live": 0},
        {"assignments": Map()},
        {"ranks": Map()},
    ],
)
def test_SS_161_what_members_count_is_assigned_and_every_live_stream_is_somewhere(change):
    assert holds(LEADER, "SS-161")(INVARIANTS_LEADING)
    assert not holds(LEADER, "SS-161")(replace(INVARIANTS_LEADING, **change))


@pytest.mark.parametrize(
    ("fsm", "record", "event", "name"),
    [
        (
            LEADER,
            replace(
                INVARIANTS_LEADING,
                epoch=5,
                status=LeaderStatus.LEADING,
                members=Map({"c1~1/1": replace(INVARIANTS_MEMBER, grants=Map())}),
            ),
            UpdateProgress("c1~1/1", 5, 2, "0.0/s", 6, 1, False),
            "assignments-have-owners",
        ),
        (
            SESSION,
            replace(SESSION_RECORD, readings=Map({INVARIANTS_KEY: replace(INVARIANTS_READING, fetched=5)})),
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


MOST = 512
B, L = "c1~1/1", "leader~1/1"
PAIR = (B, 5, 1)


class Holding:
    """A connected borrower that holds so many streams; time in seconds."""

    def __init__(self, streams):
        record = BorrowerRecord(B, "g", "t/#", ("leader~1",), Configuration())
        self.node = Node(BORROWER, record, name=B, now_ns=0, check=True)
        self.feed(Start())
        self.feed(LeaderConnectResponse(B, L, 5, 1), 10)
        self.feed(PingResponse(*PAIR, 1), 20)
        self.pings = 1
        for number in range(streams):
            self.feed(Grant(*PAIR, name(number), number + 1, 0), 30)

    def feed(self, event, at_ms=0):
        return self.node.feed(event, at_ms * MS)

    def fire(self, at_ms):
        return self.node.fire(at_ms * MS)

    def ping(self):
        """The next ping, which is answered: the numbers of the streams that it reports."""
        self.pings += 1
        (sent,) = [one.message for one in self.fire(1_020 * self.pings) if isinstance(one, Send)]
        self.feed(PingResponse(*PAIR, self.pings), 1_020 * self.pings)
        return [int(report.stream[1:]) for report in sent.reports]


def name(number):
    return f"s{number:04}"


def test_SS_268_a_ping_carries_a_bounded_number_of_reports_and_the_next_ones_the_others():
    bench = Holding(1_200)
    assert [bench.ping(), bench.ping(), bench.ping(), bench.ping()] == [
        list(range(MOST)),
        list(range(MOST, 2 * MOST)),
        list(range(2 * MOST, 1_200)),
        [],
    ]


def test_SS_268_a_stream_that_comes_and_goes_waits_once(monkeypatch):
    monkeypatch.setattr(borrower, "REPORTS_PER_PING", 2)
    bench = Holding(3)
    for grant in range(4, 40, 2):
        bench.feed(Revoked(*PAIR, "s0002", grant), 40)
        bench.feed(Grant(*PAIR, "s0002", grant + 1, 0), 50)
    assert len(bench.node.record.later) <= 4
    assert [bench.ping(), bench.ping(), bench.ping()] == [[0, 1], [2], []]


def test_SS_268_a_disconnect_is_bounded_where_nothing_was_confirmed():
    bench = Holding(600)
    sent = [one.message for one in bench.feed(OnDisconnect(), 40) if isinstance(one, Send) and one.to == L]
    assert [len(one.reports) for one in sent if isinstance(one, Disconnect)] == [MOST]
