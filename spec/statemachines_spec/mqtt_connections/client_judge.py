"""ClientJudge: stands between connections, their clients and the session, and feeds each step of a connection to
`ConnectionHistory`.

It carries what is sent, to nobody, and passes what is told on to the session.  It reads no record of the machine.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.kernel import Event, name_of
from statemachines.mqtt_connections.connection_record import MqttSettings
from statemachines.mqtt_connections.properties.connection_history import ConnectionHistory
from statemachines.mqtt_connections.properties.connection_model import (
    OVER,
    ConnectionEndLocal,
    ConnectionModel,
    IdUse,
    Phase,
)
from statemachines_spec.explorer.actor import Envelope, Observer, Reaction, Watch
from statemachines_spec.explorer.post import Carry, MessageTransport
from statemachines_spec.explorer.property import View
from statemachines_spec.mqtt_connections.packet_run import PacketRun
from statemachines_spec.mqtt_connections.session import SESSION

JUDGE, CLIENT = "judge", "client"


class StepSeen(Event, frozen=True, gc=False):
    """A connection has taken this event.  `kind`: its type, since two may have the same fields."""

    party: str
    kind: str
    event: Any


class JudgeLocal(msgspec.Struct, frozen=True, gc=False):
    """`history` of the connections; `sent` and `told` by the step that is under way; `broken`: names of properties."""

    history: ConnectionHistory
    sent: tuple[Event, ...] = ()
    told: tuple[Event, ...] = ()
    broken: tuple[str, ...] = ()


class ClientJudge(MessageTransport, Observer):
    """`connections`: their names; `settings` that they have."""

    def __init__(self, connections: tuple[str, ...], settings: MqttSettings) -> None:
        super().__init__(JUDGE)
        self.connections, self.settings = connections, settings

    def initial(self) -> Any:
        return JudgeLocal(ConnectionHistory((ConnectionModel(),) * len(self.connections)))

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return ()

    def sees(self, actor: str, before: Any, event: Any, after: Any) -> Event | None:
        if actor not in self.connections or isinstance(event, PacketRun):  # each of its packets is a step
            return None
        return StepSeen(actor, name_of(type(event)), event)

    def react(self, local: JudgeLocal, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        match envelope.event:
            case Carry(_, sent):
                return Reaction(replace(local, sent=(*local.sent, sent.event)) if sent.to == CLIENT else local)
            case StepSeen(party, _, event):
                return Reaction(self._judge(local, self.connections.index(party), event))
        local = replace(local, told=(*local.told, envelope.event))
        return Reaction(local, (), (replace(envelope, to=SESSION),))

    def _judge(self, local: JudgeLocal, place: int, event: Any) -> JudgeLocal:
        history, broken = local.history.observe(place, event, local.sent, local.told, self.settings)
        return JudgeLocal(history, broken=tuple(sorted({*local.broken, *(one.name for one in broken)})))

    def describe(self, local: Any) -> str:
        return ", ".join(f"{one.phase.value} {dict(one.ids) or ''}".strip() for one in local.history.models)

    # -- reading it ---------------------------------------------------------------------------------------------

    def is_broken(self, name: str) -> View:
        """Whether a step broke this property."""
        return View(JUDGE, 2, lambda local: int(name in local.broken))

    def has_ended(self, packet: str, code: int) -> View:
        """Whether some connection ended so."""
        end = ConnectionEndLocal(packet, code)
        return View(
            JUDGE, 2, lambda local: int(any(one.phase is OVER and one.end == end for one in local.history.models))
        )

    def is_in(self, place: int, phase: Phase, *uses: IdUse) -> View:
        """Whether this connection is so far, with ids in these uses."""

        def read(local: JudgeLocal) -> int:
            model = local.history.models[place]
            return int(model.phase is phase and set(uses) <= {use for _, use in model.ids})

        return View(JUDGE, 2, read)
