"""The demo of shared subscriptions: a real consumer group loses a consumer and its leading host, and no message.

Two leader hosts, four consumers and a publisher run as processes over TCP and SQLite, and with `--store postgres` once
more over PostgreSQL; then the same machines go through simulated runs.
"""

from typing import Annotated

import msgspec

from statemachines.demo.protocol import DemoClaim, DemoProtocol, DemoStep, LineOptions, play_at
from statemachines.demo.simulated import make_simulation
from statemachines.kernel import ConfigurationError

STORES = ("sqlite", "postgres")
"""Where the real part keeps its messages; `postgres` adds a second, shorter real part."""


class GroupOptions(LineOptions, frozen=True):
    """Of the command."""

    input: Annotated[
        str,
        msgspec.Meta(
            description="PATH: a text file or folder: each file a topic, each line a message (default: our own source, "
            "repeated up to some 20 000 lines)"
        ),
    ] = ""
    store: Annotated[
        str,
        msgspec.Meta(description="sqlite|postgres: a second, shorter real run on a private PostgreSQL server"),
    ] = "sqlite"

    def check(self) -> None:
        """Raises `ConfigurationError` for another store, or an input that is not there."""
        if self.store not in STORES:
            raise ConfigurationError("--store", self.store, f"must be {' or '.join(STORES)}")
        super().check()


REAL = DemoStep(
    "real",
    play_at("statemachines.demo.shared_subscriptions.real:GroupRun"),
    "{acknowledged} of {lines} acknowledged, {duplicates} delivered twice",
    (
        DemoClaim(
            "every line acknowledged (own files)",
            "{acknowledged:,} of {lines:,}",
            holds=lambda figures: figures["acknowledged"] == figures["lines"],
        ),
        DemoClaim(
            "twice only after a kill or a pause (own files)",
            "{duplicates:,} twice",
            holds=lambda figures: not figures["wrong"],
        ),
    ),
    "Real run",
)

DEMO = DemoProtocol(
    "Shared subscriptions: a group that loses members and its leader",
    (
        REAL,
        msgspec.structs.replace(
            REAL,
            part="postgres",
            run=play_at("statemachines.demo.shared_subscriptions.real:PostgresRun"),
            trace="Real run on PostgreSQL",
            is_played=lambda options: options.store == "postgres",
        ),
        make_simulation(
            "shared_subscriptions/storm",
            "Simulated runs",
            "S1-S14, L1-L10",
            "{delivered:,} messages delivered",
            {"delivered": 2_000, "faults": 10, "kinds": 3},
        ),
    ),
    "{real[lines]:,} lines of {real[topics]} files through a real consumer group that loses a consumer and its "
    "leading host to SIGKILL; the same machines in {simulated[runs]} simulated runs under failures; every step of both "
    "judged by Spark.",
    "SIGKILL to a consumer, then to the leader",
    (("lines", "messages"), ("lost", "lost"), ("duplicates", "delivered twice")),
    GroupOptions,
)
