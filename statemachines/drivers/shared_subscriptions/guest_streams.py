"""GuestStreams: groups and streams in the database of another store, seen from within a transaction of that store.

What is appended here is committed with the rest of the transaction, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from statemachines.drivers.shared_subscriptions.store import StoredPayload, check_payload
from statemachines.shared_subscriptions.names import check_topic

SHARDS: Final = 4
"""Of a store that is made in the database of another; as every stream store has it by default."""

DECLARATION: Final = ":properties"
"""How the keys of records end that declare groups."""

Version = tuple[int, int]
"""Of the declarations: how many there are, and when the last one was written."""

Declaration = tuple[str, bytes, int]
"""Key, value and time of a record that declares a group."""


class GuestStreams(Protocol):
    """The streams of a transaction that is open."""

    def version(self) -> Version:
        """Of the declarations."""

    def read_declarations(self) -> Sequence[Declaration]:
        """The records that declare groups."""

    def append(self, messages: Mapping[str, Sequence[StoredPayload]]) -> Sequence[str]:
        """Append messages to the streams of their topics; answers with the topics whose stream has ended: their
        messages are left out."""


def check_storable(topic: str, message: StoredPayload) -> None:
    """Raises `ConfigurationError` where no stream can have the message: its topic has 1 024 bytes at most, and it has
    1 MiB."""
    check_topic(topic)
    check_payload(message[0])
