"""SubjectPublishers: which publishers of a subject a receiver remembers, where there are more than it has places for.

`roomy -> crowded`: for one more the publisher is forgotten that was silent longest.  From then on a publisher that
nothing is known of may be one that was forgotten, until the subject is forgotten as a whole.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.kernel import STAY, Call, ConfigurationError, Effects, Event, Fsm, Invariant, Row, Status, Tell

PLACE_BYTES = 512
"""What a publisher of a subject counts as, and about what it takes; the first one is reckoned with its subject."""
PLACES = (1 << 20) // PLACE_BYTES
"""Publishers of a subject that are remembered, unless the host says otherwise: a megabyte of them."""
LIVES_MAX = 8
"""So many lives of one publisher are remembered."""
PLACES_MAX = 1 << 20
LIFE_MAX = (1 << 64) - 1
"""A life is a number of 64 bits; 0: the publisher does not say which of its lives it is."""


Life = tuple[str, int]
"""The id of a publisher, and which of its lives."""


class Arrival(Call, frozen=True, gc=False):
    """From the host: something of this life of a publisher has come, and is remembered."""

    publisher: str
    life: int = 0

    @property
    def line(self) -> Life:
        """Both."""
        return self.publisher, self.life


class SubjectForgotten(Call, frozen=True, gc=False):
    """From the host: the window has dropped the subject, or it is not subscribed any more."""


class Displaced(Event, frozen=True, gc=False):
    """To the host: the record of this life of a publisher is forgotten, for the sake of another one."""

    publisher: str
    life: int = 0


class SubjectPublishersStatus(Status):
    """Whether somebody was forgotten for others."""

    ROOMY = "roomy"
    CROWDED = "crowded"


ROOMY, CROWDED = SubjectPublishersStatus


class SubjectPublishersRecord(msgspec.Struct, frozen=True, gc=False):
    """`publishers` that are remembered, which life was silent longest first; at most `places`."""

    subject: str
    places: int = PLACES
    status: SubjectPublishersStatus = ROOMY
    publishers: tuple[Life, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.places <= PLACES_MAX:
            raise ConfigurationError("publishers_max", self.places, f"1 to {PLACES_MAX}")


Done = tuple[SubjectPublishersRecord, Effects]


def line_of(publisher: str, life: int) -> str:
    """One life of a publisher, as records and traces name it: each has numbers of its own."""
    return f"{publisher}#{life:016x}" if life else publisher


def list_lives(record: SubjectPublishersRecord, publisher: str) -> list[Life]:
    """Those of this publisher that are remembered."""
    return [one for one in record.publishers if one[0] == publisher]


def is_remembered(record: SubjectPublishersRecord, event: Arrival) -> bool:
    return event.line in record.publishers


def has_many_lives(record: SubjectPublishersRecord, event: Arrival) -> bool:
    return len(list_lives(record, event.publisher)) >= LIVES_MAX


def has_a_place(record: SubjectPublishersRecord, event: Arrival) -> bool:
    return len(record.publishers) < record.places


def move_to_the_end(record: SubjectPublishersRecord, event: Arrival, now_ns: int) -> Done:
    return put_in_place(record, event, event.line), ()


def add(record: SubjectPublishersRecord, event: Arrival, now_ns: int) -> Done:
    return put_in_place(record, event, None), ()


def displace_own(record: SubjectPublishersRecord, event: Arrival, now_ns: int) -> Done:
    longest = list_lives(record, event.publisher)[0]
    return put_in_place(record, event, longest), (Tell(Displaced(*longest)),)


def displace(record: SubjectPublishersRecord, event: Arrival, now_ns: int) -> Done:
    longest = record.publishers[0]
    return put_in_place(record, event, longest), (Tell(Displaced(*longest)),)


def put_in_place(record: SubjectPublishersRecord, event: Arrival, gone: Life | None) -> SubjectPublishersRecord:
    """The life that spoke is the last one, in the place of the one that is `gone`."""
    return replace(record, publishers=(*(one for one in record.publishers if one != gone), event.line))


def forget_all(record: SubjectPublishersRecord, event: SubjectForgotten, now_ns: int) -> Done:
    return replace(record, publishers=()), ()


# fmt: off
ROWS = (
    #   on                from             to       do               when           clause
    Row(Arrival,          (ROOMY, CROWDED), STAY,    move_to_the_end, is_remembered, "SW-18"),
    Row(Arrival,          (ROOMY, CROWDED), CROWDED, displace_own,    has_many_lives, "SW-101"),
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
