"""Timed systems of shared subscriptions: deadline orders are theorems, and each margin is as short as it can be."""

from __future__ import annotations

from pathlib import Path

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError
from statemachines_spec import certificates
from statemachines_spec.explorer.counterexample import describe_path
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.shared_subscriptions import SPEC, systems
from statemachines_spec.shared_subscriptions.margins import MARGINS, shorten_margin
from statemachines_spec.shared_subscriptions.orders import ORDERS
from statemachines_spec.shared_subscriptions.succession import count_bound_ticks
from statemachines_spec.shared_subscriptions.timed import SYSTEMS, obligations_of, system
from statemachines_spec.shared_subscriptions.timings import TIMES

FOLDER = Path(__file__).parents[3] / "spec" / "shared_subscriptions" / "certificates"

BREAKS = {
    "lease-a-tick-longer": ("timed-hand-over", "S5", 20),
    "lease-from-the-answer": ("timed-hand-over", "S5", 20),
    "hand-over-a-tick-early": ("timed-hand-over", "S5", 19),
    "hand-over-without-drift": ("timed-hand-over", "S5", 18),
    "grace-a-tick-short": ("timed-grace", "S5", 23),
    "claim-a-tick-longer": ("timed-claim", "S3 claim leader-1", 16),
    "watched-a-tick-short": ("timed-claim", "S3 claim leader-1", 15),
    "claim-from-the-answer": ("timed-claim", "S3 claim leader-1", 16),
    "watched-a-tick-longer": ("timed-succession", "L6 in time", 76),
    "watched-anew-at-each-look": ("timed-succession", "L6 in time", 90),
    "looked-at-a-tick-late": ("timed-succession", "L6 in time", 67),
}
"""Margin -> where it is found, what breaks, in how many steps."""

ENOUGH = 14
"""After so many ticks somebody holds a claim again in `timed-succession`; the bound of L6 is 20."""

SHORT = {"watched-a-tick-longer": ENOUGH, "looked-at-a-tick-late": ENOUGH}
"""Margin -> the bound that a tick is too much for: that of L6 has some to spare."""


LONG = ("timed-succession", "timed-pings", "timed-grace", "timed-hand-over")
"""`make soak` explores these to their ends, as it does every certificate."""


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_timed_system_is_to_show_is_not_assumed(name):
    made = system(name)
    assumed = {order.name for order in made.orders}
    shown = {key.removeprefix("shown: ") for key in made.describe_bounds() if key.startswith("shown: ")}
    assert not shown & assumed


@pytest.mark.parametrize("name", mark_long(SYSTEMS, *LONG))
def test_what_a_timed_system_is_to_show_holds_and_is_certified(name):
    result = explore(system(name))
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert certificates.list_differences(certificates.read(FOLDER / f"{name}-small.json"), result) == []


def test_every_deadline_order_is_shown_by_some_timed_system():
    shown = {order.name for _, sizes in SYSTEMS.values() for order in sizes["small"].shown}
    assert shown == {order.name for order in ORDERS}


LARGE = [margin for margin, (name, *_) in BREAKS.items() if name in LONG]
"""`make soak` explores these."""


@pytest.mark.parametrize("margin", mark_long(BREAKS, *LARGE))
def test_a_margin_that_is_a_tick_too_short_breaks_a_promise(margin):
    name, broken, steps = BREAKS[margin]
    with shorten_margin(margin):
        made = system(name, slack=1, most=SHORT.get(margin, 0))
        result = explore(replace(made, origin=None), hashing=False)  # no other process has the mistake
        assert result.path.broken == broken
        assert len(result.path.legs) == steps
        assert replay(made, result.path).broken == broken
        assert "clock: tick(" in describe_path(result.path)


@pytest.mark.long
def test_somebody_holds_the_claim_again_within_as_many_ticks_and_not_one_less():
    assert explore(system("timed-succession", most=ENOUGH), hashing=False).is_held
    result = explore(system("timed-succession", most=ENOUGH - 1), hashing=False)
    assert (result.path.broken, len(result.path.legs)) == ("L6 in time", 85)


def test_the_bound_of_L6_is_what_the_page_says():
    """claim_ttl 5 ticks, L 3, two commit intervals, a find_leader for each of two hosts: 12, times 1.25/0.75."""
    assert count_bound_ticks(TIMES, 2) == 20
    assert count_bound_ticks(TIMES, 3) == 22, "rounded up"
    assert count_bound_ticks(replace(TIMES, clock_drift=0.0), 2) == 12


def test_every_margin_is_looked_for():
    assert {one.name for one in MARGINS} == set(BREAKS)
    assert all(one.sentence and one.replaces and one.clause.startswith("SS-") for one in MARGINS)


def test_an_unknown_margin_is_named_with_those_there_are():
    with pytest.raises(ConfigurationError, match="lease-a-tick-longer"), shorten_margin("lease"):
        pass


def test_without_margins_nothing_is_left_of_them():
    from statemachines.shared_subscriptions import claim
    from statemachines.shared_subscriptions.borrower import BORROWER

    before = (claim.begin, BORROWER.declared)
    for one in MARGINS:
        with shorten_margin(one.name):
            pass
    assert (claim.begin, BORROWER.declared) == before


def test_what_is_timed_is_printed_beside_the_verdict():
    lines = SPEC.system("timed-hand-over").describe_bounds()
    assert lines["consumer-1: timed"] == "lease"
    assert lines["leader-1: timed"] == "hand_over"
    assert lines["consumer-1: stamps"] == "ping_at_ns (up to 12000000 ns, 3 ticks)"
    assert lines["clock: tick"] == "4000000 ns"
    assert lines["clock: drift of consumer-1"] == "in any 4 ticks at most 1 fewer"
    assert "claim_ttl 20" in lines["times (ms)"]
    assert "deadline order: lease before hand-over" not in lines
    assert "shown: lease before hand-over" in lines


def test_obligations_are_of_systems_without_a_tick():
    assert obligations_of(system("timed-claim")) == ()
    assert obligations_of(systems.system("fail-over", "small"))


@pytest.mark.parametrize(("given", "word"), [({"name": "timed"}, "timed-claim"), ({"size": "huge"}, "small, ci")])
def test_unknown_names_are_refused_with_those_there_are(given, word):
    with pytest.raises(ConfigurationError, match=word):
        system(**({"name": "timed-claim"} | given))
