"""Conformance: what others may do otherwise who implement the windows of a publisher or a receiver, and what is told to
them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from statemachines.kernel import Event
from statemachines.sequence_windows.message import LOSS_MAX, Judged, Numbered
from statemachines.sequence_windows.publisher_window import (
    PUBLISHER_WINDOW,
    Exhausted,
    Flip,
    Publish,
    PublisherWindowRecord,
    Stamped,
)
from statemachines.sequence_windows.sequence import (
    BASE_MAX,
    FRAME_MAX,
    FRAME_NS,
    base_of,
    frame_of,
    number_of,
    start_of,
)
from statemachines.sequence_windows.subscriber_window import (
    SUBSCRIBER_WINDOW,
    Displace,
    Subscribe,
    SubscriberWindowRecord,
    Touched,
    Unsubscribe,
)
from statemachines.testing.conformance.interface import Alphabet
from statemachines.testing.conformance.relation import Ranged, Relation
from statemachines.testing.conformance.role import ConformanceRole, Start
from statemachines_spec.explorer.actor import Timing

NO_TIMERS: Final = Timing(1)
FRAME: Final = 193_148_344
"""That of the source's examples: numbers of it do not fit into a double."""
FAR: Final = 66
"""A base far from the first message of a stream."""
HIGH: Final = 2**34 + 1
"""A base that has all its bits only in a number of 35 bits."""
BEYOND: Final = LOSS_MAX + 10
"""The base of a message before which more are missing than are counted."""

# -- the window of a receiver -----------------------------------------------------------------------------------------

JUDGING: Final = Relation(
    ranged=(
        Ranged(
            "judged",
            "first",
            "last",
            "SW-83",
            rest={"verdict": "next", "lost": 0, "unknown": False},
            whole=("repeat", "not_subscribed"),
        ),
    )
)


def tell_of_stream(record: Any) -> Iterator[Event]:
    """What one stream brings, alone and in ranges, while the window turns and the subject comes and goes."""
    yield from (Subscribe(), Subscribe(FRAME), Unsubscribe(), Flip(), Flip(FRAME + 1))
    yield from (Numbered(FRAME, base, base) for base in (1, 2, 3, 5))
    yield from (Numbered(FRAME, 2, 3), Numbered(FRAME, 4, 6))


def tell_of_streams(record: Any) -> Iterator[Event]:
    """What streams bring that begin after each other, with the last number of the one before and without."""
    yield from (Subscribe(), Flip())
    yield from (Numbered(FRAME, base, base) for base in (1, 2, 4))
    begin = start_of(FRAME + 1)
    chains = (number_of(FRAME, 1), number_of(FRAME, 4), number_of(1, 2), number_of(FRAME + 1, 1))
    yield from (Numbered(FRAME + 1, 1, 1, begin, chain) for chain in (0, *chains))
    yield Numbered(FRAME + 1, 2, 2, 0, number_of(FRAME, 2))


def tell_of_jump(record: Any) -> Iterator[Event]:
    """What comes of a publisher whose numbers jump, and go on below the jump."""
    yield from (Subscribe(), Flip())
    yield from (Numbered(FRAME, base, base) for base in (1, 2, FAR - 1, FAR, FAR + 1, BEYOND, HIGH))
    yield from (Numbered(FRAME, 2, 3), Numbered(FRAME, FAR - 1, FAR + 1))


def tell_of_claims(record: Any) -> Iterator[Event]:
    """What comes where many numbers stand alone, with holes between them."""
    yield Subscribe()
    yield from (Numbered(FRAME, base, base) for base in (1, 2, 3, 4, 5, 7, 9, 11, 13, 15))


def tell_of_others(record: Any) -> Iterator[Event]:
    """What comes where other publishers of the subject need its place."""
    yield from (Subscribe(), Unsubscribe(), Flip(), Touched(), Displace())
    yield from (Numbered(FRAME, 1, 1), Numbered(FRAME, 2, 2))
    yield from (Numbered(FRAME + 1, 1, 1, 0, chain) for chain in (0, number_of(FRAME, 1)))


def is_short(record: Any, event: Event) -> bool:
    """Ranges are as short as somebody takes who takes one number after the other."""
    return not isinstance(event, Numbered) or event.last - event.first < 8


RECEIVER: Final = SubscriberWindowRecord("s", "p")
SUBSCRIBER: Final = ConformanceRole(
    SUBSCRIBER_WINDOW,
    (
        Start("one stream", RECEIVER, tell_of_stream),
        Start("streams after each other", RECEIVER, tell_of_streams),
        Start("a jump", RECEIVER, tell_of_jump),
        Start("numbers that stand alone", RECEIVER, tell_of_claims),
        Start("other publishers", RECEIVER, tell_of_others),
    ),
    NO_TIMERS,
    JUDGING,
    alphabet=Alphabet((Numbered, Subscribe, Unsubscribe, Touched, Displace, Flip), (), (), (Judged,)),
    legal=is_short,
)

# -- the window of a publisher ----------------------------------------------------------------------------------------

NUMBERING: Final = Relation(ranged=(Ranged("stamped", "first", "last", "SW-84", rest={"time_ns": 0, "chain": 0}),))


def tell_publisher(record: Any) -> Iterator[Event]:
    """Publications in two frames, before and after the network converged, and the window turns."""
    times = (start_of(FRAME) + 7, start_of(FRAME + 1))
    yield Flip()
    for t_ns in times:
        yield from (Publish(1, t_ns), Publish(2, t_ns), Publish(1, t_ns, start_of(FRAME + 1)))
    yield from (Publish(1, times[0], 0, FRAME + 2), Publish(2, times[0], start_of(FRAME + 1) - 1, FRAME + 2))


def tell_at_the_end(record: Any) -> Iterator[Event]:
    """Publications that use up the numbers of a stream, and the frames of the layout."""
    yield Flip()
    for t_ns in (start_of(FRAME), start_of(FRAME_MAX), start_of(FRAME_MAX) + FRAME_NS):
        yield from (Publish(1, t_ns), Publish(BASE_MAX - 1, t_ns), Publish(1, t_ns, start_of(FRAME_MAX)))


def is_near(record: PublisherWindowRecord) -> bool:
    """Frames and bases are close to where they begin, or to where they end."""
    frame, base = frame_of(record.last), base_of(record.last)
    return (frame < FRAME + 4 or frame > FRAME_MAX - 2) and (base < 5 or base > BASE_MAX - 3)


SENDER: Final = PublisherWindowRecord("s")
PUBLISHER: Final = ConformanceRole(
    PUBLISHER_WINDOW,
    (
        Start("a stream", SENDER, tell_publisher, is_near),
        Start("the last numbers", SENDER, tell_at_the_end, is_near),
    ),
    NO_TIMERS,
    NUMBERING,
    alphabet=Alphabet((Publish, Flip), (), (), (Stamped, Exhausted)),
)

ROLES: Final = {"subscriber_window": SUBSCRIBER, "publisher_window": PUBLISHER}
