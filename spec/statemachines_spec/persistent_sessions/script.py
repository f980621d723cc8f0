"""Scripts of persistent sessions: writers and owners are machines with their timers; what stands between them (the
paths of live messages, the database, the client, the publisher) is told what happens to it.

A path of the explorer has everything that happens to those as an event of theirs: a live message is handed over, a
path breaks, an entry appears on the replica.  In a script that is the word `happens`, with the event and its fields.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import msgspec

from statemachines.kernel import Event, name_of
from statemachines.persistent_sessions.resume_record import ConnectionLost, Discarded
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction
from statemachines_spec.persistent_sessions.client import Acknowledge, AcknowledgeTogether, AcknowledgeTwice, PublishTo
from statemachines_spec.persistent_sessions.database import Appear, Blur, CarryOut, Fail, Reply, Spread
from statemachines_spec.persistent_sessions.node_database import Break, HandOver, Lose, Report
from statemachines_spec.script.path_to_script import PathToScript, ToldEvent
from statemachines_spec.script.protocol import ScriptProtocol
from statemachines_spec.script.script import Script

HAPPENS = "happens"

HAPPENINGS: dict[str, type[Event]] = {
    name_of(kind): kind
    for kind in (PublishTo, HandOver, Break, Lose, Report, Appear, CarryOut, Reply, Blur, Fail, Spread, Acknowledge,
                 AcknowledgeTwice, AcknowledgeTogether)
}  # fmt: skip
"""By name: what may happen to whatever is no machine."""

FAULTS: tuple[type[Event], ...] = (Break, Lose, Blur, Fail, AcknowledgeTwice)
"""Those of them that need not happen."""


class SessionPath(PathToScript):
    """What is no machine goes the path, too: it calls machines, and they call it."""

    def takes_part(self, actor: Actor) -> bool:
        return True

    def following(self, actor: Actor, before: Any, event: Any, reaction: Reaction) -> tuple[Envelope, ...]:
        return self.system.calls_after(actor, before, event, reaction, reaction.local)

    def describe_event(self, event: Any) -> ToldEvent | None:
        fields = msgspec.json.encode(event).decode()
        if isinstance(event, ConnectionLost | Discarded):
            return ToldEvent("call", name_of(type(event)), "", fields)
        return ToldEvent(HAPPENS, name_of(type(event)), "", fields) if type(event) in HAPPENINGS.values() else None


@contextmanager
def rules(script: Script, variant: str) -> Iterator[None]:
    """The shipped machines have the bug of the script, unless a variant is asked for; variants are machines of their
    own."""
    with plant_bug(script.bug) if script.bug and not variant else nullcontext():
        yield


SCRIPT = ScriptProtocol(
    words={HAPPENS: "`what`, with `fields`, happens to a path, the database, the client or the publisher"},
    who={HAPPENS: ("service",)},
    path="statemachines_spec.persistent_sessions.script:SessionPath",
    simulator="statemachines_sim.persistent_sessions.script_world:simulate",
    asyncio="statemachines_sim.persistent_sessions.asyncio_stage:run_live",
    lives=True,
    rules=rules,
)
