"""Contracts of single machines: they hold, every rule is met, and one small mistake breaks each.

Contracts of whole processes: they hold, every rule is met, and one small mistake breaks each.

Timed systems of shared subscriptions: deadline orders are theorems, and each margin is as short as it can be.

What the relations of a configuration protect, counted in ticks: what holds with them, and breaks a tick further.
"""

from functools import cache
from pathlib import Path

import pytest
from long_cases import mark_long
from msgspec.structs import replace

from statemachines import cli
from statemachines.kernel import ConfigurationError
from statemachines_spec import certificates
from statemachines_spec.contract import Counterpart
from statemachines_spec.explorer.counterexample import describe_path
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.explorer.property import Stepwise
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.explorer.replay import replay
from statemachines_spec.explorer.tick import Tick
from statemachines_spec.liveness.judge import live
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.script.path_to_script import Unscriptable, script_of
from statemachines_spec.shared_subscriptions import SPEC, contracts, process_contracts, systems
from statemachines_spec.shared_subscriptions.margins import MARGINS, shorten_margin
from statemachines_spec.shared_subscriptions.orders import ORDERS
from statemachines_spec.shared_subscriptions.succession import TIMES, count_bound_ticks
from statemachines_spec.shared_subscriptions.timed import PINGS, RENEWAL, SYSTEMS, build, obligations_of, system


def rules_of(name):
    made = contracts.BUILDS[name](name)
    return next(one for one in made.actors if isinstance(one, Counterpart))


@cache
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("shared_subscriptions")).mutants}


LONG = (
    "session-told", "streams-told", "timed-private", "session-owners", "timed-borrower", "two-streams-told",
    "session-leases",
)  # fmt: skip
"""`make soak` explores these again.  Their certificates say the same, and are stale after a change of the code."""


@pytest.mark.parametrize("name", mark_long(contracts.BUILDS, *LONG))
def test_a_contract_is_kept_and_every_rule_met(name):
    made = SPEC.system(name)
    entries = Entries(made)  # tabulated once: that is most of the time
    found = explore(made, engine="plain", hashing=False, entries=entries)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]
    owed = SPEC.obligations(made)
    assert not owed or all(one.is_held for one in live(made, owed, engine="plain", entries=entries))


def test_every_rule_is_met_somewhere():
    for part in ("told", "session"):
        idle = [set(rules_of(name).idle) for name in contracts.BUILDS if part in name]
        assert idle
        assert not set.intersection(*idle)


BROKEN = {
    "borrower-told": [
        ("borrower/0/deleted", "S19 asks"),
        ("borrower/2/negated", "S19 adopts"),
        ("borrower/14/negated", "S19 deaf"),
        ("borrower/9/deleted", "S19 follows"),
        ("borrower/3/deleted", "S19 invalidated"),
        ("borrower/15/deleted", "S19 revoke"),
        ("borrower/26/after-27", "S19 late revoke"),
        ("borrower/30/to-unsubscribing", "S1 ends"),
    ],
    "streams-told": [("borrower/12/after-13", "S19 grant"), ("stream/9/deleted", "S19 revoke")],
    "two-streams-told": [
        ("borrower/6/negated", "S19 repeated"),
        ("borrower/24/negated", "S19 pings"),
        ("borrower/8/negated", "S19 lease"),
        ("borrower/11/deleted", "S19 lease ends"),
        ("borrower/10/deleted", "S19 gives up"),
        ("borrower/28/negated", "S19 progress"),
        ("borrower/22/deleted", "S19 leaves"),
        ("borrower/23/deleted", "S19 goes"),
        ("borrower/30/deleted", "S19 in time"),
    ],
    "timed-borrower": [
        ("borrower/1/timer-doubled", "S19 asks on time"),
        ("borrower/8/timer-halved", "S19 pings on time"),
        ("borrower/7/timer-doubled", "S19 gives up on time"),
        ("borrower/24/timer-doubled", "S19 pings on time"),
        ("borrower/unsubscribe/timer-doubled", "S19 leaves on time"),
    ],
    "session-told": [
        ("session.fetch/5/1-is-0", "S19 turns"),
        ("session.deliver/8/no-Tell", "S19 hands over"),
        ("session.finish_idle/1/no-report", "S19 finishes"),
    ],
    "session-leases": [
        ("session.begin/3/no-Tell", "S19 ready"),
        ("session.dismiss_last/1/no-Tell", "S19 dismisses"),
        ("session/4/deleted", "S19 dismisses"),
    ],
    "session-acks": [("session.join/1/gt-is-gte", "S19 counts")],
    "timed-session": [("session/11/timer-halved", "S19 polls"), ("session/10/timer-doubled", "S19 polls")],
    "timed-witness": [
        ("witness/0/deleted", "S19 doubts"),
        ("witness/3/deleted", "S19 tells"),
        ("witness/rest/timer-halved", "S19 rests"),
    ],
    "timed-private": [
        ("private/0/deleted", "S19 begins"),
        ("private/3/deleted", "S19 lists"),
        ("private/renew/timer-doubled", "S19 renews"),
        ("private/7/deleted", "S19 progress"),
        ("private/9/deleted", "S19 ends"),
    ],
}


