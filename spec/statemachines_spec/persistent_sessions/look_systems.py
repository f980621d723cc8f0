"""Systems in which nodes look for lost rows: a live message is not sent, and nobody is told.

The database finds rows behind those that an owner has taken, as the look of a node does, and says so as often as it
finds them.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Event, Map, node_of
from statemachines.persistent_sessions.resume import LIVE
from statemachines.persistent_sessions.session_host_parties import RESUMES
from statemachines.persistent_sessions.session_host_peers import list_followed
from statemachines.persistent_sessions.session_host_record import RowsSeen
from statemachines_spec.explorer.actor import Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.process_actor import ProcessActorLocal
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.database import DatabaseService
from statemachines_spec.persistent_sessions.node_database import Follows, LookOut, NodeDatabase, NodeTables
from statemachines_spec.persistent_sessions.node_systems import NodeSetting, SessionNodeActor, build

SYSTEMS: dict[str, tuple[str, NodeSetting]] = {
    "node-row-lost": (
        "a live message between nodes is lost and nobody is told, and a node looks into the database",
        NodeSetting(at=("a",), messages=(0, 2), cuts=1),
    ),
    "node-apart": (
        "a client goes to a node that has no link to the one before, which looks into the database",
        NodeSetting(at=("a", "b"), messages=(0, 1)),
    ),
}
"""Name -> (about, bounds)."""


class LookedTables(NodeTables, frozen=True, gc=False):
    """In `follows` each writer has what is taken of it: (writer, epoch, number), or (writer, 0, 0) while it is read."""

    @property
    def unmet(self) -> tuple[str, ...]:
        """Writers of which the owner would learn something by a look; and each owner that is superseded."""
        superseded = tuple(owner for owner, _ in self.follows if owner != self.owner)
        return (
            *(writer for writer in self.list_last() if self.find_seen(writer).writers or self.find_seen(writer).rows),
            *superseded,
        )

    def list_last(self) -> dict[str, tuple[int, int]]:
        """The last row of each writer of another node."""
        entries = ((shelf.writer, one) for shelf in self.shelves for one in shelf.entries)
        return {
            writer: (one.epoch, one.queued.number)
            for writer, one in entries
            if one.queued is not None and writer != node_of(self.owner)
        }

    def find_seen(self, found: str) -> RowsSeen:
        """What a look finds of a writer, or of an owner that is superseded."""
        if found not in self.list_last():
            return RowsSeen(found, superseded=True)
        met: Any = dict(self.follows).get(self.owner)
        taken = {writer: (epoch, number) for writer, epoch, number in met or ()}
        last = self.list_last()[found]
        if met is None or found not in taken:
            return RowsSeen(self.owner, writers=(found,) if met is not None else ())
        return RowsSeen(self.owner, rows=Map({found: last}) if (0, 0) < taken[found] < last else Map())


class LookedDatabase(NodeDatabase):
    """It knows what each owner has taken."""

    def initial(self) -> LookedTables:
        return LookedTables(self.service.initial().shelves)

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if isinstance(event, Crash) or actor not in self.owners:
            return super().sees(actor, before, event, after)
        is_changed = taken_at(actor, before) != taken_at(actor, after)
        follows = Follows(actor, taken_at(actor, after)) if is_changed else None
        return follows or DatabaseService.sees(self, actor, before, event, after)

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, LookOut):
            seen = local.find_seen(envelope.event.writer)
            return Reaction(local, (), (Envelope("", node_of(seen.party), seen),))
        return super().react(local, envelope, watch)


class NodeApart(SessionNodeActor):
    """A node that no other one has a link to."""

    @staticmethod
    def is_reached(local: ProcessActorLocal) -> bool:
        return False


def taken_at(node: str, local: Any) -> Any:
    """Owners of a node that are subscribed, with what they have taken of each writer."""
    parts = () if local is None or local.parts is None else local.parts.parties
    found = []
    for one in parts:
        if one.kind == RESUMES.name and one.party.record.status in LIVE:
            resume = one.party.record
            unread = ((writer, 0, 0) for writer in resume.flows)
            known = {flow[0]: flow for flow in (*unread, *list_followed(resume, node))}
            found.append((one.id, tuple(sorted(known.values()))))
    return tuple(found)


def system(name: str) -> System:
    """The system called so."""
    made = build(name, *SYSTEMS[name], node=NodeApart if name == "node-apart" else SessionNodeActor)
    actors = tuple(
        LookedDatabase(one.writers, one.owners, slow=one.slow, hides=True) if isinstance(one, NodeDatabase) else one
        for one in made.actors
    )
    return replace(made, actors=actors)
