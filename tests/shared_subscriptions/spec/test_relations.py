"""What the relations of a configuration protect, counted in ticks: what holds with them, and breaks a tick further."""

from __future__ import annotations

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.explorer.property import Stepwise
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.tick import Tick
from statemachines_spec.script.path_to_script import Unscriptable, script_of
from statemachines_spec.shared_subscriptions.timed import PINGS, RENEWAL, build
from statemachines_spec.shared_subscriptions.timings import TIMES

DRIFTING = replace(TIMES, clock_drift=0.4, validity_ms=40, claim_ttl_ms=28, claim_heartbeat_ms=13, idle_stop_ms=24)
"""Every relation is kept: 2 heartbeats are less than the TTL, of which the owner counts 12 ms as its own."""

HOLDS = {
    "the answer to a ping comes before its timeout": (PINGS, {"ping_timeout_ms": 16}),
    "a member is heard before it expires": (PINGS, {"validity_ms": 24}),
    "a claim is renewed before its end": (RENEWAL, {}),
}
BREAKS = {
    "a ping timeout a tick shorter gives up who is alive": (PINGS, {"ping_timeout_ms": 12}, "L8"),
    "a validity a tick shorter gives up who is alive": (PINGS, {"validity_ms": 20}, "L8"),
    "a heartbeat when the claim ends comes too late": (RENEWAL, {"claim_heartbeat_ms": 12}, "L6 kept"),
}


def made(one, times):
    return build("relation", "one relation of the configuration", replace(one, times=replace(one.times, **times)))


@pytest.mark.parametrize("what", mark_long(HOLDS, "the answer to a ping comes before its timeout"))
def test_with_the_relation(what):
    result = explore(made(*HOLDS[what]), hashing=False)
    assert (result.ended, result.is_held) == (COMPLETE, True)
    assert result.is_shown


@pytest.mark.parametrize("what", BREAKS)
def test_without_it(what):
    one, times, broken = BREAKS[what]
    system = made(one, times)
    result = explore(system, hashing=False)
    assert result.path.broken == broken
    assert replay(system, result.path).broken == broken


def test_a_large_drift_ends_a_claim_before_its_heartbeat_though_every_relation_is_kept():
    """2 `heartbeat` < `claim_ttl` says nothing of (1-d)/(1+d): with d above 1/3 it lets a claim end first."""
    assert DRIFTING.check().claim_by_own_clock_ns() < DRIFTING.claim_heartbeat_ms * 1_000_000
    result = explore(build("drifting", "", replace(RENEWAL, times=DRIFTING, drift={})), hashing=False)
    assert result.path.broken == "L6 kept"


def test_a_store_that_takes_a_tick_is_in_no_relation():
    result = explore(build("slow store", "", replace(RENEWAL, delay=1)), hashing=False)
    assert result.path.broken == "L6 kept"


def test_a_run_with_ticks_is_no_script():
    no_tick = Stepwise("no tick", "", lambda actor, before, event, after: not isinstance(event, Tick))
    system = replace(made(PINGS, {}), properties=(no_tick,))
    path = explore(system, hashing=False).path
    with pytest.raises(Unscriptable, match="nobody can be told to do tick"):
        script_of(system, path, protocol="shared_subscriptions")


def test_times_that_break_a_relation_are_still_refused_elsewhere():
    with pytest.raises(ConfigurationError, match="ping_timeout"):
        replace(PINGS.times, ping_timeout_ms=12).check()