@pytest.mark.parametrize(
    ("name", "mutant", "rule"), [(name, *pair) for name, pairs in BROKEN.items() for pair in pairs]
)
def test_a_mistake_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(replace(contracts.BUILDS[name](name), origin=None), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert found.path is not None
    assert [one for one, held in found.always.items() if not held] == [rule]


BOUND = 2_500
"""States: each is explored in seconds."""


@pytest.mark.parametrize("name", process_contracts.BUILDS)
def test_a_process_keeps_its_contract_and_every_rule_is_met(name):
    found = explore(SPEC.system(name), engine="plain", hashing=False)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]
    assert found.states < BOUND


PROCESSES_KEPT_BROKEN = {
    "agent-believes": [
        ("agent/11/deleted", "S19 hears"),
        ("agent/12/deleted", "S19 pings"),
        ("agent/13/deleted", "S19 hears"),
        ("agent/14/deleted", "S19 waits"),
        ("agent/15/deleted", "S19 farewell"),
        ("agent/16/deleted", "S19 farewell"),
        ("agent/19/deleted", "S19 reads"),
        ("agent/25/deleted", "S19 farewell"),
    ],
    "agent-asked": [
        ("agent/2/deleted", "S19 declares"),
        ("agent/0/deleted", "S19 refuses names"),
        ("agent/23/deleted", "S19 begins"),
        ("agent/3/deleted", "S19 gives up"),
        ("agent/4/deleted", "S19 ends"),
        ("agent/9/deleted", "S19 gives up"),
    ],
    "agent-full": [("agent/1/deleted", "S19 is full"), ("agent/10/deleted", "S19 takes")],
    "handler-full": [("handler/23/deleted", "S19 refuses alone"), ("handler/25/deleted", "S19 alone")],
    "handler-away": [
        ("handler/26/deleted", "S19 stands by"),
        ("handler/31/deleted", "S19 goes away"),
        ("handler/32/deleted", "S19 stays away"),
        ("handler/33/deleted", "S19 comes back"),
        ("handler/34/deleted", "S19 goes away"),
        ("handler/30/deleted", "S19 over"),
    ],
    "registry-asked": [
        ("registry/0/deleted", "S19 answers around"),
        ("registry/1/deleted", "S19 gone around"),
        ("registry/3/deleted", "S19 refuses names"),
        ("registry/4/deleted", "S19 starts"),
        ("registry/5/deleted", "S19 gone"),
        ("registry/7/deleted", "S19 answers directly"),
        ("registry/10/deleted", "S19 halts"),
        ("registry/12/deleted", "S19 is held back"),
        ("registry/14/deleted", "S19 takes"),
    ],
    "timed-registry": [
        ("registry/0/timer-doubled", "S19 forgets on time"),
        ("registry/12/timer-halved", "S19 lets go on time"),
    ],
}


