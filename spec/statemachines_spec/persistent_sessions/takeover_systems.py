"""Systems with a takeover: an owner takes the session over from one that is live, which dies, is silent, or lies.

ByzantineOwner: an owner that says that it yields, and hands over what it likes.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, Request, incarnation
from statemachines.persistent_sessions.message import Publish, Pubrel, Queued
from statemachines.persistent_sessions.properties.session_owners import SendingOwners, is_taking
from statemachines.persistent_sessions.request import CommitState, ConfirmRows, EpochRows
from statemachines.persistent_sessions.resume_record import NORMAL, YIELDING, ResumeRecord, ResumeSession
from statemachines.persistent_sessions.takeover_record import (
    CONFIRMING,
    BeginTakeover,
    BeginTimeout,
    EndTakeover,
    EndTimeout,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)
from statemachines_spec.explorer.actor import Actor, Crash, Envelope, Reaction, Watch
from statemachines_spec.explorer.environment import Environment
from statemachines_spec.explorer.fsm_actor import ENDED, FsmLocal
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes, View
from statemachines_spec.explorer.system import System, at_most
from statemachines_spec.persistent_sessions.client import (
    CLIENT,
    ReconnectingClient,
    ReconnectingClientLocal,
    note_broken,
)
from statemachines_spec.persistent_sessions.clients import AttachedActor
from statemachines_spec.persistent_sessions.systems import SessionSetting, build, resume_machine


class Lie(Event, frozen=True, gc=False):
    """It answers with its tale of this number."""

    tale: int


class LiarLocal(msgspec.Struct, frozen=True, gc=False):
    """Who waits for an answer (None: nobody)."""

    asked: EndTakeover | None = None


class ByzantineOwner(Actor):
    """It knows the names of the `writers`, and which messages there are."""

    def __init__(self, name: str, writers: tuple[str, ...]) -> None:
        super().__init__(name)
        self.tales = tales(writers[0])

    def initial(self) -> LiarLocal:
        return LiarLocal()

    def inputs(self, local: LiarLocal) -> tuple[Any, ...]:
        return () if local.asked is None else tuple(Lie(tale) for tale in range(len(self.tales)))

    def react(self, local: LiarLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case BeginTakeover(client, to, token):
                return Reaction(local, (Envelope(self.name, to, TakeoverBegun(client, token)),))
            case EndTakeover():
                return Reaction(replace(local, asked=envelope.event))
            case Lie(tale):
                assert local.asked is not None
                answer = TakeoverEnded(local.asked.client, local.asked.token, self.tales[tale])
                return Reaction(LiarLocal(), (Envelope(self.name, local.asked.to, answer),))
        return Reaction(local)

    def describe(self, local: LiarLocal) -> str:
        return "is asked for what it has" if local.asked else "waits"

    def bounds(self) -> dict[str, str]:
        return {"tales": str(len(self.tales))}


def tales(writer: str) -> tuple[tuple[EpochRows, ...], ...]:
    """The first two messages of `writer` are 11 and 12."""
    first, second = Queued(1, "11", "t"), Queued(2, "12", "t")
    return (
        (),
        (EpochRows(writer, 1, (first, second)),),
        (EpochRows(writer, 1, (second,)),),
        (EpochRows(writer, 1, (second, first, first)),),
        (EpochRows(writer, 1, (Queued(1, "12", "t"), Queued(2, "11", "t"))),),
        (EpochRows(writer, 1, (first, Queued(2, "no message", "t"), Queued(3, "another", "t"))),),
        (EpochRows(writer, 2, (first,)), EpochRows("writer-9", 1, (first,))),
    )


FIRST = "owner-1"


class TakeoverSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds such a system besides its `setting`: `dies`: crashes of the owner of before; `lives` of the one that
    comes after it; owners that are `silent` for too long; requests that are `lost`, and said again; the third takes
    over from the second (`in_turn`) or from the first; the first `lies`; `handover`: so many rows are handed over."""

    setting: SessionSetting
    dies: int = 0
    lives: int = 1
    silent: int = 0
    lost: bool = False
    in_turn: bool = True
    lies: bool = False
    handover: int = 9


