"""SubscriberWindow: what a receiver keeps of one publisher of a subject, and what a message is to it.

`fresh -> current <-> old -> fresh`, beside `unsubscribed` (source: "Subscription sequence window", "Message Loss").
A subject stands in a generation of the window as a whole, with the records of all its publishers.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Effects, Event, Fsm, Ignore, Invariant, Row, Status, Tell
from statemachines.sequence_windows.jump import find_cut, has_come_ahead, last_before, runs_after
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered, Verdict
from statemachines.sequence_windows.publisher_window import Flip
from statemachines.sequence_windows.sequence import base_of, frame_of, is_number


class Subscribe(Call, frozen=True, gc=False):
    """From the host: the subject is wanted."""


class Unsubscribe(Call, frozen=True, gc=False):
    """From the host: the subject is not wanted any more."""


class Touched(Call, frozen=True, gc=False):
    """Something came of another publisher of the subject."""


class Displace(Call, frozen=True, gc=False):
    """From the host: another publisher of the subject needs the place of this one, which was silent longest."""


FLIPS = 2
"""So many flips after something came of a subject it is forgotten as a whole."""


class SubscriberWindowStatus(Status):
    """Whether the subject is subscribed, and where it stands."""

    UNSUBSCRIBED = "unsubscribed"
    FRESH = "fresh"
    CURRENT = "current"
    OLD = "old"


UNSUBSCRIBED, FRESH, CURRENT, OLD = SubscriberWindowStatus
KEPT = (CURRENT, OLD)
SUBSCRIBED = (FRESH, CURRENT, OLD)


class SubscriberWindowRecord(msgspec.Struct, frozen=True, gc=False):
    """One life of a publisher of one subject.  `last`: the last number that came (0: none); `time_ns`: when its stream
    began, if that came with it (0: it did not).  After a jump there are two runs of numbers, below the jump and from
    the number `jumped` on: `other` is the last number of the one that `last` is not of (0: there was no jump).
    `crowded`: of one that nothing is known of: publishers of the subject were forgotten for others, perhaps this one
    too, and after so many flips that is forgotten (0: none were)."""

    subject: str
    publisher: str
    status: SubscriberWindowStatus = UNSUBSCRIBED
    last: int = 0
    time_ns: int = 0
    other: int = 0
    jumped: int = 0
    crowded: int = 0


Done = tuple[SubscriberWindowRecord, Effects]


# -- guards, in the order in which they are asked -------------------------------------------------------------------


def find_since(record: SubscriberWindowRecord, event: Numbered) -> int:
    """What the message is judged by: the last number that came of its run."""
    return last_before(record.last, record.other, record.jumped, event.number, event.end)


def find_cut_in(record: SubscriberWindowRecord, event: Numbered) -> int:
    """The first number of the message that is of the other run (0: it is of one)."""
    return find_cut(record.other, record.jumped, event.number, event.end)


def is_of_two_runs(record: SubscriberWindowRecord, event: Numbered) -> bool:
    return find_cut_in(record, event) > 0


def is_repeat(record: SubscriberWindowRecord, event: Numbered) -> bool:
    runs = (record.last, record.other, record.jumped)
    return event.end <= find_since(record, event) or has_come_ahead(*runs, event.number, event.end)


def overlaps(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """Some of it has come, and the rest goes on from there."""
    return event.number <= find_since(record, event)


def is_next(record: SubscriberWindowRecord, event: Numbered) -> bool:
    last = find_since(record, event)
    return event.number == last + 1 and event.frame == frame_of(last)


def is_of_the_stream(record: SubscriberWindowRecord, event: Numbered) -> bool:
    return event.frame == frame_of(find_since(record, event))


def follows(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """A stream that begins where the one before ended for us, too."""
    return event.before == find_since(record, event)


def follows_later(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """A stream that begins after messages of the one before that have not come."""
    last = find_since(record, event)
    return frame_of(event.before) == frame_of(last) and event.before > last


def is_lost_between(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """It does not begin its stream, or begins it after a stream that we know nothing of."""
    return event.first != 1 or event.before != 0


def may_have_been_known(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """Its record may be one that was forgotten for others: it goes on with a stream, or with one after another."""
    return record.crowded > 0 and (event.first != 1 or event.before != 0)


def is_crowded(record: SubscriberWindowRecord, event: Event) -> bool:
    return record.crowded > 0


# -- actions --------------------------------------------------------------------------------------------------------


def tell_verdict(
    verdict: Verdict, event: Numbered, *, first: int = 0, last: int = 0, lost: int = 0, unknown: bool = False
) -> Tell:
    """What messages `first`..`last` are (0: as the event has it)."""
    lost = min(lost, LOSS_MAX)
    return Tell(Judged(verdict, event.frame, first or event.first, last or event.last, lost, unknown))


def advance_window(record: SubscriberWindowRecord, event: Numbered) -> SubscriberWindowRecord:
    """Up to the end of the event.  Where it is a jump the run before it is kept, and so is the run after a jump where
    the publisher goes on before it."""
    time_ns = event.begin_ns or (record.time_ns if event.frame == frame_of(record.last) else 0)
    runs = (record.last, record.other, record.jumped)
    last, other, jumped = runs_after(*runs, find_since(record, event), event.number, event.end)
    return replace(record, last=last, time_ns=time_ns, other=other, jumped=jumped, crowded=0)


def drop_unsubscribed(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return record, (tell_verdict(Verdict.NOT_SUBSCRIBED, event),)


def drop_repeat(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return record, (tell_verdict(Verdict.REPEAT, event),)


def take_parts(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    """Each part by its own run, as if it had come alone."""
    cut = base_of(find_cut_in(record, event))
    done = SUBSCRIBER_WINDOW.step(record, replace(event, last=cut - 1), now_ns)
    rest = SUBSCRIBER_WINDOW.step(done.record, replace(event, first=cut), now_ns)
    return rest.record, (*done.effects, *rest.effects)


def take_rest(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    base = base_of(find_since(record, event))
    again, rest = tell_verdict(Verdict.REPEAT, event, last=base), tell_verdict(Verdict.NEXT, event, first=base + 1)
    return advance_window(record, event), (again, rest)


def take_first(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return advance_window(record, event), (tell_verdict(Verdict.FIRST, event),)


def take_first_after_unknown(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return advance_window(record, event), (tell_verdict(Verdict.FIRST, event, lost=1, unknown=True),)


def take_next(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return advance_window(record, event), (tell_verdict(Verdict.NEXT, event),)


def take_skip(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return advance_window(record, event), (
        tell_verdict(Verdict.SKIP, event, lost=event.number - find_since(record, event) - 1),
    )


def take_after_tail(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return advance_window(record, event), (
        tell_verdict(Verdict.SKIP, event, lost=event.before - find_since(record, event)),
    )


def take_unknown(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return advance_window(record, event), (tell_verdict(Verdict.SKIP, event, lost=1, unknown=True),)


def take_cycle(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return advance_window(record, event), (tell_verdict(Verdict.CYCLE, event),)


def forget(record: SubscriberWindowRecord, event: Event, now_ns: int) -> Done:
    return replace(record, last=0, time_ns=0, other=0, jumped=0, crowded=0), ()


def displace(record: SubscriberWindowRecord, event: Displace, now_ns: int) -> Done:
    crowded = FLIPS if record.status is CURRENT else FLIPS - 1
    return replace(record, last=0, time_ns=0, other=0, jumped=0, crowded=crowded), ()


def age(record: SubscriberWindowRecord, event: Flip, now_ns: int) -> Done:
    return replace(record, crowded=record.crowded - 1), ()


def stay_crowded(record: SubscriberWindowRecord, event: Touched, now_ns: int) -> Done:
    return replace(record, crowded=FLIPS), ()


# fmt: off
ROWS = (
    #   on           from          to            do                 when              clause
    Row(Numbered,    UNSUBSCRIBED, STAY,         drop_unsubscribed, None,             "SW-20"),
    Row(Numbered,    FRESH,        CURRENT,      take_first_after_unknown, may_have_been_known, "SW-78"),
    Row(Numbered,    FRESH,        CURRENT,      take_first,        None,             "SW-21"),
    Row(Numbered,    KEPT,         CURRENT,      take_parts,        is_of_two_runs,   "SW-99"),
    Row(Numbered,    KEPT,         CURRENT,      drop_repeat,       is_repeat,        "SW-22"),
    Row(Numbered,    KEPT,         CURRENT,      take_rest,         overlaps,         "SW-22"),
    Row(Numbered,    KEPT,         CURRENT,      take_next,         is_next,          "SW-23"),
    Row(Numbered,    KEPT,         CURRENT,      take_skip,         is_of_the_stream, "SW-24"),
    Row(Numbered,    KEPT,         CURRENT,      take_next,         follows,          "SW-25"),
    Row(Numbered,    KEPT,         CURRENT,      take_after_tail,   follows_later,    "SW-26"),
    Row(Numbered,    KEPT,         CURRENT,      take_unknown,      is_lost_between,  "SW-27"),
    Row(Numbered,    KEPT,         CURRENT,      take_cycle,        None,             "SW-28"),
    Row(Touched,     OLD,          CURRENT,      None,              None,             "SW-14"),
    Row(Touched,     FRESH,        STAY,         stay_crowded,      is_crowded,       "SW-14"),
    Row(Displace,    KEPT,         FRESH,        displace,          None,             "SW-18"),
    Row(Flip,        CURRENT,      OLD,          None,              None,             "SW-11"),
    Row(Flip,        OLD,          FRESH,        forget,            None,             "SW-12"),
    Row(Flip,        FRESH,        STAY,         age,               is_crowded,       "SW-12"),
    Row(Subscribe,   UNSUBSCRIBED, FRESH,        None,              None,             "SW-19"),
    Row(Unsubscribe, SUBSCRIBED,   UNSUBSCRIBED, forget,            None,             "SW-19"),
    Ignore((Touched,), (UNSUBSCRIBED, FRESH, CURRENT),                                "SW-14"),
    Ignore((Flip,), (UNSUBSCRIBED, FRESH),                                            "SW-12"),
    Ignore((Displace,), (UNSUBSCRIBED, FRESH),                                        "SW-18"),
    Ignore((Subscribe,), SUBSCRIBED,                                                  "SW-19"),
    Ignore((Unsubscribe,), UNSUBSCRIBED,                                              "SW-19"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def keeps_a_number_where_it_is_kept(record: SubscriberWindowRecord) -> bool:
    """Where something came there is the last number of it; where nothing came, or it is forgotten, there is none."""
    return is_number(record.last) if record.status in KEPT else record.last == record.time_ns == record.other == 0


def keeps_two_runs_apart(record: SubscriberWindowRecord) -> bool:
    """The run after a jump begins above the one before it, and goes on from there."""
    if not record.other:
        return record.jumped == 0
    return min(record.last, record.other) < record.jumped <= max(record.last, record.other)


def is_crowded_where_nothing_is_known(record: SubscriberWindowRecord) -> bool:
    """Only a publisher that nothing is known of may have been forgotten, and no longer than its subject is kept."""
    return 0 <= record.crowded <= (FLIPS if record.status in (FRESH, UNSUBSCRIBED) else 0)


SUBSCRIBER_WINDOW = Fsm(
    "subscriber_window",
    protocol="sequence_windows",
    record=SubscriberWindowRecord,
    states=SubscriberWindowStatus,
    initial=UNSUBSCRIBED,
    rows=ROWS,
    key=lambda record: f"{record.subject} {record.publisher}",
    invariants=(
        Invariant("keeps-a-number-where-it-is-kept", "SW-02", keeps_a_number_where_it_is_kept),
        Invariant("keeps-two-runs-apart", "SW-81", keeps_two_runs_apart),
        Invariant("is-crowded-where-nothing-is-known", "SW-78", is_crowded_where_nothing_is_known),
    ),
)