@pytest.mark.parametrize(
    ("name", "mutant", "rule"), [(name, *pair) for name, pairs in PROCESSES_KEPT_BROKEN.items() for pair in pairs]
)
def test_a_mistake_in_a_process_row_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(replace(process_contracts.BUILDS[name](name), origin=None), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]


PROCESSES = ("agent", "handler", "registry")
PROCESSES_KEPT_SYSTEMS = {
    process: [name for name in process_contracts.BUILDS if process in name] for process in PROCESSES
}


@pytest.mark.parametrize("process", mark_long(PROCESSES_KEPT_SYSTEMS, *PROCESSES_KEPT_SYSTEMS))
def test_every_mutant_of_a_process_row_is_killed_or_allowed(process, tmp_path):
    systems = [part for name in PROCESSES_KEPT_SYSTEMS[process] for part in ("--systems", name)]
    assert cli.run(("mutate", "shared_subscriptions", "--only", f"{process}/*", *systems, "--out", str(tmp_path))) == 0


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


MARGINS_LONG = ("timed-succession", "timed-pings", "timed-grace", "timed-hand-over")
"""`make soak` explores these to their ends, as it does every certificate."""


@pytest.mark.parametrize("name", SYSTEMS)
def test_what_a_timed_system_is_to_show_is_not_assumed(name):
    made = system(name)
    assumed = {order.name for order in made.orders}
    shown = {key.removeprefix("shown: ") for key in made.describe_bounds() if key.startswith("shown: ")}
    assert not shown & assumed


@pytest.mark.parametrize("name", mark_long(SYSTEMS, *MARGINS_LONG))
def test_what_a_timed_system_is_to_show_holds_and_is_certified(name):
    result = explore(system(name))
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert certificates.list_differences(certificates.read(FOLDER / f"{name}-small.json"), result) == []


def test_every_deadline_order_is_shown_by_some_timed_system():
    shown = {order.name for _, sizes in SYSTEMS.values() for order in sizes["small"].shown}
    assert shown == {order.name for order in ORDERS}


LARGE = [margin for margin, (name, *_) in BREAKS.items() if name in MARGINS_LONG]
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


def test_obligations_are_of_systems_without_a_tick():
    assert obligations_of(system("timed-claim")) == ()
    assert obligations_of(systems.system("fail-over", "small"))


@pytest.mark.parametrize(("given", "word"), [({"name": "timed"}, "timed-claim"), ({"size": "huge"}, "small, ci")])
def test_unknown_names_are_refused_with_those_there_are(given, word):
    with pytest.raises(ConfigurationError, match=word):
        system(**({"name": "timed-claim"} | given))


DRIFTING = replace(TIMES, clock_drift=0.4, validity_ms=40, claim_ttl_ms=28, claim_heartbeat_ms=13, idle_stop_ms=24)
"""Every relation is kept: 2 heartbeats are less than the TTL, of which the owner counts 12 ms as its own."""

HOLDS = {
    "the answer to a ping comes before its timeout": (PINGS, {"ping_timeout_ms": 16}),
    "a member is heard before it expires": (PINGS, {"validity_ms": 24}),
    "a claim is renewed before its end": (RENEWAL, {}),
}


def made(one, times):
    return build("relation", "one relation of the configuration", replace(one, times=replace(one.times, **times)))


@pytest.mark.parametrize("what", mark_long(HOLDS, "the answer to a ping comes before its timeout"))
def test_with_the_relation(what):
    result = explore(made(*HOLDS[what]), hashing=False)
    assert (result.ended, result.is_held) == (COMPLETE, True)
    assert result.is_shown


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
