"""Roles: who a node of sessions and its clients are to each other."""

from __future__ import annotations

from typing import Final

from statemachines.drivers.persistent_sessions.direct_messages import DirectMessage
from statemachines.drivers.role import NodeRole
from statemachines.persistent_sessions.message import (
    ConnectWanted,
    Delivered,
    Farewell,
    GroupRefused,
    LeaveWanted,
    Live,
    LiveMarker,
    MarkerWanted,
    Ping,
    Pong,
    Puback,
    Pubcomp,
    PublishStored,
    PublishWanted,
    PublishWithHead,
    Pubrec,
    Pubrel,
    Refused,
    Subscribed,
    SubscribeWanted,
    UnsubscribeWanted,
    Welcome,
)
from statemachines.persistent_sessions.takeover_message import (
    BeginTakeover,
    EndTakeover,
    OwnerReplaced,
    TakeoverBegun,
    TakeoverEnded,
    TakeoverRefused,
)

PROTOCOL: Final = "persistent_sessions"

NodeMessage = (
    MarkerWanted
    | Live
    | LiveMarker
    | BeginTakeover
    | TakeoverBegun
    | EndTakeover
    | TakeoverEnded
    | TakeoverRefused
    | DirectMessage
    | OwnerReplaced
)
"""From a node."""
ClientMessage = (
    ConnectWanted
    | SubscribeWanted
    | UnsubscribeWanted
    | PublishWanted
    | PublishWithHead
    | LeaveWanted
    | Ping
    | Puback
    | Pubrec
    | Pubcomp
)
"""From a client."""
ClientAnswer = Welcome | Subscribed | Delivered | Pubrel | PublishStored | Refused | GroupRefused | Farewell | Pong
"""To a client."""

NODE: Final = NodeRole(
    PROTOCOL, "node", takes=NodeMessage | ClientMessage, dials=("node",), dialled_by=("node", "client"),
    proved=("node",), storeless=("client",),
)  # fmt: skip
"""Nodes dial each other; all of them work on one store.  What one sends live is taken for a row that is stored."""

CLIENT: Final = NodeRole(
    PROTOCOL, "client", takes=ClientAnswer, dials=("node",), proved=("node",), storeless=("client",)
)  # fmt: skip
"""What is a node is proved to it by a certificate; a secret that all share proves no role."""