def two(*slow: type[Request], **given: Any) -> SessionSetting:
    """A setting of two owners."""
    named: dict[str, Any] = {"messages": (2,), "lag": 0, "second": True, "markers": 2, "hides": True, **given}
    return SessionSetting(slow=slow, **named)


SYSTEMS: dict[str, tuple[str, TakeoverSetting]] = {
    "taken-over": (
        "an owner takes the session over from one that is live, and commits while it does",
        TakeoverSetting(setting=two(CommitState)),
    ),
    "taken-over-late": (
        "what was handed over is confirmed late, while markers come and the replica is behind",
        TakeoverSetting(setting=two(ConfirmRows, lag=1)),
    ),
    "old-dies": (
        "the owner of before dies at any step of the takeover",
        TakeoverSetting(setting=two(CommitState), dies=1),
    ),
    "old-silent": (
        "the owner of before answers too late, at begin or at end",
        TakeoverSetting(setting=two(CommitState), silent=2),
    ),
    "taker-dies": (
        "the new owner dies at any step of the takeover, and another takes over from the same one",
        TakeoverSetting(setting=two(CommitState, messages=(1,), markers=1), lives=2),
    ),
    "takeover-lost": (
        "what owners say to each other gets lost, and is said again",
        TakeoverSetting(setting=two(messages=(1,), repeats=True), lost=True),
    ),
    "taken-in-turn": (
        "a third owner takes over from the second while that takes over from the first",
        TakeoverSetting(setting=two(third=True, markers=1)),
    ),
    "taken-at-once": (
        "two owners take over from the same one",
        TakeoverSetting(setting=two(third=True, markers=1), in_turn=False),
    ),
    "taken-one-at-a-time": (
        "QoS 1, a receive maximum of 1, and a client that takes its time, across a takeover",
        TakeoverSetting(setting=two(window=1, later=True)),
    ),
    "taken-exactly-once": (
        "QoS 2 across a takeover, its handshake cut at any step",
        TakeoverSetting(setting=two(CommitState, messages=(1,), later=True, qos=2)),
    ),
    "taken-writer-dies": (
        "the writer dies and comes back under the next epoch, during a takeover",
        TakeoverSetting(setting=two(messages=(1,), writer_lives=2, repeats=True)),
    ),
    "taken-bounded": (
        "no more than one row is kept and handed over",
        TakeoverSetting(setting=two(CommitState, ConfirmRows, messages=(3,)), handover=1),
    ),
    "taken-two-writers": (
        "two writers go on during a takeover",
        TakeoverSetting(setting=two(ConfirmRows, messages=(1, 1), markers=1)),
    ),
    "old-lies": (
        "the owner of before hands over what was never stored, out of order, or nothing",
        TakeoverSetting(setting=two(ConfirmRows, lag=1), lies=True),
    ),
    "old-lies-of-epochs": (
        "the same, while the writer dies and comes back under the next epoch",
        TakeoverSetting(setting=two(messages=(1,), writer_lives=2, repeats=True, markers=3), lies=True),
    ),
}
"""Name -> (about, bounds)."""


