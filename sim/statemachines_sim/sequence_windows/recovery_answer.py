"""What goes to and fro for recovery on the simulated network: a question, each message of its answer, and its end."""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Event, Message, TraceColumns

OF_SUBJECT = TraceColumns(key="subject", term="frame")


class Asked(Message, frozen=True, gc=False):
    """`asker` misses messages of `publisher` on `subject`, of `frame`, bases `first`..`last`; `run`, `n`: the query."""

    columns: ClassVar = OF_SUBJECT

    asker: str
    publisher: str
    subject: str
    frame: int
    first: int
    last: int
    run: str
    n: int


class Returned(Message, frozen=True, gc=False):
    """A message that was asked for; `data`: as it was sent, in letters; `ordinal`: the how manieth it is, which only
    judges read."""

    columns: ClassVar = TraceColumns(key="subject", grant="ordinal")

    publisher: str
    subject: str
    ordinal: int
    data: str
    run: str
    n: int


class AnswerEnded(Message, frozen=True, gc=False):
    """That was all: `count` messages."""

    publisher: str
    subject: str
    run: str
    n: int
    count: int


class GivenUp(Event, frozen=True, gc=False):
    """Of a receiver that recovers: `lost` messages of the subject will not come (0: it begins).  What its window says
    to be missing is no loss yet, and its advisories go by this."""

    columns: ClassVar = TraceColumns(key="subject", grant="lost")

    subject: str
    lost: int
