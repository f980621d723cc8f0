"""What the host of a writer that begins asks the database: where its session is live."""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Answer, Request, TraceColumns


class FindOwner(Request, frozen=True, gc=False):
    """Where is the session live?  Asked when a writer begins, in the transaction that begins its epoch or behind it."""

    columns: ClassVar = TraceColumns(key="session")

    session: str


class OwnerFound(Answer, frozen=True, gc=False):
    """To `FindOwner`: the `owner` ("": nobody), and its token."""

    columns: ClassVar = TraceColumns(term="token")

    owner: str
    token: int
