"""Unhurried: the same system with other times, so long that timers which it leaves out are never due.

The explorer knows no durations, so any configuration that keeps its relations has the same runs.  One in which a timer
that "never fires" is due after hours has those runs with real timers, too.
"""

from __future__ import annotations

import copy
from math import ceil
from typing import Final

from msgspec.structs import replace

from statemachines.shared_subscriptions.configuration import Configuration
from statemachines.shared_subscriptions.group_store import SERVICE as GROUP_STORE
from statemachines_spec.explorer.actor import Actor
from statemachines_spec.explorer.system import System
from statemachines_spec.shared_subscriptions.consumer import Consumer
from statemachines_spec.shared_subscriptions.leader_host import LeaderHost
from statemachines_spec.shared_subscriptions.stores import Store, make_declared_store

HOUR_MS: Final = 3_600_000
PING_MS: Final = 60_000
"""Instead of the ping interval: leases last as long, and some of them end within a run."""


def slow_down(system: System, *, pings: bool) -> System:
    """The system with longer times for the timers that it leaves out; those of `pings` last, since leases and expiry
    grow with them."""
    silent = frozenset[str]().union(*(actor.silent for actor in system.actors))
    if not pings:
        silent -= {"ping"}
    host = next(actor for actor in system.actors if isinstance(actor, LeaderHost))
    return _in_time(system, longer(host.configuration, silent))


def patient(system: System) -> System:
    """The same system, where a leader that never gives a grant up waits for hours; no other time depends on that."""
    host = next((actor for actor in system.actors if isinstance(actor, LeaderHost)), None)
    if host is None or "grant_timeout" not in host.silent:
        return system
    return _in_time(system, replace(host.configuration, grant_timeout_ms=HOUR_MS))


def _in_time(system: System, configuration: Configuration) -> System:
    return replace(system, actors=tuple(_with(actor, configuration) for actor in system.actors))


def longer(ours: Configuration, silent: frozenset[str]) -> Configuration:
    """With every relation kept."""
    if "claim_end" in silent:
        ours = replace(ours, claim_ttl_ms=9 * HOUR_MS, claim_heartbeat_ms=4 * HOUR_MS)
        if "commit" in silent:
            ours = replace(ours, commit_interval_ms=HOUR_MS)
    if "renew" in silent:
        ours = replace(ours, renew_streams_ms=HOUR_MS)
    if "idle" in silent:
        ours = replace(ours, idle_stop_ms=HOUR_MS)
    if "ping" in silent:
        lease_ms, d = PING_MS + ours.ping_timeout_ms, ours.clock_drift
        validity_ms = ceil((lease_ms * (1 + d) + 2 * ours.max_delay_ms) / (1 - d)) + 1
        ours = replace(ours, ping_interval_ms=PING_MS, validity_ms=max(ours.validity_ms, validity_ms))
    return ours.check()


def _with(actor: Actor, configuration: Configuration) -> Actor:
    other = copy.copy(actor)
    if isinstance(other, Consumer | LeaderHost):
        other.configuration = configuration
    elif isinstance(other, Store) and other.name == GROUP_STORE and other.state:
        other.state = make_declared_store(configuration)
    return other