class HostedOwner(AttachedActor):
    """An owner at a host, which refuses takeovers in its place once it is gone."""

    def react(self, local: FsmLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        is_there = local.party is not None and local.mode is not ENDED and envelope.to == local.id
        if not is_there and (refused := refusal_of(envelope.event)) is not None:
            return Reaction(local, (Envelope(self.name, *refused),))
        return super().react(local, envelope, watch)


def refusal_of(event: Any) -> tuple[str, TakeoverRefused] | None:
    """What a host answers in place of an owner that is gone, and to whom (None: nothing)."""
    if not isinstance(event, BeginTakeover | EndTakeover):
        return None
    return event.to, TakeoverRefused(event.client, event.token)


HostedOwner.environments = (
    Environment("the process of its node", "a takeover of an owner that is gone is refused", (HostedOwner, refusal_of)),
)


class OwnersLocal(ReconnectingClientLocal, frozen=True, gc=False):
    """The owners that were replaced (`senders`)."""

    senders: SendingOwners = SendingOwners()


class OneOwner(ReconnectingClient):
    """A client that takes note when two owners send to it by turns."""

    def initial(self) -> OwnersLocal:
        return OwnersLocal(*self.begin())

    def react(self, local: Any, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        if isinstance(envelope.event, Publish | Pubrel):
            owner = envelope.sender.partition("~")[0]
            senders = local.senders.observe_replaced(*self.owners[: self.owners.index(owner)])
            local = note_broken(replace(local, senders=senders), senders.judge_sender(owner))
        return super().react(local, envelope, watch)


def taking(name: str, about: str, one: TakeoverSetting, variant: str = "settled") -> System:
    """The system with these bounds."""
    setting = one.setting
    made = build(name, about, setting)
    owners = tuple(owner(party, one, place, variant) for place, party in enumerate(setting.owners))
    old: Actor = ByzantineOwner(FIRST, setting.writers) if one.lies else owners[0]
    client = OneOwner(setting.writers, setting.owners, later=setting.later, window=setting.window)
    put = {**{each.name: each for each in owners}, FIRST: old, CLIENT: client}
    return replace(
        made,
        actors=tuple(put.get(each.name, each) for each in made.actors),
        network=Network(2 if one.lost else 3, lossy=one.lost, duplicating=False),
        properties=(*made.properties, *properties(owners, client, one)),
        budgets=(
            *(each for each in made.budgets if each.name != "crashes of owners"),
            at_most("crashes of owners", one.dies + one.lives - 1, Crash, actors=setting.owners),
            at_most("owners that are silent for too long", one.silent, BeginTimeout, EndTimeout),
        ),
        obligations=(*made.obligations, *obligations(owners, one)),
    )


def owner(name: str, one: TakeoverSetting, place: int, variant: str) -> HostedOwner:
    """The first has the session from the database; each other takes it over."""
    setting = one.setting
    lives = one.lives if place == 1 else 1
    before = f"owner-{place}" if one.in_turn else FIRST
    old = incarnation(before, 1) if place else ""

    def fresh(life: int) -> ResumeRecord:
        times = replace(setting.times(life), handover=one.handover)
        return ResumeRecord(incarnation(name, life), CLIENT, life + place, times, old)

    def asks_no_more(record: ResumeRecord) -> bool:
        """so many markers of each writer are asked for, and no more"""
        return all(flow.n <= setting.markers for flow in record.flows.values())

    quiet = [timer for timer, fires in (("repeat", setting.repeats), ("again", one.lost)) if not fires]
    crashes = (one.dies and place == 0) or lives > 1
    return HostedOwner(
        name,
        resume_machine(variant),
        fresh,
        lives=lives,
        faults=(Crash,) if crashes else (),
        start=ResumeSession(),
        beside={Publish: CLIENT, Pubrel: CLIENT},
        silent=tuple(quiet),
        bound=asks_no_more,
    )


def is_yielding(one: HostedOwner) -> View:
    return one.is_in(YIELDING)


def is_confirming(record: ResumeRecord) -> int:
    """The new owner hands over."""
    return int(record.takeover is not None and record.takeover.status is CONFIRMING)


def takes_over(one: HostedOwner) -> View:
    return one.view(lambda record: int(is_taking(record)))


def properties(owners: tuple[HostedOwner, ...], client: OneOwner, one: TakeoverSetting) -> list[Property]:
    """What must hold besides, and what must happen sometimes."""
    found: list[Property] = []
    if not one.silent:
        text = "once a new owner has sent something to the client, the one before sends nothing"
        found.append(Always("SPLIT", text, (client.has_broken("SPLIT"),), lambda split: not split))
    last = owners[-1]
    found.append(Sometimes("taken over", "", (last.is_in(NORMAL),), bool))
    if ConfirmRows in one.setting.slow:
        confirms = last.view(is_confirming)
        found.append(Sometimes("something is handed over", "", (confirms,), bool))
    if not one.lies:
        found.append(Sometimes("one yields", "", (is_yielding(owners[0]),), bool))
    return found


def obligations(owners: tuple[HostedOwner, ...], one: TakeoverSetting) -> tuple[Eventually, ...]:
    """What must be met sooner or later."""
    last = owners[-1]
    found = [Eventually("TAKES", "a takeover ends", (takes_over(last),), bool)]
    if not one.lies:
        found.append(Eventually("ORPHAN", "whoever yields ends", (is_yielding(owners[0]),), bool))
    return tuple(found)
