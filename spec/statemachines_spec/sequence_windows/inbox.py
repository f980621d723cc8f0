"""Inbox: a peer that writes to one other alone, and what that one accepts, as two components.

The judge knows the place of each message among those of the peer, and nothing of numbers.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import Event, Fsm, Message
from statemachines.sequence_windows.inbox_window import INBOX_WINDOW, Inboxed, InboxWindowRecord
from statemachines.sequence_windows.message import LOSS_MAX
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Sometimes, View
from statemachines_spec.explorer.system import Budget, System
from statemachines_spec.sequence_windows.machine_step import step

PEER, OWNER = "peer", "owner"
FROM = 9
"""The number of the first message."""
GREAT = LOSS_MAX + 1
"""So many are lost at once, where many are: one more than is told."""


class Write(Event, frozen=True, gc=False):
    """The peer writes; `lost`: so many messages before this one were lost on the way."""

    lost: int


class Written(Message, frozen=True, gc=False):
    """The message with this place among those of the peer, from 0 on."""

    number: int
    place: int


class PeerLocal(msgspec.Struct, frozen=True, gc=False):
    """How many it has `written`, and how many of them went out."""

    written: int = 0
    out: int = 0


class InboxPeer(Actor):
    """Sends no more than so many `messages`."""

    def __init__(self, messages: int) -> None:
        super().__init__(PEER)
        self.messages = messages

    def initial(self) -> PeerLocal:
        return PeerLocal()

    def inputs(self, local: PeerLocal) -> tuple[Any, ...]:
        return tuple(Write(lost) for lost in (0, 1, GREAT)) if local.out < self.messages else ()

    def react(self, local: PeerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        place = local.written + envelope.event.lost
        sent = Envelope(PEER, OWNER, Written(FROM + place, place))
        return Reaction(PeerLocal(place + 1, local.out + 1), (sent,))

    def bounds(self) -> dict[str, str]:
        return {"messages": str(self.messages)}


class OwnerLocal(msgspec.Struct, frozen=True, gc=False):
    """`place` of the last message that was accepted (-1: none); the loss that was `told` last; `wrong`: INBOX is
    broken."""

    record: InboxWindowRecord
    place: int = -1
    told: int = 0
    wrong: bool = False


class InboxOwner(Actor):
    """Whose inbox it is."""

    def __init__(self) -> None:
        super().__init__(OWNER)

    @property
    def machines(self) -> tuple[Fsm[Any], ...]:
        return (INBOX_WINDOW,)

    def initial(self) -> OwnerLocal:
        return OwnerLocal(InboxWindowRecord(PEER))

    def inputs(self, local: OwnerLocal) -> tuple[Any, ...]:
        return ()

    def react(self, local: OwnerLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        written = envelope.event
        record, (told,) = step(INBOX_WINDOW, local.record, Inboxed(written.number), OWNER, watch)
        new = written.place > local.place
        missed = written.place - local.place - 1 if new and local.place >= 0 else 0
        expected = (new, min(missed, LOSS_MAX), missed > LOSS_MAX)
        wrong = local.wrong or (told.new, told.lost, told.unknown) != expected
        return Reaction(OwnerLocal(record, max(local.place, written.place), told.lost, wrong))

    def describe(self, local: OwnerLocal) -> str:
        return f"{local.record.status.value} {local.record.last}, {local.told} lost"

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_wrong(self) -> View:
        """Whether INBOX is broken."""
        return View(OWNER, 2, lambda local: int(local.wrong))

    def has_told(self, lost: int) -> View:
        """Whether it told this loss last."""
        return View(OWNER, 2, lambda local: int(local.told == lost))


def inbox(about: str) -> System:
    """A peer whose messages are lost, come twice, and overtake each other."""
    owner = InboxOwner()
    text = "what is new is accepted, once; what was lost before it is told, up to the cap"
    return System(
        "inbox",
        about,
        (InboxPeer(4), owner),
        Network(2, lossy=False, duplicating=True),
        properties=(
            Always("INBOX", text, (owner.is_wrong(),), lambda wrong: not wrong),
            Sometimes("a loss is told", "", (owner.has_told(1),), bool),
            Sometimes("a loss of more than can be told", "", (owner.has_told(LOSS_MAX),), bool),
        ),
        budgets=(Budget("losses", 2, lambda actor, event: isinstance(event, Write) and event.lost > 0),),
        bounds={"what is lost": "is lost when it is sent"},
    )
