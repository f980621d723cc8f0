"""ReliabilityCache: keeps samples of every source anywhere in the network (source: "The `ReliabilityCache`").

with declare_reliability_cache(session, "room/**", history=1_000): ...
"""

from __future__ import annotations

from typing import Any

import msgspec
import zenoh

from statemachines.drivers.lives import Life
from statemachines.drivers.missed_samples.entity import Entity
from statemachines.drivers.missed_samples.layout import layout_of
from statemachines.drivers.missed_samples.publisher import check_options
from statemachines.drivers.missed_samples.sample_store import SampleStore
from statemachines.drivers.missed_samples.zenoh_thread import direct
from statemachines.missed_samples.cache import CacheRecord
from statemachines.missed_samples.keys import check_expression
from statemachines.missed_samples.message import EVERY_SOURCE


class CacheOptions(msgspec.Struct, frozen=True, kw_only=True):
    """See `declare_reliability_cache`."""

    prefix: str = EVERY_SOURCE
    layout: str = "advanced"
    history: int = 1
    places: int = 10_000
    bytes_max: int = 256 << 20
    allowed_origin: zenoh.Locality | None = None
    life: Life | None = None


class ReliabilityCache(Entity):
    """See `declare_reliability_cache`."""

    def __init__(self, session: zenoh.Session, key_expr: str, options: CacheOptions) -> None:
        super().__init__()
        self.key_expr = check_expression(key_expr)
        self._session = session
        self._options = options
        self._layout = layout_of(options.layout)
        is_local = options.allowed_origin == zenoh.Locality.SESSION_LOCAL
        of_all = {EVERY_SOURCE: self._layout.query_key(EVERY_SOURCE, key_expr)}
        self._answers = of_all.get(options.prefix) or self._layout.own_key(options.prefix, key_expr)
        self._record = CacheRecord(
            options.prefix, key_expr, is_local, options.history, self._layout.width, options.places
        )

    def _declare(self) -> None:
        session, options = self._session, self._options
        self._store = SampleStore(session, self._layout, self._record, options.life, bytes_max=options.bytes_max)
        self.statistics = self._store.statistics
        self._declared.callback(self._store.close)
        hear = direct(self._keep)
        self._add(session.declare_subscriber(self.key_expr, hear, allowed_origin=options.allowed_origin))
        self._add(session.declare_queryable(self._answers, direct(self._store.take_query)))

    def _keep(self, sample: zenoh.Sample) -> None:
        """On a thread of zenoh's."""
        try:
            found = self._layout.read_sample(sample)
            if found is not None and found[0]:
                self._store.keep((found[0], str(sample.key_expr)), found[1], sample, found[2])
            elif found is not None:
                self.statistics.unnumbered += 1
        except ValueError:
            self.statistics.malformed += 1


def declare_reliability_cache(session: zenoh.Session, key_expr: str, **options: Any) -> ReliabilityCache:
    """A cache under a key expression, to be entered with `with` or `async with`, or by `open()` and `close()`.

    `prefix`: the id of the one source that it keeps and answers for, "*" for all.  `history`: so many samples are kept
    of each key and source, the newest, and of all of them at most `bytes_max` bytes, in at most `places` queues;
    samples that need one more are counted (`statistics.not_kept`), and queues that are silent for an hour make place
    then.  `allowed_origin`: `zenoh.Locality.SESSION_LOCAL` for what this session publishes alone; `layout` as for
    publishers.

    Raises `BadKey` for what is no key expression, `ConfigurationError` for an option that cannot be, `zenoh.ZError`.
    """
    return ReliabilityCache(session, key_expr, check_options(CacheOptions, options))
