"""WireNode: one life of an implementation on the wire, with its instances."""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.testing.conformance.wire_judge import WireJudge
from statemachines.testing.conformance.wire_peer import WirePeer
from statemachines.testing.conformance.wire_role import PeerPlayer
from statemachines.testing.conformance.wire_state import SentInput


class WireInstance(msgspec.Struct, eq=False):
    """One instance of the role under test."""

    node: WireNode
    judge: WireJudge
    first: Any
    is_retired: bool = False
    """Another has followed it, and it may have ended: nothing is owed any more."""
    earlier: WireInstance | None = None
    """The one before it, until that has certainly ended."""


class WireNode(msgspec.Struct, eq=False):
    """One life of an implementation: its instances, and its peers as the kit plays them."""

    peer: WirePeer
    player: PeerPlayer
    instances: dict[str, WireInstance] = {}
    early: list[SentInput] = []
    """What was said where no instance was known."""
