"""DepartingClient: a client of whole nodes that leaves, or is lost, and judges what its nodes make of that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Event
from statemachines.persistent_sessions.life_record import SessionClosed
from statemachines.persistent_sessions.message import Publish, Written
from statemachines.persistent_sessions.properties.acknowledged_messages import AcknowledgedMessages
from statemachines.persistent_sessions.properties.delivered_messages import Copy, DeliveredMessages
from statemachines.persistent_sessions.request import DATABASE
from statemachines.persistent_sessions.session_host_parties import owner_of
from statemachines.persistent_sessions.session_host_record import LeaveClient, LoseClient, TakeAcknowledgements
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.property import Always, Eventually, Property, View
from statemachines_spec.persistent_sessions.client import (
    Acknowledge,
    Changed,
    Connected,
    copy_of,
    note_broken,
)
from statemachines_spec.persistent_sessions.node_database import BESIDE
from statemachines_spec.persistent_sessions.node_systems import NODES, GoOn, MovingClient, MovingLocal, NodeSetting
from statemachines_spec.persistent_sessions.publisher import PUBLISHER, PublishTo


class StoredBeside(Event, frozen=True, gc=False):
    """These messages are stored for another session."""

    messages: tuple[str, ...]


class DepartingLocal(MovingLocal, frozen=True, gc=False):
    """`seen` of what it acknowledges; messages that are `in_flight` in the committed state;
    `standing`: owners of its connections that are not over, `left` of these; what is stored `beside` its session;
    messages that were `handed` over, and those whose publisher was `told` that they are stored."""

    seen: AcknowledgedMessages = AcknowledgedMessages()
    in_flight: tuple[tuple[Copy, int], ...] = ()
    standing: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    beside: tuple[str, ...] = ()
    handed: tuple[str, ...] = ()
    told: tuple[str, ...] = ()


class DepartingClient(MovingClient):
    """It sees when its nodes hear that it leaves, or is lost, and what the publishers are told of; where it
    `returns` it connects again only when it has left, or is lost."""

    def __init__(self, one: NodeSetting, *, returns: bool = False) -> None:
        super().__init__(one.at, later=one.later, window=one.window)
        self.sessions = one.beside
        self.returns = returns
        self.crashes = one.crashes

    def initial(self) -> DepartingLocal:
        return DepartingLocal(*self.begin())

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor in NODES and isinstance(event, LeaveClient | LoseClient):
            return event
        if actor == PUBLISHER and isinstance(event, PublishTo):
            return event
        if actor == DATABASE and before.beside != after.beside:
            return StoredBeside(after.beside)
        return super().sees(actor, before, event, after)

    def inputs(self, local: Any) -> tuple[Any, ...]:
        found = super().inputs(local)
        stays = self.returns and any(one not in local.left for one in local.standing)
        return tuple(one for one in found if not isinstance(one, GoOn)) if stays else found

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case LeaveClient(owner) | LoseClient(owner) as event:
                if owner not in local.standing:
                    return Reaction(local)
                left = tuple(sorted({*local.left, owner}))
                return Reaction(observe_owner(replace(local, left=left), owner, event))
            case Connected(owner):
                local = replace(local, standing=tuple(sorted({*local.standing, owner})))
            case Changed(committed=committed):
                local = replace(local, in_flight=committed)
            case Acknowledge():
                local = observe_owner(local, local.owner, TakeAcknowledgements(local.owner, local.due[:1]))
            case Publish() as message:
                local = observe_owner(local, envelope.sender, message)
            case PublishTo(_, message, also):
                handed = tuple(sorted({*local.handed, message, also} - {""}))
                return Reaction(replace(local, handed=handed))
            case Written(message):
                return self._note_answers(local, (message,))
            case StoredBeside(messages):
                return Reaction(replace(local, beside=messages))
            case SessionClosed() as event:
                local = self._closed(local, owner_of(envelope.sender), event)
        return super().react(local, envelope, watch)

    def _note_answers(self, local: Any, messages: tuple[str, ...]) -> Reaction:
        """A message is stored for every session that it is for."""
        for message in messages:
            local = note_broken(local, self._stored(local, message).judge_answer(copy_of(message)))
        return Reaction(replace(local, told=tuple(sorted({*local.told, *messages}))))

    def _stored(self, local: Any, message: str) -> DeliveredMessages:
        """What is stored in its session, unless the message is for another one that has it not."""
        sessions = self.sessions.get(message, (SESSION,))
        if BESIDE in sessions and message not in local.beside:
            return DeliveredMessages()
        return local.delivered if SESSION in sessions else DeliveredMessages().observe_stored(BESIDE, copy_of(message))

    @staticmethod
    def _closed(local: DepartingLocal, owner: str, event: SessionClosed) -> DepartingLocal:
        standing, left = (tuple(one for one in some if one != owner) for some in (local.standing, local.left))
        return observe_owner(replace(local, standing=standing, left=left), owner, event)

    # -- reading it -------------------------------------------------------------------------------------------------

    def properties(self) -> Iterator[Property]:
        """What such a client is promised."""
        text = "what a client has acknowledged before it left or was lost does not come again once its node has said so"
        yield Always(
            "REDELIVERED",
            text,
            (self.has_broken("REDELIVERED"),),
            lambda again: not again,
        )

    def obligations(self) -> Iterator[Eventually]:
        """What its nodes owe it sooner or later."""
        text = "what a client that stays has acknowledged is committed"
        yield Eventually("COMMITS", text, (View(self.name, 2, waits_for_commit),), bool)
        if not self.crashes:
            text = "a message that is handed over is stored for every session that it is for, and its publisher told"
            untold = View(self.name, 2, lambda local: int(local.told != local.handed))
            yield Eventually("TELLS", text, (untold,), bool)
        text = "a connection ends whose client leaves it, is lost, or has made another"
        yield Eventually("CLOSES", text, (View(self.name, 2, waits_for_end),), bool)


def observe_owner(local: DepartingLocal, owner: str, event: Event) -> DepartingLocal:
    """Something happens to the owner of a connection."""
    seen, broken = local.seen.observe(owner, event)
    return note_broken(replace(local, seen=seen), broken)  # type: ignore[no-any-return]


def waits_for_commit(local: DepartingLocal) -> int:
    """Something that it has acknowledged over its connection is in flight in the committed state."""
    found = local.seen.connections.get(local.owner)
    if found is None or found.goes:
        return 0
    messages = {message for (_, message), _ in local.in_flight}
    return int(any(message in messages for message, _ in found.acknowledged))


def waits_for_end(local: DepartingLocal) -> int:
    """A connection that it does not have any more is not over."""
    return int(bool(local.left) or any(one != local.owner for one in local.standing))
