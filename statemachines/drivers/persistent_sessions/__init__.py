"""Persistent sessions in an application: a client, a publisher, a node, over a database.

    from statemachines.drivers.persistent_sessions import PersistentSession, SessionPublisher

A name is imported when it is used first: who lists the roles of `gapless node` needs no machine.
"""

from typing import TYPE_CHECKING, Final

from statemachines.drivers.lazy_import import import_lazily
from statemachines.drivers.protocol import DriverProtocol

if TYPE_CHECKING:
    from statemachines.drivers.persistent_sessions.group_host import Groups as Groups
    from statemachines.drivers.persistent_sessions.node_link import NodeUnreachable as NodeUnreachable
    from statemachines.drivers.persistent_sessions.persistent_session import AccessDenied as AccessDenied
    from statemachines.drivers.persistent_sessions.persistent_session import PersistentSession as PersistentSession
    from statemachines.drivers.persistent_sessions.persistent_session import Received as Received
    from statemachines.drivers.persistent_sessions.persistent_session import SessionLost as SessionLost
    from statemachines.drivers.persistent_sessions.persistent_session import SessionTaken as SessionTaken
    from statemachines.drivers.persistent_sessions.persistent_session import StoreIsFull as StoreIsFull
    from statemachines.drivers.persistent_sessions.persistent_session import SubscribeRefused as SubscribeRefused
    from statemachines.drivers.persistent_sessions.session_node import SessionNode as SessionNode
    from statemachines.drivers.persistent_sessions.session_publisher import PublishRefused as PublishRefused
    from statemachines.drivers.persistent_sessions.session_publisher import SessionPublisher as SessionPublisher
    from statemachines.drivers.sql.durability import Durability as Durability

_COMMANDS: Final = f"{__name__}.node_commands"

DRIVERS: Final = DriverProtocol(
    roles={"sessions": f"{_COMMANDS}:sessions", "session-collector": f"{_COMMANDS}:session_collector"}
)

__getattr__ = import_lazily(
    __name__,
    {
        f"{__name__}.group_host": ("Groups",),
        f"{__name__}.node_link": ("NodeUnreachable",),
        f"{__name__}.persistent_session": (
            "AccessDenied",
            "PersistentSession",
            "Received",
            "SessionLost",
            "SessionTaken",
            "StoreIsFull",
            "SubscribeRefused",
        ),
        f"{__name__}.session_node": ("SessionNode",),
        f"{__name__}.session_publisher": ("PublishRefused", "SessionPublisher"),
        "statemachines.drivers.sql.durability": ("Durability",),
    },
)
