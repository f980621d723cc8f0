"""Readers: who reads frames in a group, and what is said to them, for `statemachines.testing.frames`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

from statemachines.drivers.shared_subscriptions.roles import CONSUMER, LEADER
from statemachines.shared_subscriptions import message
from statemachines.testing.protocol import Reader


def a_number(chance: random.Random) -> int:
    """Small, or any that a message can carry."""
    return chance.getrandbits(chance.choice((2, 8, 63)))


def some_reports(chance: random.Random) -> tuple[message.Report, ...]:
    streams = [f"0.0/t{number}" for number in range(chance.randrange(4))]
    return tuple(
        message.Report(stream, a_number(chance), a_number(chance), chance.random() < 0.5) for stream in streams
    )


Make = Callable[[random.Random, str], Any]

MESSAGES: Final[dict[str, tuple[Make, ...]]] = {
    "leader": (
        lambda c, b: message.LeaderWanted(b, "g", "#"),
        lambda c, b: message.Ping(b, a_number(c), a_number(c), a_number(c), some_reports(c)),
        lambda c, b: message.UpdateProgress(
            b, a_number(c), a_number(c), "0.0/t", a_number(c), a_number(c), c.random() < 0.5
        ),
        lambda c, b: message.RevokeFinished(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: message.Disconnect(b, a_number(c), a_number(c), some_reports(c)),
        lambda c, b: message.RelayedToLeader(
            "leader-1~1/1", "leader-1~1/2", message.Ping(b, a_number(c), a_number(c), a_number(c))
        ),
        lambda c, b: message.RelayedToBorrower(
            "leader-1~1/1", "leader-1~1/2", message.Invalidate(b, a_number(c), a_number(c))
        ),
    ),
    "consumer": (
        lambda c, b: message.LeaderConnectResponse(b, "leader-1~1/1", a_number(c), a_number(c)),
        lambda c, b: message.Undeclared(b),
        lambda c, b: message.PingResponse(b, a_number(c), a_number(c), a_number(c)),
        lambda c, b: message.Grant(b, a_number(c), a_number(c), "0.0/t", a_number(c), a_number(c)),
        lambda c, b: message.Revoke(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: message.Revoked(b, a_number(c), a_number(c), "0.0/t", a_number(c)),
        lambda c, b: message.Invalidate(b, a_number(c), a_number(c)),
        lambda c, b: message.RelayedToBorrower(
            "leader-1~1/1", "leader-2~1/1", message.Invalidate(b, a_number(c), a_number(c))
        ),
    ),
}

READERS: Final = {
    LEADER.full_name: Reader(
        CONSUMER.full_name, message.ToLeaderHost, "leader-1~1", names=("leader",), messages=MESSAGES["leader"]
    ),
    CONSUMER.full_name: Reader(
        LEADER.full_name, message.ToConsumer, "fuzz~1", dials=True, names=("leader",), messages=MESSAGES["consumer"]
    ),
}
