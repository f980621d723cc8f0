"""Returned batch: messages of sessions that have ended, which go to members of their group again."""

from __future__ import annotations

from typing import Any, NamedTuple, SupportsIndex, overload

from statemachines.drivers.persistent_sessions.shared_message_codec import SharedOrigin


class ReturnedMessage(NamedTuple):
    """A message of a session that has ended."""

    topic: str
    payload: bytes
    head: bytes | None
    origin: SharedOrigin


class ReturnedBatch(tuple[ReturnedMessage, ...]):
    """Some of them, given to a member as deliveries of a stream are."""

    __slots__ = ()

    async def ack(self) -> None:
        """Nothing is to be told: the transaction that stores them for a session removes them."""

    @overload
    def __getitem__(self, at: SupportsIndex, /) -> ReturnedMessage: ...
    @overload
    def __getitem__(self, at: slice, /) -> ReturnedBatch: ...
    def __getitem__(self, at: Any, /) -> Any:
        """A message; of a slice, a batch of these messages."""
        found = super().__getitem__(at)
        return ReturnedBatch(found) if isinstance(at, slice) else found
