"""OpenQuery: a query that is under way, and whether it may be said to have ended well.

zenoh ends a query without a word of error when the link to a cache breaks in the middle of its answer.  What was not
brought would then be taken for lost.  So a query ends well only if no error came, every reply found room, each cache of
ours said at its end how many replies it sent and all of them came, and no link of this session broke meanwhile.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

REPLIERS_MAX: Final = 1_000
"""So many caches may answer one query; with more it does not end well."""


class OpenQuery(msgspec.Struct):
    """`links`: the sessions that were connected when it was sent, `breaks`: how many links had broken by then; `lost`:
    a reply found no room or an error came; `overflowed`: no room in the mailbox; `reached`: how far its source was when
    it was sent; `replied`: of its source; `counts` of replies by cache, `ends`: what it said."""

    source: str
    n: int
    links: frozenset[str] = frozenset()
    breaks: int = 0
    reached: int = 0
    lost: bool = False
    overflowed: bool = False
    replied: bool = False
    counts: Counter[str] = msgspec.field(default_factory=Counter)
    ends: dict[str, int] = msgspec.field(default_factory=dict)

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

    def ended_well(self, links: frozenset[str], breaks: int) -> bool:
        """By what is connected at its end."""
        whole = all(self.ends.get(cache) == count for cache, count in self.counts.items())
        said = all(self.counts.get(cache, 0) == count for cache, count in self.ends.items())
        return whole and said and not self.lost and self.links <= links and self.breaks == breaks
