"""What a publisher owes its application and its nodes, whatever these say: PS-157, PS-760 to PS-765."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Send, Tell
from statemachines.persistent_sessions import publication_record as own
from statemachines.persistent_sessions.client_message import PublishStored, Refused
from statemachines.persistent_sessions.publication import NODE, PUBLICATION
from statemachines_spec.contract import Counterpart, Machine, Rule, contract
from statemachines_spec.explorer.system import System

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


class PublicationFacts(msgspec.Struct, frozen=True, gc=False):
    """`unanswered` messages with their sizes, in the order of the calls; the first `under_way` of them are in the
    window; `count` of all calls."""

    connected: bool = False
    count: int = 0
    unanswered: tuple[tuple[int, int], ...] = ()
    under_way: int = 0


class PublisherSurroundings(Counterpart):
    """an application that publishes and cancels, and nodes that come, go, and answer whatever they like"""

    def __init__(self) -> None:
        super().__init__(RULES)

    def begins(self) -> PublicationFacts:
        return PublicationFacts()

    def says(self, known: PublicationFacts) -> Iterator[Any]:
        yield own.NodeReached()
        yield own.NodeLost()
        if known.count < MESSAGES:
            yield from (own.PublishPayload(size) for size in SIZES)
        for n in range(1, known.count + 2):
            yield own.CancelPublish(n)
            yield PublishStored(n)
            yield Refused(n, WHY)

    def learns(self, known: PublicationFacts, event: Any, said: Said) -> PublicationFacts:
        return expect(known, event)[0]


# -- what it must say, and what is known then -----------------------------------------------------------------------

Next = tuple[PublicationFacts, Said]


def list_window(known: PublicationFacts) -> list[int]:
    """The messages that are under way."""
    return [n for n, _ in known.unanswered[: known.under_way]]


def fill(known: PublicationFacts, *told: Any) -> Next:
    """What waits goes, one behind the other, while there is room."""
    before = known.under_way
    while (first := known.under_way) < len(known.unanswered):
        size = sum(its for _, its in known.unanswered[: first + 1])
        if first and (first == MESSAGES_MAX or size > BYTES_MAX):
            break
        known = replace(known, under_way=first + 1)
    sent = list_window(known)[before:] if known.connected else []
    return known, (*told, *(Send(NODE, own.HandMessage(n)) for n in sent))


def end(known: PublicationFacts, n: int, *told: Any) -> Next:
    """This message is over."""
    was_under_way = n in list_window(known)
    left = tuple(one for one in known.unanswered if one[0] != n)
    return fill(replace(known, unanswered=left, under_way=known.under_way - was_under_way), *told)


def expect(known: PublicationFacts, event: Any) -> Next:
    """What is known when the publisher has taken the event, and what it must have said."""
    match event:
        case own.PublishPayload(size):
            n = known.count + 1
            return fill(replace(known, count=n, unanswered=(*known.unanswered, (n, size))))
        case own.NodeReached() if not known.connected:
            said = tuple(Send(NODE, own.HandMessage(n)) for n in list_window(known))
            return replace(known, connected=True), said
        case own.NodeLost():
            return replace(known, connected=False), ()
        case PublishStored(n) if is_answered(known, event):
            return end(known, n, Tell(own.MessageStored(n)))
        case Refused(n, why) if is_answered(known, event):
            return end(known, n, Tell(own.MessageRefused(n, why)))
        case own.CancelPublish(n) if is_cancelled(known, event):
            return end(known, n)
    return known, ()


def is_answered(known: PublicationFacts, event: Any) -> bool:
    """The node that is connected answers what it was handed."""
    return isinstance(event, PublishStored | Refused) and known.connected and event.n in list_window(known)


def is_cancelled(known: PublicationFacts, event: Any) -> bool:
    """The application waits for it until now."""
    return isinstance(event, own.CancelPublish) and event.n in [n for n, _ in known.unanswered]


def is_reached(known: PublicationFacts, event: Any) -> bool:
    """A node is connected where there was none."""
    return isinstance(event, own.NodeReached) and not known.connected


def is_published(known: PublicationFacts, event: Any) -> bool:
    """One message more."""
    return isinstance(event, own.PublishPayload)


def goes_at_once(known: PublicationFacts, event: Any) -> bool:
    """There is a node, and room."""
    return is_published(known, event) and bool(expect(known, event)[1])


def waits(known: PublicationFacts, event: Any) -> bool:
    """There is none, or no room."""
    return is_published(known, event) and not expect(known, event)[1]


def means_nothing(known: PublicationFacts, event: Any) -> bool:
    """Nobody asked for it."""
    return not (
        is_published(known, event)
        or is_reached(known, event)
        or is_answered(known, event)
        or is_cancelled(known, event)
    )


def rule(name: str, clause: str, text: str, when: Any) -> Rule:
    """The rule that says what it must say then."""
    return Rule(name, clause, text, when, lambda known, event, said: said == expect(known, event)[1])


RULES: Final = (
    rule("hands over", "PS-760", "it hands a message over at once where there is room", goes_at_once),
    rule("lets wait", "PS-761", "it keeps a message for which there is no room, or no node", waits),
    rule("hands over again", "PS-157", "it hands what is not answered to the next node, in order", is_reached),
    rule("tells stored", "PS-762, PS-761", "it tells once that a message is stored, and the next go",
         lambda known, event: isinstance(event, PublishStored) and is_answered(known, event)),
    rule("tells refused", "PS-763, PS-761", "it tells once that a message is refused, and the next go",
         lambda known, event: isinstance(event, Refused) and is_answered(known, event)),
    rule("cancels", "PS-764, PS-761", "it says nothing of a cancelled message, and the next go", is_cancelled),
    rule("ignores", "PS-765", "it does nothing for an answer that it does not wait for", means_nothing),
)  # fmt: skip

SYSTEMS: Final[dict[str, tuple[str]]] = {
    "publication-told": ("what a publisher owes its application and its nodes",),
}
"""Name -> (about)."""


def system(name: str) -> System:
    """The system called so."""
    record = own.PublicationRecord("publisher", MESSAGES_MAX, BYTES_MAX)
    machine = Machine(PUBLICATION, record, says_so=False)
    return contract(name, *SYSTEMS[name], machine, PublisherSurroundings())
