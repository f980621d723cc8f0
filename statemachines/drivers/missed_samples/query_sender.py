"""QuerySender: a subscriber's queries on their way: what the machine asks goes out, and what comes back is brought in.

zenoh calls back on threads of its own, and a query waits while the link is full; so queries leave from a thread, and
replies and ends come by the mailbox.  zenoh ends a query when its answer is older than `AGE_MAX_S`, however fast it
comes; it is the machine that gives up queries which are silent.  An answer that comes after that still fills holes.

OpenQuery: a query that is under way, and whether it may be said to have ended well.

zenoh ends a query without a word of error when the link to a cache breaks in the middle of its answer.  What was not
brought would then be taken for lost.  So a query ends well only if no error came, every reply found room, each cache of
ours said at its end how many replies it sent and all of them came, and no link of this session broke meanwhile.
"""

from __future__ import annotations

import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any, Final

import msgspec
import zenoh

from statemachines.drivers.missed_samples.attachment import EndAttachment, SampleAttachment, decode
from statemachines.drivers.missed_samples.layout import KeyLayout, attachment_of, read_source
from statemachines.drivers.missed_samples.received_sample import OVERHEAD, ReceivedSample
from statemachines.drivers.missed_samples.sample_store import OURS, PRIORITIES
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.missed_samples.keys import matches
from statemachines.missed_samples.message import EVERY_SOURCE, PARTLY, Query, QueryEnded, QueryGoesOn
from statemachines.missed_samples.selector import query_text
from statemachines.wire import quote_for_log

is_about = lru_cache(1_000)(matches)

REPLIERS_MAX: Final = 1_000
"""So many caches may answer one query; with more it does not end well."""


class OpenQuery(msgspec.Struct):
    """`links`: the sessions that were connected when it was sent, `breaks`: how many links had broken by then; `lost`:
    a reply found no room or an error came; `brought`: as in `QueryEnded`; `counts` of replies by cache, `ends`:
    what it said; `token`: cancels it (None: nothing does)."""

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


logger = logging.getLogger("gapless")

AGE_MAX_S: Final = 600.0
"""So long zenoh keeps a query, at most."""

KEPT_MAX: Final = 64
"""So many queries of one source are kept; the oldest is cancelled then."""


