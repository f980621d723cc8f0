"""Systems in which clients are forgotten: a collector beside connections, some of which come back just then."""

from __future__ import annotations

from msgspec.structs import replace

from statemachines_spec.explorer.property import Eventually, Sometimes
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.collector_systems import CollectorSetting, collector
from statemachines_spec.persistent_sessions.connection_systems import HOUR_MS, Living, living, tables_of
from statemachines_spec.persistent_sessions.systems import SessionSetting

SYSTEMS: dict[str, tuple[str, Living]] = {
    "forgotten": (
        "a client leaves, and its session expires; it comes back before a collector forgets it, then, or after",
        Living(connects=((False, HOUR_MS), (False, 0)), leaves=1),
    ),
    "forgotten-dead": (
        "the owner of a session dies, and a collector forgets its client, which connects again",
        Living(connects=((False, HOUR_MS), (False, HOUR_MS)), crashes=1),
    ),
    "forgotten-unclear": (
        "a collector, or a connection, does not learn what became of what it asked",
        Living(connects=((False, HOUR_MS),), unclear=1, leaves=1, sessions=1),
    ),
}
"""Name -> (about, bounds)."""


def forgetting(name: str, about: str, one: Living, **rules: bool) -> System:
    """The system with these bounds; `rules`: what the tables do not keep to."""
    clients = tables_of(one, **rules)
    made = living(name, about, one, clients)
    over = "a client whose session has expired, or that has none, is forgotten"
    return replace(
        made,
        actors=(*made.actors, collector(CollectorSetting(setting=SessionSetting()))),
        properties=(*made.properties, Sometimes("a client is forgotten", "", (clients.has_forgotten(),), bool)),
        obligations=(*made.obligations, Eventually("FORGETS", over, (clients.has_ended(),), bool)),
    )


ASSUMED = {
    "forgets-blindly": ("whether a client is over is not asked again", {"asks_again": False}, "FORGOTTEN"),
    "forgets-silently": ("who has a token of a client that was forgotten goes on", {"supersedes": False}, "REUSED"),
}
"""What the database must do in the transaction that forgets: about, the rule, and what breaks without it."""


def without(name: str) -> System:
    """The system in which the rule is not kept, and the one thing that is to break."""
    about, rules, breaks = ASSUMED[name]
    made = forgetting(name, about, SYSTEMS["forgotten"][1], **rules)
    return replace(made, properties=tuple(one for one in made.properties if one.name == breaks), obligations=())
