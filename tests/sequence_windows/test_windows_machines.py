"""The machines of sequence windows under any events, and their hosts against them."""

from hypothesis import given, settings
from hypothesis import strategies as st

from statemachines.sequence_windows import subject_publishers, subscriber_window
from statemachines.sequence_windows.inbox_window import INBOX_WINDOW
from statemachines.sequence_windows.late_join import LATE_JOIN
from statemachines.sequence_windows.loss_notifier import LOSS_NOTIFIER
from statemachines.sequence_windows.message import Numbered
from statemachines.sequence_windows.publisher_table import FramesUsedUp, PublisherTable
from statemachines.sequence_windows.publisher_window import (
    PUBLISHER_WINDOW,
    Flip,
    Publish,
    PublisherWindowRecord,
)
from statemachines.sequence_windows.rotation import ROTATION, Window
from statemachines.sequence_windows.sequence import BASE_MAX, FRAME_MAX, FRAME_NS, frame_of, number_of
from statemachines.sequence_windows.subscriber_table import SubscriberTable
from statemachines.testing.machine import MachineTest

S = 1_000_000_000


def machine_test(fsm):
    case = MachineTest.of(fsm).TestCase
    case.settings = settings(case.settings, max_examples=25, stateful_step_count=20)
    return case


TestPublisherWindow = machine_test(PUBLISHER_WINDOW)
TestSubscriberWindow = machine_test(subscriber_window.SUBSCRIBER_WINDOW)
TestSubjectPublishers = machine_test(subject_publishers.SUBJECT_PUBLISHERS)
TestRotation = machine_test(ROTATION)
TestLateJoin = machine_test(LATE_JOIN)
TestLossNotifier = machine_test(LOSS_NOTIFIER)
TestInboxWindow = machine_test(INBOX_WINDOW)

SUBJECTS = st.sampled_from("ab")
FRAMES = st.sampled_from((0, 1, 2, 3, 9, FRAME_MAX, FRAME_MAX + 1))
COUNTS = st.sampled_from((1, 1, 1, 2, BASE_MAX - 1, BASE_MAX))


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("publish"), SUBJECTS, COUNTS, FRAMES),
            st.tuples(st.just("flip")),
            st.tuples(st.just("converge"), FRAMES),
        ),
        max_size=30,
    )
)
@settings(max_examples=150, deadline=None)
def test_SW_03_to_SW_15_a_table_of_publishers_is_its_machines(moves):
    """Each subject's machine is fed by itself, flips included; floor and convergence are counted here, too."""
    table, alone = PublisherTable(Window(1), 0), {}
    now = floor = converged = 0
    for kind, *given_ in moves:
        if kind == "flip":
            now += 10 * S + 1
            kept = any(record.status.value != "absent" for record in alone.values())
            assert table.tick(now) == kept
            if kept:
                dropped = [frame_of(one.last) for one in alone.values() if one.status.value == "old"]
                floor = max([floor, *(frame + 1 for frame in dropped)])
                alone = {name: PUBLISHER_WINDOW.step(one, Flip(), 0).record for name, one in alone.items()}
        elif kind == "converge":
            converged = max(converged, given_[0] * FRAME_NS)
            table.converge(given_[0] * FRAME_NS)
        else:
            subject, count, frame = given_
            expected, record = [], alone.get(subject, PublisherWindowRecord(subject))
            while count:
                step = PUBLISHER_WINDOW.step(record, Publish(count, frame * FRAME_NS, converged, max(1, floor)), 0)
                (told,) = (effect.event for effect in step.effects)
                record = step.record
                if not hasattr(told, "first"):
                    expected.append(None)
                    break
                expected.append(told)
                count -= told.last - told.first + 1
            alone[subject] = record
            try:
                if given_[1] == 1:
                    assert [table.stamp(subject, frame * FRAME_NS)] == expected
                else:
                    assert list(table.stamp_many(subject, given_[1], frame * FRAME_NS)) == expected
            except FramesUsedUp:
                assert expected[-1] is None
        for subject, record in alone.items():
            assert table.record(subject) == record
    cost = sum(49 for one in alone.values() if one.status.value != "absent")
    assert table.subjects.size_bytes == cost


