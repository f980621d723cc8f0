"""Dead letter: the copy of a message that a group gave up, in the dead-letter topic, with what is known of it.

A dead letter is stored once: its group, stream and offset make a repeat known.  It is stored before the group goes on
behind the message; a database that holds both stores writes the letter and the group's progress in one batch.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec

from statemachines.kernel import Answer, ConfigurationError, Event, Map, Request, TraceColumns
from statemachines.shared_subscriptions.acknowledged_ranges import join_ranges
from statemachines.shared_subscriptions.group_store import FailingMessage, Value

PREFIX: Final = "gapless-"
"""How the names of its headers begin."""

REASONS: Final = Map({False: "given back, or not acknowledged in time", True: "its member ended without a last word"})
"""Why the message failed last, by whether its member was lost."""


class DeadLetter(msgspec.Struct, frozen=True, gc=False):
    """What a dead letter says of its message: the group (with its filter) that gave it up, where it stands, how often
    it was handed over, and why it failed the last time."""

    group: str
    filter: str
    stream: str
    offset: int
    count: int
    reason: str

    def as_headers(self) -> dict[str, bytes]:
        """The same as headers of a message."""
        return {f"{PREFIX}{name}": str(getattr(self, name)).encode() for name in self.__struct_fields__}


class StoreLetter(Request, frozen=True, gc=False):
    """Append a copy of a message to `topic`, unless this was done before; answered by `LetterStored` or
    `LetterRefused`."""

    n: int
    topic: str
    letter: DeadLetter


class LetterStored(Answer, frozen=True, gc=False):
    """The dead letter is durable; `is_new`: it was not there before."""

    n: int
    is_new: bool


class LetterRefused(Answer, frozen=True, gc=False):
    """Nothing was written."""

    n: int
    why: str


class LetterUnwritten(Event, frozen=True, gc=False):
    """To the registry: the dead letter of the message at `progress` could not be stored, `failures` times in a row for
    all letters.  The group keeps the message and tries again."""

    columns: ClassVar = TraceColumns(key="stream", first="progress")

    leader: str
    stream: str
    progress: int
    failures: int
    why: str


class DeadLettersRefused(Event, frozen=True, gc=False):
    """To the registry: the group's own filter matches the dead-letter topic.  Its streams are parked instead."""

    leader: str
    group: str
    filter: str
    topic: str


def pass_message(letter: DeadLetter, failing: Value | None) -> tuple[int, FailingMessage | None]:
    """What these records say when the group has gone on behind the message; `failing` as it was."""
    acked = failing.acked if isinstance(failing, FailingMessage) else ()
    progress, acked = join_ranges(letter.offset + 1, acked)
    return progress, FailingMessage(progress, 0, acked=acked) if acked else None


def read_dead_letter(headers: Iterable[tuple[str, bytes]]) -> DeadLetter:
    """What the headers of a dead letter say.

    Raises:
        ConfigurationError: they are not those of a dead letter.
    """
    ours = [(name.removeprefix(PREFIX), value) for name, value in headers if name.startswith(PREFIX)]
    said = {name: value.decode(errors="replace") for name, value in ours}
    try:
        return msgspec.convert(said, DeadLetter, strict=False)
    except msgspec.ValidationError as error:
        rule = f"are not those of a dead letter ({error}); read messages of a dead-letter topic"
        raise ConfigurationError("headers", sorted(said), rule) from error
