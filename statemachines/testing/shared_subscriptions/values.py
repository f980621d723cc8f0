"""Values: what is drawn for the fields of shared subscriptions, so that ids and numbers of different messages meet."""

from __future__ import annotations

from typing import Final

from statemachines.shared_subscriptions.agent_record import CheckLink
from statemachines.shared_subscriptions.configuration import MS, Configuration
from statemachines.shared_subscriptions.message import END_OF_STREAM
from statemachines.testing.protocol import Values
from statemachines.testing.struct_values import SMALL

CONSUMERS: Final = ("consumer-1~1/1", "consumer-2~1/1")
STREAMS: Final = ("0.0/a", "1.0/b", "2.0/c")

VALUES: Final = Values(
    ints={
        "progress": (*SMALL, END_OF_STREAM),
        "start_ns": (0, -1, 1_000 * MS),
        "resend_ns": (1_000 * MS,),
        "grant_timeout_ns": (5_000 * MS,),
        "revoke_timeout_ns": (10_000 * MS,),
        "poll_ns": (20 * MS,),
    },
    names={
        "borrower": CONSUMERS,
        "owner": CONSUMERS,
        "leader": ("leader-1~1/1", "leader-2~1/1"),
        "registries": ("leader-1",),
        "stream": STREAMS,
        "free": STREAMS,
        "wanting": CONSUMERS,
        "group": ("g",),
        "filter": ("#", "a/+"),
        "topic": ("a", "b", "a/b"),
    },
    choices={
        Configuration: (
            Configuration(),
            Configuration(exclusive=False),
            Configuration(validity_ms=9_000, clock_drift=0.0, claim_ttl_ms=30_000),
        ),
        CheckLink: tuple(map(CheckLink, CONSUMERS)),
    },
)