WHO = st.sampled_from("pqr")
BASES = st.sampled_from((1, 2, 3, 4, 5, BASE_MAX))
NUMBERED = st.builds(
    lambda frame, bases, time_ns, chain: Numbered(frame, min(bases), max(bases), time_ns, chain),
    st.integers(1, 3),
    st.tuples(BASES, BASES),
    st.sampled_from((0, FRAME_NS, 2 * FRAME_NS)),
    st.sampled_from((0, number_of(1, 2), number_of(1, 4), number_of(2, 1), number_of(1, BASE_MAX))),
)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("receive"), SUBJECTS, WHO, NUMBERED),
            st.tuples(st.just("flip")),
            st.tuples(st.sampled_from(("subscribe", "unsubscribe")), SUBJECTS),
        ),
        max_size=40,
    )
)
@settings(max_examples=150, deadline=None)
def test_SW_11_to_SW_28_a_table_of_receivers_is_its_machines(moves):
    """Each publisher's record is fed by itself, what comes of others of its subject included; the short way as well.
    There are places for two of the three; `a` is subscribed in the second frame."""
    table = SubscriberTable(Window(1), 0, publishers_max=2)
    alone, subscribed = {}, {"a"}
    floor, frame, old_frame, since = 1, 0, 0, {"a": 2}
    crowds = {subject: subject_publishers.SubjectPublishersRecord(subject, 2) for subject in "ab"}
    now = evicted = 0

    def feed(event, *places):
        for place in places:
            if place in alone:
                alone[place] = subscriber_window.SUBSCRIBER_WINDOW.step(alone[place], event, 0).record

    def crowd(subject, event):
        step = subject_publishers.SUBJECT_PUBLISHERS.step(crowds[subject], event, 0)
        crowds[subject] = step.record
        return [effect.event.publisher for effect in step.effects]

    def subscription(subject):
        return subscriber_window.Subscribe(max(since[subject], floor))

    def kept(subject):
        return any(record.last for (of, _), record in alone.items() if of == subject)

    table.subscribe("a", 2 * FRAME_NS)
    for kind, *given_ in moves:
        if kind == "flip":
            now += 10 * S + 1
            is_due = kept("a") or kept("b")
            assert table.tick(now) == is_due
            if is_due:
                floor, old_frame = max(floor, old_frame + 1), frame
                feed(Flip(floor), *alone)
                for subject in "ab":
                    if not kept(subject):
                        crowd(subject, subject_publishers.SubjectForgotten())
        elif kind == "receive":
            subject, who, event = given_
            if (subject, who) not in alone:
                crowded = subscriber_window.FLIPS if crowds[subject].status is subject_publishers.CROWDED else 0
                alone[subject, who] = subscriber_window.SubscriberWindowRecord(subject, who, crowded=crowded)
                is_wanted = subject in subscribed
                feed(subscription(subject) if is_wanted else subscriber_window.Unsubscribe(), (subject, who))
            step = subscriber_window.SUBSCRIBER_WINDOW.step(alone[subject, who], event, 0)
            told = [effect.event for effect in step.effects]
            if event.first == event.last:
                given_one = (event.number, event.time_ns, event.chain, 10 * FRAME_NS)
                assert [table.receive_one(subject, who, *given_one)] == told
            else:
                assert list(table.receive(subject, who, event, 10 * FRAME_NS)) == told
            alone[subject, who] = step.record
            if subject in subscribed:
                frame = max(frame, event.frame)
                for gone in crowd(subject, subject_publishers.Arrival(who)):
                    evicted += 1
                    feed(subscriber_window.Displace(), (subject, gone))
                feed(subscriber_window.Touched(), *((subject, other) for other in "pqr" if other != who))
        else:
            subject = given_[0]
            getattr(table, kind)(subject)
            if kind == "unsubscribe" or subject not in subscribed:
                since[subject] = subscriber_window.NEVER
            event = subscription(subject) if kind == "subscribe" else subscriber_window.Unsubscribe()
            (subscribed.add if kind == "subscribe" else subscribed.discard)(subject)
            feed(event, *((subject, who) for who in "pqr"))
            if kind == "unsubscribe":
                crowd(subject, subject_publishers.SubjectForgotten())
        for (subject, who), record in alone.items():
            assert table.record(subject, who) == record
        assert table.evicted == evicted
    beyond = sum(max(0, len(crowds[subject].publishers) - 1) for subject in "ab")
    assert table.subjects.size_bytes == 129 * sum(map(kept, "ab")) + subject_publishers.PLACE_BYTES * beyond
