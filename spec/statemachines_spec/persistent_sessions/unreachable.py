"""Systems with a way that does not work, and that nothing heals: from a writer to an owner, or of an owner and the
database, one direction of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Event, Request
from statemachines.persistent_sessions.message import Live
from statemachines.persistent_sessions.request import CommitState
from statemachines.persistent_sessions.writer_flow import LinkLost
from statemachines_spec.explorer.actor import Envelope, Reaction, Watch
from statemachines_spec.explorer.property import Sometimes, View
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.clients import Carried
from statemachines_spec.persistent_sessions.database import DatabaseLocal, DatabaseService
from statemachines_spec.persistent_sessions.node_database import CLUSTER, Cluster, ClusterLocal
from statemachines_spec.persistent_sessions.systems import SessionSetting, build, database_arguments
from statemachines_spec.persistent_sessions.takeover_systems import FIRST, TakeoverSetting, taking, two

SYSTEMS: dict[str, str] = {
    "unheard-writer": "nothing that a writer sends arrives, and its path breaks with each message; no marker comes",
    "owner-without-database": "from an instant on the owner of before does not reach the database, or hears no answer",
}
"""Name -> about."""

ASKS, ANSWERS = "asks", "answers"


class Cut(Event, frozen=True, gc=False):
    """From now on what the first owner asks does not arrive, or what it is answered; `way` says which."""

    way: str


class CutLocal(DatabaseLocal, frozen=True, gc=False):
    """`cut`: which way of the first owner does not work ("": both do)."""

    cut: str = ""


class UnheardCluster(Cluster):
    """It carries nothing; an owner hears of each message that was lost, as of a path that breaks."""

    def react(self, local: ClusterLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        event = envelope.event
        if not isinstance(event, Carried):
            return super().react(local, envelope, watch)
        if isinstance(event.message, Live):
            return self._tell_owners(local, LinkLost(event.message.writer))
        return Reaction(local)


class CutDatabase(DatabaseService):
    """The first owner may lose one way to it, at any instant."""

    def initial(self) -> CutLocal:
        return CutLocal(super().initial().shelves)

    def inputs(self, local: Any) -> tuple[Any, ...]:
        cuts = () if local.cut else (Cut(ASKS), Cut(ANSWERS))
        return (*super().inputs(local), *cuts)

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, Cut):
            return Reaction(replace(local, cut=envelope.event.way))
        if local.cut == ASKS and isinstance(envelope.event, Request) and is_first(envelope.sender):
            return Reaction(local)
        reaction = super().react(local, envelope, watch)
        if reaction is None or local.cut != ANSWERS:
            return reaction
        heard = tuple(one for one in reaction.calls if not (isinstance(one.event, Answer) and is_first(one.to)))
        return replace(reaction, calls=heard)

    def is_cut(self) -> View:
        """Whether the way does not work any more."""
        return View(self.name, 2, lambda local: int(bool(local.cut)))


def is_first(party: str) -> bool:
    """It is the first owner."""
    return party.partition("~")[0] == FIRST


def system(name: str, variant: str = "settled") -> System:
    """The system called so."""
    make = {"unheard-writer": unheard_writer, "owner-without-database": owner_without_database}[name]
    return make(name, SYSTEMS[name], variant)


def unheard_writer(name: str, about: str, variant: str) -> System:
    """A writer goes on that no owner hears; it shows its marker in time, or is fenced."""
    setting = SessionSetting(messages=(2,), lag=0, markers=9)
    made = build(name, about, setting, variant)
    cluster = UnheardCluster(setting.writers, setting.owners, places=setting.places)
    return replace(
        made,
        actors=tuple(cluster if one.name == CLUSTER else one for one in made.actors),
        budgets=tuple(one for one in made.budgets if one.name != "writers that are silent for too long"),
    )


def owner_without_database(name: str, about: str, variant: str) -> System:
    """Another owner takes the session over from one that has lost the database."""
    setting = two(CommitState, messages=(1,), markers=1)
    made = taking(name, about, TakeoverSetting(setting=setting), variant)
    database = CutDatabase(setting.writers, setting.owners, **database_arguments(setting))
    last = next(one for one in made.properties if isinstance(one, Sometimes) and one.name == "taken over")
    shown = Sometimes("taken over from an owner that is cut off", "", (*last.views, database.is_cut()), both)
    return replace(
        made,
        actors=tuple(database if one.name == database.name else one for one in made.actors),
        properties=(*made.properties, shown),
    )


def both(*values: int) -> bool:
    """All of them."""
    return all(values)
