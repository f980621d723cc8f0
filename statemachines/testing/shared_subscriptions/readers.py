"""Readers: who reads frames in a group, and what is said to them, for `statemachines.testing.frames`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.shared_subscriptions.message import (
    Disconnect,
    Grant,
    Invalidate,
    LeaderConnectResponse,
    LeaderWanted,
    Ping,
    PingResponse,
    RelayedToBorrower,
    RelayedToLeader,
    Report,
    Revoke,
    Revoked,
    RevokeFinished,
    ToConsumer,
    ToLeaderHost,
    Undeclared,
    UpdateProgress,
)
from statemachines.testing.protocol import Reader


def a_number(chance: random.Random) -> int:
    """Small, or any that a message can carry."""
    return chance.getrandbits(chance.choice((2, 8, 63)))


def some_reports(chance: random.Random) -> tuple[Report, ...]:
    streams = [f"0.0/t{number}" for number in range(chance.randrange(4))]
    return tuple(Report(stream, a_number(chance), a_number(chance), chance.random() < 0.5) for stream in streams)


Make = Callable[[random.Random, str], Any]

MESSAGES: Final[dict[str, tuple[Make, ...]]] = {
    "leader": (
        lambda c, b: LeaderWanted(b, "g", "#"),
        lambda c, b: Ping(b, a_number(c), a_number(c), a_number(c), some_reports(c)),
        lambda c, b: UpdateProgress(b, a_number(c), a_number(c), "0.0/t", a_number(c), a_number(c), c.random() < 0.5),
        lambda c, b: RevokeFinished(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: Disconnect(b, a_number(c), a_number(c), some_reports(c)),
        lambda c, b: RelayedToLeader("leader-1~1/1", "leader-1~1/2", Ping(b, a_number(c), a_number(c), a_number(c))),
        lambda c, b: RelayedToBorrower("leader-1~1/1", "leader-1~1/2", Invalidate(b, a_number(c), a_number(c))),
    ),
    "consumer": (
        lambda c, b: LeaderConnectResponse(b, "leader-1~1/1", a_number(c), a_number(c)),
        lambda c, b: Undeclared(b),
        lambda c, b: PingResponse(b, a_number(c), a_number(c), a_number(c)),
        lambda c, b: Grant(b, a_number(c), a_number(c), "0.0/t", a_number(c), a_number(c)),
        lambda c, b: Revoke(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: Revoked(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: Invalidate(b, a_number(c), a_number(c)),
        lambda c, b: RelayedToBorrower("leader-1~1/1", "leader-2~1/1", Invalidate(b, a_number(c), a_number(c))),
    ),
}

READERS: Final = {
    LEADER.full_name: Reader(
        CONSUMER.full_name, ToLeaderHost, "leader-1~1", names=("leader",), messages=MESSAGES["leader"]
    ),
    CONSUMER.full_name: Reader(
        LEADER.full_name, ToConsumer, "fuzz~1", dials=True, names=("leader",), messages=MESSAGES["consumer"]
    ),
}