class QuerySender:
    """`session` is asked, `key_expr` is what the subscriber `owner` is about; `breaks` counts the links that broke."""

    def __init__(self, session: zenoh.Session, layout: KeyLayout, key_expr: str, owner: Any) -> None:
        self.breaks = 0
        self._session = session
        self._layout = layout
        self._key_expr = key_expr
        self._owner = owner
        self._asker = ThreadPoolExecutor(1, "gapless-queries")
        self._queries: dict[str, dict[int, OpenQuery]] = {}
        self._gone_on: dict[tuple[str, int], None] = {}

    def close(self) -> None:
        """Ask nothing more; may wait for the query that is being sent."""
        self._asker.shutdown(True, cancel_futures=True)
        for queries in self._queries.values():
            for open_ in queries.values():
                open_.cancel()

    def ask(self, query: Query) -> None:
        """Send it, soon."""
        self._owner.statistics.queries += 1
        open_ = OpenQuery(query, token=zenoh.CancellationToken())
        kept = self._queries.setdefault(query.source, {})
        kept[query.n] = open_
        if len(kept) > KEPT_MAX:
            kept.pop(next(iter(kept))).cancel()
        self._asker.submit(self._send, open_)

    def settle(self) -> None:
        """After a turn: tell the machine which queries go on."""
        gone_on, self._gone_on = self._gone_on, {}
        for source, n in gone_on:
            self._owner.answer(QueryGoesOn(source, n))

    # -- in a thread of our own ---------------------------------------------------------------------------------

    def _send(self, open_: OpenQuery) -> None:
        """zenoh waits while the link is full."""
        try:
            self._get(open_)
        except BaseException as error:
            self._owner.put(self._owner.fail, error, always=True)

    def _get(self, open_: OpenQuery) -> None:
        query, put = open_.query, self._owner.put
        key = self._layout.query_key(query.source, self._key_expr)
        said = query_text(query, self._layout.width)
        open_.breaks, open_.links = self.breaks, self._links()

        def replied(reply: zenoh.Reply) -> None:
            size = OVERHEAD + (len(reply.ok.payload) if reply.ok is not None else 0)
            if not put(self._hear_reply, (open_, reply), size):
                open_.lost = True

        def over() -> None:
            put(self._end, open_, always=True)

        try:
            self._session.get(
                f"{key}?{said};{OURS}=1" if said else f"{key}?{OURS}=1",
                direct(replied, over),
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                accept_replies=zenoh.ReplyKeyExpr.ANY,
                congestion_control=zenoh.CongestionControl.BLOCK,
                timeout=AGE_MAX_S,
                cancellation_token=open_.token,
            )
        except zenoh.ZError as error:
            logger.warning("a query could not be sent: %s", quote_for_log(str(error)))
            open_.lost = True
            over()

    def _links(self) -> frozenset[str]:
        return frozenset(str(link.zid) for link in self._session.info.transports())

    # -- what comes back, in the loop ---------------------------------------------------------------------------

    def _hear_reply(self, given: tuple[OpenQuery, zenoh.Reply]) -> None:
        open_, reply = given
        self._gone_on[open_.query.source, open_.query.n] = None
        sample = reply.ok
        if sample is None:
            open_.lost = True
            return
        if (info := sample.source_info) is not None:
            self._take(open_, sample, *read_source(info), attachment_of(sample), None)
            return
        cache = "" if reply.replier_id is None else f"{reply.replier_id.zid}/{reply.replier_id.eid}"
        data = attachment_of(sample)
        said = None if data is None else decode(data)
        if isinstance(said, EndAttachment):
            open_.end(cache, said.count)
        elif isinstance(said, SampleAttachment):
            open_.count(cache)
            self._layout.query_key(said.source, self._key_expr)
            priority = PRIORITIES[said.priority - 1] if said.priority else None
            self._take(open_, sample, said.source, said.sn, said.attachment, priority)
        else:
            self._take_unnumbered(open_, sample, data)

    def _take(
        self,
        open_: OpenQuery,
        sample: zenoh.Sample,
        source: str,
        sn: int,
        attachment: bytes | None,
        priority: zenoh.Priority | None,
    ) -> None:
        """One that was asked for; what else a cache says is counted, and nothing more."""
        if open_.query.source not in (source, EVERY_SOURCE) or not is_about(self._key_expr, str(sample.key_expr)):
            self._owner.statistics.strange += 1
            return
        open_.bring(sn, self._layout.width)
        if not self._owner.add_reply(source, sn, ReceivedSample(sample, source, -1, attachment, True, priority)):
            open_.lost = True

    def _take_unnumbered(self, open_: OpenQuery, sample: zenoh.Sample, attachment: bytes | None) -> None:
        """Of a cache whose publisher does not number its samples: history, if it is asked for."""
        asked = open_.query.source == EVERY_SOURCE and is_about(self._key_expr, str(sample.key_expr))
        if not asked or not self._owner.add_unnumbered(ReceivedSample(sample, "", -1, attachment, True)):
            self._owner.statistics.strange += 1
            return
        open_.brought += 1

    def _end(self, open_: OpenQuery) -> None:
        """Everything that it brought has been taken."""
        query = open_.query
        kept = self._queries.get(query.source, {})
        if kept.get(query.n) is not open_:
            return
        del kept[query.n]
        if not kept:
            del self._queries[query.source]
        self._gone_on.pop((query.source, query.n), None)
        well = open_.is_complete(self._links(), self.breaks)
        self._owner.statistics.bad_ends += not well
        brought = open_.brought
        if query.source == EVERY_SOURCE:
            brought += len(open_.ends)
        self._owner.answer(QueryEnded(query.source, query.n, brought if well else PARTLY))
