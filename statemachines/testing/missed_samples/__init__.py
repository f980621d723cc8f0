"""What missed-samples recovery gives to tests: few sources, numbers that collide and come round, small bounds."""

from __future__ import annotations

from hypothesis import strategies as st

from statemachines.missed_samples.cache import CacheRecord
from statemachines.missed_samples.message import EVERY_SOURCE, QUERY
from statemachines.missed_samples.publisher import Beats, PublisherRecord
from statemachines.missed_samples.recovery import Recovery, make_recovery
from statemachines.missed_samples.source_record import SourceRecord
from statemachines.missed_samples.subscriber_record import History, SubscriberRecord
from statemachines.testing.missed_samples.query_ends import QueryEnds
from statemachines.testing.protocol import Environment, TestProtocol, Values

NUMBERS = (0, 1, 2, 3, 5, 6, 7)

VALUES = Values(
    ints={
        "first": NUMBERS,
        "last": NUMBERS,
        "count": (1, 2, 5),
        "n": (1, 2, 0),
        "brought": (0, 1, 2, 9),
        "t_ns": (0, 1_000_000_000, 2_000_000_000),
    },
    names={
        "source": ("p", "q", EVERY_SOURCE),
        "key": ("a/b", "a/c"),
        "expression": ("a/b", "a/*", "**", "c"),
        "asker": ("s~1/1",),
        "parameters": ("", "_sn=1..", "_sn=..2;_max=1", "_sn=3", "_sn=b..a", "_time=[now(-1s)..]", "_max="),
    },
    choices={
        Recovery: (
            Recovery(),
            Recovery(past=True, reliable=False, retries=1, pending=3, history_limit=2),
            make_recovery(retries=0, backoff_ms=1, backoff_max_ms=1, period_ms=500, retention_ms=1_000),
            make_recovery(past=True, retries=1, window=2, windows=2, jump=2, timeout_ms=100, timeout_max_ms=300),
        ),
        History: (History(), History(2, 1_000)),
    },
)
RECOVERIES = st.sampled_from(VALUES.choices[Recovery])
SOURCES = st.builds(SourceRecord, st.just("p"), RECOVERIES, history=st.booleans())
SUBSCRIBERS = st.builds(
    SubscriberRecord,
    RECOVERIES,
    st.sampled_from((None, *VALUES.choices[History])),
    st.sampled_from((64, 3)),
)
CACHES = st.builds(
    CacheRecord,
    st.sampled_from((EVERY_SOURCE, "p")),
    st.sampled_from(("**", "a/b")),
    st.booleans(),
    st.sampled_from((1, 3)),
    st.sampled_from((64, 3)),
)
PUBLISHERS = st.builds(PublisherRecord, st.just("p"), st.just("a/b"), st.sampled_from(Beats))

TESTING = TestProtocol(
    values=VALUES,
    environments={
        "publisher": Environment(start=PUBLISHERS),
        "reliability_cache": Environment(start=CACHES),
        "subscriber": Environment(start=SUBSCRIBERS, services={QUERY: QueryEnds()}),
        "source": Environment(start=SOURCES, services={QUERY: QueryEnds()}),
    },
    roles="statemachines.testing.missed_samples.conformance:ROLES",
)
