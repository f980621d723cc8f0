"""Configuration relations: each broken one names both values and the rule."""

from __future__ import annotations

from fractions import Fraction

import pytest

from statemachines.kernel import ConfigurationError
from statemachines.shared_subscriptions.configuration import MS, Configuration


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"max_delay_ms": 500}, r"4 \* max_delay = 2000: must be less than ping_timeout = 2000"),
        ({"validity_ms": 3000}, r"clock_drift\) \+ 2 \* max_delay = 3830.0: must be less than validity"),
        ({"claim_heartbeat_ms": 1500}, r"2 \* claim_heartbeat = 3000: must be less than claim_ttl = 3000"),
        ({"commit_interval_ms": 501}, r"commit_interval - 1 = 500: must be less than claim_heartbeat = 500"),
        ({"unsubscribe_timeout_ms": 10000}, r"unsubscribe_timeout = 10000: must be less than revoke_timeout = 10000"),
        (
            {"idle_stop_ms": 1000},
            r"find_leader \* \(1 \+ clock_drift\) \+ 2 \* max_delay = 1810.0: must be less than idle_stop",
        ),
        ({"ping_interval_ms": 0}, "ping_interval_ms = 0: a time in milliseconds must lie between"),
        ({"clock_drift": 0.5}, r"clock_drift = 0.5: must lie in \[0, 0.5\)"),
    ],
)
def test_SS_210_a_broken_relation_is_named(change, message):
    with pytest.raises(ConfigurationError, match=message):
        Configuration(**change).check()


@pytest.mark.parametrize("drift", ["0.01", "0.4000004", "0.4000006", "3e-07", "0.499999"])
def test_SS_211_no_margin_is_shorter_than_the_drift_asks_however_finely_that_is_given(drift):
    d, ours = Fraction(drift), Configuration(clock_drift=float(drift))
    assert 0 <= ours.lease_by_other_clock_ns() - ours.lease_ms * MS * (1 + d) / (1 - d) < 1
    assert 0 <= ours.claim_ttl_ms * MS * (1 - d) / (1 + d) - ours.claim_by_own_clock_ns() < 1
