"""What a node asks the database of a session: where it is live."""

from __future__ import annotations

from typing import ClassVar

from statemachines.kernel import Answer, Request, TraceColumns


class FindOwner(Request, frozen=True, gc=False):
    """Where is the session live?  Asked when a writer begins, in the transaction that begins its epoch or behind it,
    and when another node claims the session."""

    columns: ClassVar = TraceColumns(key="session")

    session: str
    look: int = 0
    """For claims: which look of the session it is, from 1 on.  0: for its writer, which begins."""


class OwnerFound(Answer, frozen=True, gc=False):
    """To `FindOwner`: the `owner` of the session ("": nobody), its token, and the `look` that it answers."""

    columns: ClassVar = TraceColumns(key="session", term="token")

    owner: str
    token: int
    session: str
    look: int = 0
