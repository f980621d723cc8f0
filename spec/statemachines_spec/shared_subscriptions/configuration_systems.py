"""Configuration systems: somebody tries configurations on either side of each relation, and uses what is reckoned
from them.

A relation is what a promise rests on (systems.md has which): where it is not kept a configuration is refused, and where
it is, it is not.  What is reckoned from one is on the safe side by less than a nanosecond.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from statemachines.kernel import ConfigurationError, Event
from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.actor import Actor, Envelope, Reaction, Watch
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.property import Always, Property, Sometimes, View
from statemachines_spec.explorer.system import System

BASE: Final = Configuration()
NS: Final = 1_000_000
"""Nanoseconds in a millisecond."""


class Try(Event, frozen=True, gc=False):
    """Somebody starts with this configuration; which relation it is about, and whether it keeps all of them."""

    about: int
    keeps: bool
    configuration: Configuration


class TriedConfiguration(msgspec.Struct, frozen=True, gc=False):
    """What became of the last: which relation it was about (-1: none yet), whether it was to be taken, whether it was,
    and whether what is reckoned from it is right."""

    about: int = -1
    keeps: bool = True
    taken: bool = True
    right: bool = True


RELATIONS: Final = (
    ("L8 answers", "a ping timeout is longer than four delays of a message"),
    ("L8 validity", "a member that pings is heard within a validity"),
    ("L6 heartbeat", "a claim is renewed twice within its TTL"),
    ("L6 commits", "commits come no more seldom than heartbeats"),
    ("L3 leaving", "who leaves ends before it is given up over a revoke"),
    ("L1 idle", "a leader that was asked for is still there for the next question"),
    ("S5 drift", "clocks are not allowed to err by half"),
    ("L1 times", "times are positive, and no longer than some decades"),
    ("L2 window", "a member has at least one grant to answer, and at most a thousand"),
)
"""Name and text; which of them a configuration is about is a place in this list."""


def _edges() -> Iterator[Try]:
    """On either side of each relation."""
    still = replace(BASE, clock_drift=0.0)
    edges: tuple[tuple[int, Configuration, dict[str, Any], dict[str, Any]], ...] = (
        (0, BASE, {"max_delay_ms": 499}, {"max_delay_ms": 500}),
        (1, still, {"validity_ms": 3801}, {"validity_ms": 3800}),
        (1, BASE, {"validity_ms": 3869}, {"validity_ms": 3868}),
        (2, BASE, {"claim_ttl_ms": 1001}, {"claim_ttl_ms": 1000}),
        (3, BASE, {"commit_interval_ms": 500}, {"commit_interval_ms": 501}),
        (4, BASE, {"unsubscribe_timeout_ms": 9999}, {"unsubscribe_timeout_ms": 10_000}),
        (5, still, {"idle_stop_ms": 1801}, {"idle_stop_ms": 1800}),
        (5, BASE, {"idle_stop_ms": 1829}, {"idle_stop_ms": 1828}),
        (6, _wide(), {"clock_drift": 0.0}, {"clock_drift": -0.000001}),
        (6, _wide(), {"clock_drift": 0.4990004}, {"clock_drift": 0.5}),
        (7, BASE, {"resend_interval_ms": 1}, {"resend_interval_ms": 0}),
        (7, BASE, {"revoke_timeout_ms": 2**40 - 1}, {"revoke_timeout_ms": 2**40}),
        (7, BASE, {"grant_timeout_ms": 0}, {"grant_timeout_ms": -1}),
        (8, BASE, {"grant_window": 1}, {"grant_window": 0}),
        (8, BASE, {"grant_window": 1000}, {"grant_window": 1001}),
    )
    for about, base, inside, outside in edges:
        yield Try(about, True, replace(base, **inside))
        yield Try(about, False, replace(base, **outside))


def _wide() -> Configuration:
    """So that only the drift matters."""
    return replace(BASE, validity_ms=20_000, idle_stop_ms=60_000)


EDGES: Final = tuple(_edges())


class ConfigurationOperator(Actor):
    """Tries one configuration after the other, in any order."""

    def initial(self) -> TriedConfiguration:
        return TriedConfiguration()

    def inputs(self, local: TriedConfiguration) -> tuple[Any, ...]:
        return EDGES

    def react(self, local: TriedConfiguration, envelope: Envelope, watch: Watch | None = None) -> Reaction | None:
        tried: Try = envelope.event
        try:
            taken = tried.configuration.check() == tried.configuration
        except ConfigurationError:
            taken = False
        right = not taken or _is_right(tried.configuration)
        return Reaction(TriedConfiguration(tried.about, tried.keeps, taken, right))


def _is_right(one: Configuration) -> bool:
    """A lease by another clock, and a claim by the own one, to the nanosecond on the safe side."""
    d = Fraction(str(one.clock_drift))
    lease = Fraction((one.ping_interval_ms + one.ping_timeout_ms) * NS) * (1 + d) / (1 - d)
    claim = Fraction(one.claim_ttl_ms * NS) * (1 - d) / (1 + d)
    waits = max(one.validity_ms, one.grant_timeout_ms)
    return (
        0 <= one.lease_by_other_clock_ns() - lease < 1
        and 0 <= claim - one.claim_by_own_clock_ns() < 1
        and one.grant_wait_ms == waits
    )


def build_tried() -> System:
    """Nothing but the operator."""
    made: list[Property] = []
    for number, (name, text) in enumerate(RELATIONS):
        view = View("operator", 3, _make_view(number))
        made.append(Always(f"{name} kept", text, (view,), lambda seen: seen != 2))
        made.append(Sometimes(f"{name} tried", text, (view,), lambda seen: seen == 1))
    right = View("operator", 2, lambda local: int(local.right))
    made.append(Always("S5 reckoned", "margins are on the safe side by less than a nanosecond", (right,), bool))
    return System("configured", ABOUT, (ConfigurationOperator("operator"),), Network(1), tuple(made))


def _make_view(number: int) -> Any:
    """0: it was about another relation; 1: taken or refused as it should be; 2: not so."""

    def view(local: TriedConfiguration) -> int:
        return 0 if local.about != number else 1 if local.taken == local.keeps else 2

    return view


ABOUT: Final = "somebody tries configurations on either side of each relation"
DIRECTED_SYSTEMS: Final = (DirectedSystem("configured", ABOUT, build_tried),)
