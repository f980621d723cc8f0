"""Held systems: a receiver that recovers, its held streams, and a publisher over a network that loses and reorders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from statemachines.missed_samples.recovery import Recovery
from statemachines.missed_samples.source_record import QueryTimeout
from statemachines.sequence_windows.held_stream_record import HeldStreamRecord, NoRoom, PutQuery
from statemachines.sequence_windows.held_streams import HELD_STREAMS, STREAMS, HeldStreamsRecord
from statemachines.sequence_windows.properties.names import SETTLED
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.party import PartyInput
from statemachines_spec.explorer.process_actor import ProcessActor
from statemachines_spec.explorer.process_steps import ProcessParts
from statemachines_spec.explorer.property import Always, Eventually, Property, Sometimes
from statemachines_spec.explorer.system import Budget, Due, System, at_most
from statemachines_spec.sequence_windows.held_host import RECEIVER, TOLD, HeldHost, HeldViolation, LeaveSubject
from statemachines_spec.sequence_windows.held_publisher import (
    HOST,
    EndUnanswered,
    HeldPublisher,
    LoseHeldReply,
    NeverEnd,
    SendOrdinal,
    runs_asked,
)


class HeldSetting(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds a system.  `messages` in `frames`, of which the newest `history` are kept; so many are `lost`, and so
    many replies; so many queries end `unanswered`, or `never`; so many of those that end do so after their timeout
    (`slow`); `places` for runs; `full`: how often there is no room; `leaves`: how often the
    application unsubscribes; `shows`: what must happen."""

    messages: int = 4
    frames: int = 1
    history: int = 4
    lost: int = 2
    lost_replies: int = 0
    unanswered: int = 0
    never: int = 0
    slow: int = 0
    retries: int = 1
    places: int = 4
    full: int = 0
    leaves: int = 0
    in_flight: int = 2
    shows: tuple[str, ...] = ()


HELD: dict[str, tuple[str, HeldSetting]] = {
    "held-stream": (
        "a stream that misses something: messages overtake each other, and queries end without an answer, or never",
        HeldSetting(lost_replies=1, unanswered=1, never=1, leaves=1, shows=("recovered", "lost", "repeated")),
    ),
    "held-frames": (
        "other frames begin while the earlier run misses something, and there are places for two runs",
        HeldSetting(
            messages=5,
            frames=3,
            history=2,
            unanswered=1,
            leaves=1,
            places=2,
            shows=("recovered", "lost", "lost unknown", "given up"),
        ),
    ),
    "held-without-place": (
        "there is a place for one run, and no room for what is held, and streams are given up",
        HeldSetting(frames=2, places=1, full=1, shows=("no place", "given up", "recovered", "lost")),
    ),
}
"""Name -> (about, bounds)."""


def build_held(name: str) -> System:
    """The system called so."""
    about, setting = HELD[name]
    publisher = HeldPublisher(messages=setting.messages, frames=setting.frames, history=setting.history)
    host = HeldHost(setting.shows, leaves=setting.leaves > 0)
    recovery = Recovery(
        retries=setting.retries,
        timeout_ms=1_000,
        timeout_max_ms=1_000,
        backoff_ms=10,
        backoff_max_ms=10,
        window=1 << 50,
        windows=1,
        jump=1 << 50,
        sources=setting.places,
    )

    def happens(record: HeldStreamRecord) -> Iterable[Any]:
        full = (NoRoom(),) if setting.full else ()
        return (*(PutQuery(run.name) for run in record.runs if run.due), *full)

    receiver = ProcessActor(
        RECEIVER,
        HELD_STREAMS,
        lambda life: HeldStreamsRecord(life, recovery),
        inputs_of={STREAMS.name: happens},
        tells=dict.fromkeys(TOLD, HOST),
    )
    return System(
        name,
        about,
        (publisher, host, receiver),
        Network(setting.in_flight, lossy=False, duplicating=False, ordered=False),
        properties=tuple(list_properties(host, receiver, setting)),
        budgets=list_budgets(setting),
        bounds={"what is lost": "is lost when it is sent", "a slow query": "ends after its timeout"},
        obligations=(Eventually(SETTLED, "everything that came is handed over", (host.holds_something(),), bool),),
    )


def list_budgets(setting: HeldSetting) -> tuple[Budget, ...]:
    """How many faults there are of each kind."""
    return (
        Budget("losses", setting.lost, lambda actor, event: isinstance(event, SendOrdinal) and event.lost),
        at_most("lost replies", setting.lost_replies, LoseHeldReply),
        at_most("queries that end without an answer", setting.unanswered, EndUnanswered),
        at_most("queries that never end", setting.never, NeverEnd),
        Budget("slow queries", setting.slow + setting.never, _is_timeout, Due(_whose, runs_asked)),
        at_most("goings", setting.leaves, LeaveSubject),
        Budget("no room", setting.full, lambda actor, event: _inner(event) == NoRoom()),
    )


def _inner(event: Any) -> Any:
    return event.event if isinstance(event, PartyInput) else event


def _is_timeout(actor: str, event: Any) -> bool:
    return isinstance(_inner(event), QueryTimeout)


def _whose(actor: str, local: Any, event: Any) -> str | None:
    """The run that waits for its query."""
    return str(_inner(event).key) if _is_timeout(actor, event) else None


def counts_runs(parts: ProcessParts) -> bool:
    """The process counts the runs that there are, and no more than there are places."""
    there = sum(len(one.party.record.runs) for one in parts.parties)
    counted = parts.own.record.runs
    return bool(counted == there <= parts.own.record.recovery.sources)


def list_properties(host: HeldHost, receiver: ProcessActor, setting: HeldSetting) -> list[Property]:
    """What must hold, and what must happen sometimes."""
    found: list[Property] = [
        Always(how.name, f"never: {how.value}", (host.is_broken(how),), lambda broken: not broken)
        for how in HeldViolation
    ]
    counted = receiver.view(lambda parts: int(counts_runs(parts)))
    found.append(Always("PLACES", "every run has a place, and there are no more than may be", (counted,), bool))
    return [*found, *(Sometimes(what, "", (host.has_happened(what),), bool) for what in setting.shows)]
