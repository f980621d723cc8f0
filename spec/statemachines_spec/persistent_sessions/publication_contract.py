"""What a publisher owes its application and its nodes, whatever these say: PS-157, PS-760 to PS-765."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from statemachines.kernel import Send, Tell
from statemachines.persistent_sessions import publication as own
from statemachines.persistent_sessions.message import PublishStored, Refused
from statemachines.persistent_sessions.publication import NODE, PUBLICATION
from statemachines_spec.contract import Machine, contract
from statemachines_spec.explorer.system import System
from statemachines_spec.table_contract import Duty, TableContract, TableFacts

MESSAGES: Final = 4
"""So many are published."""
MESSAGES_MAX: Final = 2
"""So many are under way."""
BYTES_MAX: Final = 4
"""So many bytes are under way: two small messages, or a large one with a small one."""
SIZES: Final = (1, 3, BYTES_MAX + 1)
"""Of a message, in bytes; the last is larger than the window."""
WHY: Final = "busy"
Said = tuple[Any, ...]


class PublicationFacts(TableFacts, frozen=True, gc=False):
    """`unanswered` messages with their sizes, in the order of the calls; the first `under_way` of them are in the
    window; `count` of all calls."""

    count: int = 0
    unanswered: tuple[tuple[int, int], ...] = ()
    under_way: int = 0


class PublisherSurroundings(TableContract):
    """an application that publishes and cancels, and nodes that come, go, and answer whatever they like"""

    def can_say(self, known: PublicationFacts, word: Any) -> bool:
        """So many are published; what is not published yet is answered and cancelled as well."""
        if isinstance(word, own.PublishPayload):
            return known.count < MESSAGES
        return bool(getattr(word, "n", 0) <= known.count + 1)


# -- what it must say, and what is known then -----------------------------------------------------------------------

Next = tuple[PublicationFacts, Said]


def list_window(known: PublicationFacts) -> list[int]:
    """The messages that are under way."""
    return [n for n, _ in known.unanswered[: known.under_way]]


def hand(numbers: list[int]) -> Said:
    return tuple(Send(NODE, own.HandMessage(n)) for n in numbers)


def fill(known: PublicationFacts, *told: Any) -> Next:
    """What waits goes, one behind the other, while there is room."""
    before = known.under_way
    while (first := known.under_way) < len(known.unanswered):
        size = sum(its for _, its in known.unanswered[: first + 1])
        if first and (first == MESSAGES_MAX or size > BYTES_MAX):
            break
        known = replace(known, under_way=first + 1)
    return known, (*told, *hand(list_window(known)[before:] if known.phase == "connected" else []))


def publish(known: PublicationFacts, event: own.PublishPayload) -> Next:
    n = known.count + 1
    return fill(replace(known, count=n, unanswered=(*known.unanswered, (n, event.size_bytes))))


def end(known: PublicationFacts, n: int, *told: Any) -> Next:
    """This message is over."""
    was_under_way = n in list_window(known)
    left = tuple(one for one in known.unanswered if one[0] != n)
    return fill(replace(known, unanswered=left, under_way=known.under_way - was_under_way), *told)


def is_under_way(known: PublicationFacts, event: Any) -> bool:
    """The node was handed it."""
    return event.n in list_window(known)


# fmt: off
ROWS: Final = (
    Duty("hands over", "PS-760", "it hands a message over at once where there is room",
         own.PublishPayload, when=lambda known, event: bool(publish(known, event)[1]), step=publish),
    Duty("lets wait", "PS-761", "it keeps a message for which there is no room, or no node",
         own.PublishPayload, step=publish),
    Duty("hands over again", "PS-157", "it hands what is not answered to the next node, in order",
         own.NodeReached, "alone", lambda known, event: hand(list_window(known)), "connected"),
    Duty("tells stored", "PS-762, PS-761", "it tells once that a message is stored, and the next go",
         PublishStored, "connected", when=is_under_way,
         step=lambda known, event: end(known, event.n, Tell(own.MessageStored(event.n)))),
    Duty("tells refused", "PS-763, PS-761", "it tells once that a message is refused, and the next go",
         Refused, "connected", when=is_under_way,
         step=lambda known, event: end(known, event.n, Tell(own.MessageRefused(event.n, event.why)))),
    Duty("cancels", "PS-764, PS-761", "it says nothing of a cancelled message, and the next go", own.CancelPublish,
         when=lambda known, event: event.n in dict(known.unanswered), step=lambda known, event: end(known, event.n)),
    Duty("ignores", "PS-765", "it does nothing for an answer that it does not wait for", own.NodeLost, to="alone"),
    Duty("ignores", "", "", object),
)
WORDS: Final = (
    own.NodeReached(), own.NodeLost(), *(own.PublishPayload(size) for size in SIZES),
    *(word for n in range(1, MESSAGES + 2) for word in (own.CancelPublish(n), PublishStored(n), Refused(n, WHY))),
)
# fmt: on

SYSTEMS: Final[dict[str, tuple[str]]] = {
    "publication-told": ("what a publisher owes its application and its nodes",),
}
"""Name -> (about)."""


def system(name: str) -> System:
    """The system called so."""
    record = own.PublicationRecord("publisher", MESSAGES_MAX, BYTES_MAX)
    machine = Machine(PUBLICATION, record, says_so=False)
    return contract(name, *SYSTEMS[name], machine, PublisherSurroundings(ROWS, (), WORDS, PublicationFacts("alone")))
