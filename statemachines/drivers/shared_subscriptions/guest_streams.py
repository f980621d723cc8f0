"""GuestStreams: groups and streams in the database of another store, seen from within a transaction of that store.

What is appended here is committed with the rest of the transaction, or not at all.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from statemachines.drivers.shared_subscriptions.store import StoredPayload, check_payload, size_of
from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.names import check_topic
from statemachines.wire import quote_for_log

logger = logging.getLogger("gapless")

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
        ...

    def read_declarations(self) -> Sequence[Declaration]:
        """The records that declare groups."""
        ...

    def append(self, messages: Mapping[str, Sequence[StoredPayload]]) -> None:
        """Append messages to the streams of their topics; those of a stream that has ended are left out, and named."""
        ...


def is_storable(topic: str, message: StoredPayload) -> bool:
    """Whether a stream can have the message: its topic has 1 024 bytes at most, and it has 1 MiB."""
    try:
        check_topic(topic)
        check_payload(message[0])
    except ConfigurationError as error:
        what = "a message of %s (%d bytes) is not shared: %s"
        logger.warning(what, quote_for_log(topic[:100]), size_of(message), error.rule)
        return False
    return True


def log_ended(error: ConfigurationError) -> None:
    """Say that a stream takes no more messages."""
    logger.warning("messages are not shared: %s", error)
