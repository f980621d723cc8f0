"""SubjectPublishers: which publishers of a subject a receiver remembers, where there are more than it has places for.

`roomy -> crowded`: for one more the publisher is forgotten that was silent longest.  From then on a publisher that
nothing is known of may be one that was forgotten, until the subject is forgotten as a whole.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, ConfigurationError, Effects, Event, Fsm, Invariant, Row, Status, Tell

PLACES = 256
"""Publishers of a subject that are remembered, unless the host says otherwise."""
PLACES_MAX = 1 << 20
LIFE_MAX = (1 << 64) - 1
"""A life is a number of 64 bits; 0: the publisher does not say which of its lives it is."""


class Arrival(Call, frozen=True, gc=False):
    """From the host: something of this publisher has come, and is remembered."""

    publisher: str


class SubjectForgotten(Call, frozen=True, gc=False):
    """From the host: the window has dropped the subject, or it is not subscribed any more."""


class Displaced(Event, frozen=True, gc=False):
    """To the host: the record of this publisher is forgotten, for the sake of another one."""

    publisher: str


class SubjectPublishersStatus(Status):
    """Whether somebody was forgotten for others."""

    ROOMY = "roomy"
    CROWDED = "crowded"


ROOMY, CROWDED = SubjectPublishersStatus


class SubjectPublishersRecord(msgspec.Struct, frozen=True, gc=False):
    """`publishers` that are remembered, who was silent longest first; at most `places`."""

    subject: str
    places: int = PLACES
    status: SubjectPublishersStatus = ROOMY
    publishers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.places <= PLACES_MAX:
            raise ConfigurationError("publishers_max", self.places, f"1 to {PLACES_MAX}")


Done = tuple[SubjectPublishersRecord, Effects]


def line_of(publisher: str, life: int) -> str:
    """One life of a publisher, as records and traces name it: each has numbers of its own."""
    return f"{publisher}#{life:016x}" if life else publisher


def is_remembered(record: SubjectPublishersRecord, event: Arrival) -> bool:
    return event.publisher in record.publishers


def has_a_place(record: SubjectPublishersRecord, event: Arrival) -> bool:
    return len(record.publishers) < record.places


def move_to_the_end(record: SubjectPublishersRecord, event: Arrival, now_ns: int) -> Done:
    others = tuple(one for one in record.publishers if one != event.publisher)
    return replace(record, publishers=(*others, event.publisher)), ()


def add(record: SubjectPublishersRecord, event: Arrival, now_ns: int) -> Done:
    return replace(record, publishers=(*record.publishers, event.publisher)), ()


def displace(record: SubjectPublishersRecord, event: Arrival, now_ns: int) -> Done:
    longest, *others = record.publishers
    return replace(record, publishers=(*others, event.publisher)), (Tell(Displaced(longest)),)


def forget_all(record: SubjectPublishersRecord, event: SubjectForgotten, now_ns: int) -> Done:
    return replace(record, publishers=()), ()


# fmt: off
ROWS = (
    #   on                from             to       do               when           clause
    Row(Arrival,          (ROOMY, CROWDED), STAY,    move_to_the_end, is_remembered, "SW-18"),
    Row(Arrival,          (ROOMY, CROWDED), STAY,    add,             has_a_place,   "SW-18"),
    Row(Arrival,          (ROOMY, CROWDED), CROWDED, displace,        None,          "SW-18"),
    Row(SubjectForgotten, CROWDED,          ROOMY,   forget_all,      None,          "SW-12"),
    Row(SubjectForgotten, ROOMY,            STAY,    forget_all,      None,          "SW-12"),
)
# fmt: on


def keeps_within_its_places(record: SubjectPublishersRecord) -> bool:
    """No more publishers than places, and each once."""
    return len(set(record.publishers)) == len(record.publishers) <= record.places


SUBJECT_PUBLISHERS = Fsm(
    "subject_publishers",
    protocol="sequence_windows",
    record=SubjectPublishersRecord,
    states=SubjectPublishersStatus,
    initial=ROOMY,
    rows=ROWS,
    key=lambda record: record.subject,
    invariants=(Invariant("keeps-within-its-places", "SW-18", keeps_within_its_places),),
)
