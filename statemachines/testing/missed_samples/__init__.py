"""What missed-samples recovery gives to tests."""

from __future__ import annotations

from hypothesis import strategies as st

from statemachines.missed_samples.source import Recovery, SourceRecord
from statemachines.testing.protocol import Environment, TestProtocol, Values

VALUES = Values(
    choices={
        Recovery: (
            Recovery(),
            Recovery(past=True, reliable=False, retries=1, pending=3, history_limit=2),
            Recovery(retries=0, backoff_ms=1, backoff_max_ms=1, period_ms=500, retention_ms=1_000),
        ),
    }
)
SOURCES = st.builds(SourceRecord, st.just("p"), st.just("caches"), st.sampled_from(VALUES.choices[Recovery]),
                    history=st.booleans())  # fmt: skip

TESTING = TestProtocol(values=VALUES, environments={"source": Environment(start=SOURCES)})
