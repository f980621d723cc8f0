"""Framing: messages as bytes, and several messages as the payload of one block: an array of MessagePack, which is made
and taken apart without a call a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from statemachines.drivers.cursor_recovery.errors import QueueError

T = TypeVar("T")


class Codec(Generic[T]):
    """Messages of a type that msgspec knows, as MessagePack; without a type they are bytes, and stay what they are."""

    def __init__(self, of: type[T] | None) -> None:
        self.of = of
        self.is_plain = of is None
        if of is not None:
            self._encode = msgspec.msgpack.Encoder().encode
            self._decode = msgspec.msgpack.Decoder(of).decode

    def encode(self, message: Any) -> bytes:
        """The bytes of a message; `TypeError` for what is not bytes, where there is no codec."""
        if type(message) is bytes and self.is_plain:
            return message
        if not self.is_plain:
            return self._encode(message)
        if not isinstance(message, bytes | bytearray | memoryview):
            raise TypeError(f"a message is bytes, not {type(message).__name__}; or give the queue a codec=")
        return bytes(message)

    def join(self, messages: Sequence[Any]) -> tuple[bytes, int]:
        """The payload of a block that holds all of them, and how many they are; one is its own payload."""
        if self.is_plain and isinstance(messages, list | tuple) and len(messages) > 1:
            try:
                b"".join(messages)  # a look at the type of each takes twice as long
                return join_messages(messages), len(messages)
            except (TypeError, BufferError):
                pass  # some are still to be turned into bytes, or are refused by name
        payloads = [self.encode(message) for message in messages]
        return (payloads[0] if len(payloads) == 1 else join_messages(payloads)), len(payloads)

    def split(self, payload: bytes, count: int, position: int) -> list[T]:
        """The messages of a block that holds several."""
        payloads = split_messages(payload, count)
        if self.is_plain:
            return payloads  # type: ignore[return-value]  # where there is no codec, T is bytes
        return [self.decode(payload, position) for payload in payloads]

    def decode(self, payload: bytes, position: int) -> T:
        """The message; `QueueError` where the bytes are none of the type: the message is taken all the same."""
        if self.is_plain:
            return payload  # type: ignore[return-value]  # where there is no codec, T is bytes
        try:
            return self._decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
            name = getattr(self.of, "__name__", repr(self.of))
            raise QueueError(
                f"the message at {position} is no {name}: {fault}; is it a writer's other codec?"
            ) from fault


join_messages: Callable[[Sequence[bytes]], bytes] = msgspec.msgpack.Encoder().encode
"""The payload of a block that holds several."""


def split_messages(payload: bytes, count: int) -> list[bytes]:
    """The messages of such a block; `QueueError` where there are not so many in it."""
    try:
        messages = _split(payload)
    except msgspec.DecodeError:
        messages = []
    if len(messages) != count:
        raise QueueError(f"a block of {len(payload)} bytes does not hold {count} messages as put_many writes them")
    return messages


_split = msgspec.msgpack.Decoder(list[bytes]).decode
