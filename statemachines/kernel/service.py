"""Services: what machines ask things of (stores, shared memory), as pure functions.

`apply(state, request, now_ns) -> (state, answers)` is the meaning of a service.  The simulator and the explorer run
that function; drivers run the real thing; a conformance test feeds both the same requests and compares the answers.
`now_ns` is the service's own time; the checker passes 0.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

from statemachines.kernel.effect import Request
from statemachines.kernel.event import Answer

S = TypeVar("S")


class Service(Protocol[S]):
    """A pure service: `name` as in `Ask.service`, the empty state, and its meaning."""

    name: str

    def initial(self) -> S:
        """The state of the service before any request."""
        ...

    def apply(self, state: S, request: Request, now_ns: int) -> tuple[S, tuple[Answer, ...]]:
        """The state after `request`, and its answers in order."""
        ...
