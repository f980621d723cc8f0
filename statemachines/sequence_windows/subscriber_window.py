"""SubscriberWindow: what a receiver keeps of one publisher of a subject, and what a message is to it.

`fresh -> current <-> old -> fresh`, beside `unsubscribed` (source: "Subscription sequence window", "Message Loss").
A subject stands in a generation of the window as a whole, with the records of all its publishers.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, Effects, Event, Fsm, Ignore, Invariant, Row, Status, Tell
from statemachines.sequence_windows.gaps import GAPS_MAX, Gaps, find_cut, last_before, take
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered, Verdict
from statemachines.sequence_windows.publisher_window import Flip
from statemachines.sequence_windows.sequence import FRAME_MAX, base_of, frame_of, is_number

NEVER = FRAME_MAX + 1


class Subscribe(Call, frozen=True, gc=False):
    """From the host: the subject is wanted from the frame `since` on (`NEVER`: the host does not say)."""

    since: int = NEVER


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
    """One life of a publisher of one subject.

    `last`: the highest number that came (0: none); `gaps` and `alone`: see `statemachines.sequence_windows.gaps`;
    `time_ns`: when the stream of `last` began, if that came with it (0: it did not); `since`: what a stream of this
    frame or a later one lost at its beginning was lost while the receiver listened.

    `crowded`: of a publisher that nothing is known of: publishers of the subject were forgotten for others, perhaps
    this one too, and after so many flips that is forgotten (0: none were).
    """

    subject: str
    publisher: str
    status: SubscriberWindowStatus = UNSUBSCRIBED
    last: int = 0
    time_ns: int = 0
    gaps: Gaps = ()
    alone: int = 0
    crowded: int = 0
    since: int = NEVER


Done = tuple[SubscriberWindowRecord, Effects]


# -- guards, in the order in which they are asked -------------------------------------------------------------------


def find_since(record: SubscriberWindowRecord, event: Numbered) -> int:
    """What the message is judged by: the last number of the run below it, or below the stream that it goes on from."""
    return last_before(record.last, record.gaps, event.before or event.number)


def find_own(record: SubscriberWindowRecord, event: Numbered) -> int:
    """The last number of the run that the message begins in or above."""
    return last_before(record.last, record.gaps, event.number)


def is_of_two_runs(record: SubscriberWindowRecord, event: Numbered) -> bool:
    return find_cut(record.gaps, event.number, event.end) > 0


def is_repeat(record: SubscriberWindowRecord, event: Numbered) -> bool:
    return event.end <= find_own(record, event)


def overlaps(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """Some of it has come, and the rest goes on from there."""
    return event.number <= find_own(record, event)


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


def goes_on(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """It does not begin its stream, or begins it after a stream that we know nothing of."""
    return event.first != 1 or event.before != 0


def may_have_been_known(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """Its record may be one that was forgotten for others."""
    return record.crowded > 0 and goes_on(record, event)


def has_missed_the_beginning(record: SubscriberWindowRecord, event: Numbered) -> bool:
    """Messages before it were sent while the receiver listened, and did not come."""
    return frame_of(event.before or event.number) >= record.since and goes_on(record, event)


def is_crowded(record: SubscriberWindowRecord, event: Event) -> bool:
    return record.crowded > 0


# -- actions --------------------------------------------------------------------------------------------------------


def tell_verdict(
    verdict: Verdict, event: Numbered, *, first: int = 0, last: int = 0, lost: int = 0, unknown: bool = False
) -> Tell:
    """What messages `first`..`last` are (0: as the event has it)."""
    unknown = unknown or lost > LOSS_MAX
    return Tell(Judged(verdict, event.frame, first or event.first, last or event.last, min(lost, LOSS_MAX), unknown))


def advance_window(record: SubscriberWindowRecord, event: Numbered) -> SubscriberWindowRecord:
    """The messages of the event have come."""
    last, gaps, alone = event.end, record.gaps, 0
    if record.last:
        last, gaps, alone = take(record.last, gaps, record.alone, event.number, event.end)
    time_ns = event.begin_ns
    if (not time_ns and event.frame == frame_of(record.last)) or event.frame < frame_of(last):
        time_ns = record.time_ns
    return replace(record, last=last, time_ns=time_ns, gaps=gaps, alone=alone, crowded=0)


def drop_unsubscribed(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return record, (tell_verdict(Verdict.NOT_SUBSCRIBED, event),)


def drop_repeat(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    return record, (tell_verdict(Verdict.REPEAT, event),)


def take_parts(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    """Each part by its own run, as if it had come alone."""
    cut = base_of(find_cut(record.gaps, event.number, event.end))
    done = SUBSCRIBER_WINDOW.step(record, replace(event, last=cut - 1), now_ns)
    rest = SUBSCRIBER_WINDOW.step(done.record, replace(event, first=cut), now_ns)
    return rest.record, (*done.effects, *rest.effects)


def take_rest(record: SubscriberWindowRecord, event: Numbered, now_ns: int) -> Done:
    base = base_of(find_own(record, event))
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
    return SubscriberWindowRecord(record.subject, record.publisher, record.status), ()


def listen(record: SubscriberWindowRecord, event: Subscribe, now_ns: int) -> Done:
    return replace(record, since=event.since), ()


def displace(record: SubscriberWindowRecord, event: Displace, now_ns: int) -> Done:
    crowded = FLIPS if record.status is CURRENT else FLIPS - 1
    return replace(forget(record, event, now_ns)[0], crowded=crowded, since=record.since), ()


def age(record: SubscriberWindowRecord, event: Flip, now_ns: int) -> Done:
    return replace(record, crowded=max(0, record.crowded - 1), since=max(record.since, event.floor)), ()


def drop(record: SubscriberWindowRecord, event: Flip, now_ns: int) -> Done:
    return age(replace(forget(record, event, now_ns)[0], since=record.since), event, now_ns)


def stay_crowded(record: SubscriberWindowRecord, event: Touched, now_ns: int) -> Done:
    return replace(record, crowded=FLIPS), ()


# fmt: off
ROWS = (
    #   on           from          to            do                 when              clause
    Row(Numbered,    UNSUBSCRIBED, STAY,         drop_unsubscribed, None,             "SW-20"),
    Row(Numbered,    FRESH,        CURRENT,      take_first_after_unknown, may_have_been_known, "SW-78"),
    Row(Numbered,    FRESH,        CURRENT,      take_first_after_unknown, has_missed_the_beginning, "SW-100"),
    Row(Numbered,    FRESH,        CURRENT,      take_first,        None,             "SW-21"),
    Row(Numbered,    KEPT,         CURRENT,      take_parts,        is_of_two_runs,   "SW-99"),
    Row(Numbered,    KEPT,         CURRENT,      drop_repeat,       is_repeat,        "SW-22"),
    Row(Numbered,    KEPT,         CURRENT,      take_rest,         overlaps,         "SW-22"),
    Row(Numbered,    KEPT,         CURRENT,      take_next,         is_next,          "SW-23"),
    Row(Numbered,    KEPT,         CURRENT,      take_skip,         is_of_the_stream, "SW-24"),
    Row(Numbered,    KEPT,         CURRENT,      take_next,         follows,          "SW-25"),
    Row(Numbered,    KEPT,         CURRENT,      take_after_tail,   follows_later,    "SW-26"),
    Row(Numbered,    KEPT,         CURRENT,      take_unknown,      goes_on,          "SW-27"),
    Row(Numbered,    KEPT,         CURRENT,      take_cycle,        None,             "SW-28"),
    Row(Touched,     OLD,          CURRENT,      None,              None,             "SW-14"),
    Row(Touched,     FRESH,        STAY,         stay_crowded,      is_crowded,       "SW-14"),
    Row(Displace,    KEPT,         FRESH,        displace,          None,             "SW-18"),
    Row(Flip,        CURRENT,      OLD,          age,               None,             "SW-11"),
    Row(Flip,        OLD,          FRESH,        drop,              None,             "SW-12"),
    Row(Flip,        FRESH,        STAY,         age,               None,             "SW-12"),
    Row(Subscribe,   UNSUBSCRIBED, FRESH,        listen,            None,             "SW-19"),
    Row(Unsubscribe, SUBSCRIBED,   UNSUBSCRIBED, forget,            None,             "SW-19"),
    Ignore((Touched,), (UNSUBSCRIBED, FRESH, CURRENT),                                "SW-14"),
    Ignore((Flip,), UNSUBSCRIBED,                                                     "SW-12"),
    Ignore((Displace,), (UNSUBSCRIBED, FRESH),                                        "SW-18"),
    Ignore((Subscribe,), SUBSCRIBED,                                                  "SW-19"),
    Ignore((Unsubscribe,), UNSUBSCRIBED,                                              "SW-19"),
)
# fmt: on


# -- invariants -----------------------------------------------------------------------------------------------------


def keeps_a_number_where_it_is_kept(record: SubscriberWindowRecord) -> bool:
    """Where something came there is the last number of it; where nothing came, or it is forgotten, there is none."""
    return is_number(record.last) if record.status in KEPT else (record.last, record.time_ns, record.gaps) == (0, 0, ())


def keeps_runs_apart(record: SubscriberWindowRecord) -> bool:
    """Something is missing in each gap, and the runs between them are in order."""
    edges = [edge for gap in record.gaps for edge in gap]
    apart = all(below + 1 < above for below, above in record.gaps)
    return apart and len(record.gaps) <= GAPS_MAX and edges == sorted(edges) and max(edges, default=0) <= record.last


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
        Invariant("keeps-runs-apart", "SW-81", keeps_runs_apart),
        Invariant("is-crowded-where-nothing-is-known", "SW-78", is_crowded_where_nothing_is_known),
    ),
)
