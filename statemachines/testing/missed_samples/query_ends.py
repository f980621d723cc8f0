"""QueryEnds: the end of every query, for a machine that is tested alone: every other one brought something.

What it brought are samples, which come at any time and are drawn as such.
"""

from __future__ import annotations

from statemachines.kernel import Answer, Request
from statemachines.missed_samples.message import QUERY, Query, QueryEnded


class QueryEnds:
    """The service "query"; its state is how many queries have ended."""

    name = QUERY

    def initial(self) -> int:
        """No query has ended."""
        return 0

    def apply(self, state: int, request: Request, now_ns: int) -> tuple[int, tuple[Answer, ...]]:
        """The end of the query."""
        assert isinstance(request, Query)
        all_of_it = request.last - request.first + 1 if request.has_end else 1
        return state + 1, (QueryEnded(request.source, request.n, 0 if state % 2 else all_of_it),)
