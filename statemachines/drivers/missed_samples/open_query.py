"""OpenQuery: a query that is under way, and whether it may be said to have ended well.

zenoh ends a query without a word of error when the link to a cache breaks in the middle of its answer.  What was not
brought would then be taken for lost.  So a query ends well only if no error came, every reply found room, each cache of
ours said at its end how many replies it sent and all of them came, and no link of this session broke meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import msgspec

from statemachines.missed_samples.message import Query

REPLIERS_MAX: Final = 1_000
"""So many caches may answer one query; with more it does not end well."""


class OpenQuery(msgspec.Struct):
    """`links`: the sessions that were connected when it was sent, `breaks`: how many links had broken by then; `lost`:
    a reply found no room or an error came; `brought`: as in `QueryEnded`; `counts` of replies by cache, `ends`: what it
    said; `token`: cancels it (None: nothing does)."""

    query: Query
    links: frozenset[str] = frozenset()
    breaks: int = 0
    lost: bool = False
    brought: int = 0
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    ends: dict[str, int] = msgspec.field(default_factory=dict)
    token: Any = None

    def bring(self, sn: int, width: int) -> None:
        """A reply with the number `sn` of the wire has come."""
        self.brought = max(self.brought, self.query.reach_of(sn, width))

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if self.token is not None:
            self.token.cancel()

    def count(self, cache: str) -> None:
        """A reply of a cache of ours."""
        if len(self.counts) >= REPLIERS_MAX and cache not in self.counts:
            self.lost = True
            return
        self.counts[cache] += 1

    def end(self, cache: str, count: int) -> None:
        """The last reply of a cache of ours."""
        if len(self.ends) >= REPLIERS_MAX:
            self.lost = True
            return
        self.ends[cache] = count

    def is_complete(self, links: frozenset[str], breaks: int) -> bool:
        """By what is connected at its end."""
        whole = all(self.ends.get(cache) == count for cache, count in self.counts.items())
        said = all(self.counts.get(cache, 0) == count for cache, count in self.ends.items())
        return whole and said and not self.lost and self.links <= links and self.breaks == breaks
