"""Systems in which a client discards its session: it connects with a clean start while an earlier connection is live.

Nobody hands a message over.  What must be met: the earlier connection ends, though it looks at nothing of its own.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Answer, Request
from statemachines.persistent_sessions.life_request import ClientFound, OpenSession
from statemachines.persistent_sessions.request import SessionLoaded, SessionState
from statemachines.persistent_sessions.session_tables import SESSION
from statemachines.persistent_sessions.takeover_record import FindOwner, OwnerFound, OwnerReplaced
from statemachines_spec.explorer.actor import Envelope
from statemachines_spec.explorer.process_steps import ProcessParts
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.client import CLIENT
from statemachines_spec.persistent_sessions.database import DatabaseLocal
from statemachines_spec.persistent_sessions.node_database import NodeDatabase, NodeTables
from statemachines_spec.persistent_sessions.node_systems import (
    LIAR,
    FalseClaim,
    LyingNode,
    MovingClient,
    NodeSetting,
    SessionNodeActor,
    build,
)

SYSTEMS: dict[str, tuple[str, NodeSetting]] = {
    "node-starts-clean": (
        "a client discards its session at another node, while that is live, and again at the same node",
        NodeSetting(at=("a", "b", "b"), messages=(0, 0), slow=(OpenSession, FindOwner), clean=True),
    ),
    "node-says-replaced": (
        "a node says to an owner that it is replaced, which it is not",
        NodeSetting(at=("a",), messages=(0, 0), slow=(OpenSession, FindOwner), lies=1),
    ),
}
"""Name -> (about, bounds)."""


class FreshTables(NodeTables, frozen=True, gc=False):
    """`session` that its client has, and the owner that has opened it last."""

    session: str = SESSION
    connection: str = ""


class FreshDatabase(NodeDatabase):
    """A session that is opened in place of another one has nothing."""

    def initial(self) -> FreshTables:
        return FreshTables(self.service.initial().shelves)

    def apply(self, local: Any, request: Request) -> tuple[DatabaseLocal, tuple[Answer, ...], tuple[Envelope, ...]]:
        if isinstance(request, FindOwner) and request.session != local.session:
            return local, (OwnerFound("", 0, request.session, request.look),), ()
        if isinstance(request, OpenSession) and request.token >= max(local.locked, local.token):
            if request.session != local.session:  # nothing is left of the session before
                local = replace(local, session=request.session, token=request.token, owner="", state=SessionState())
            local = replace(local, connection=request.owner)
        local, answers, calls = super().apply(local, request)
        return local, tuple(of_session(local, one) for one in answers), calls


def of_session(local: Any, answer: Answer) -> Answer:
    """It names the session that there is, and who has opened it."""
    if isinstance(answer, ClientFound):
        return replace(answer, session=local.session, live=local.connection)
    return replace(answer, session=local.session) if isinstance(answer, SessionLoaded) else answer


class ReplacingNode(LyingNode):
    """It says that it has a fresh session of the client."""

    def inputs(self, local: Any) -> tuple[Any, ...]:
        return (FalseClaim("a~1/1", OwnerReplaced(CLIENT, f"{LIAR}~1/1", 9)),)


def count_owners(parts: ProcessParts) -> int:
    """Clients that are connected at a node, 2 for more."""
    return min(2, len(parts.own.record.owners))


def has_earlier(first: int, second: int, accepted: int) -> bool:
    """The last connection is accepted, and an earlier one is there."""
    return bool(accepted) and first + second > 1


def system(name: str) -> System:
    """The system called so."""
    made = build(name, *SYSTEMS[name])
    actors = tuple(replace_actor(one) for one in made.actors)
    nodes = (one for one in made.actors if isinstance(one, SessionNodeActor))
    (client,) = (one for one in made.actors if isinstance(one, MovingClient))
    views = (*(node.view(count_owners, 3) for node in nodes), client.is_accepted())
    text = "a connection whose client has a fresh session elsewhere ends"
    return replace(
        made, actors=actors, obligations=(*made.obligations, Eventually("REPLACED", text, views, has_earlier))
    )


def replace_actor(one: Any) -> Any:
    """With a database that knows more than one session, and another liar."""
    if isinstance(one, NodeDatabase):
        return FreshDatabase(one.writers, one.owners, slow=one.slow, hides=True)
    return ReplacingNode() if isinstance(one, LyingNode) else one
