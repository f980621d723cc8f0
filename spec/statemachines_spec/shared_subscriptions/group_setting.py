"""Group setting: how many of what a system of shared subscriptions has, and which faults how often."""

from __future__ import annotations

import msgspec

from statemachines.shared_subscriptions.configuration import Configuration
from statemachines_spec.explorer.network import Network
from statemachines_spec.shared_subscriptions.consumer import FILTER

WINDOW = Configuration().grant_window
"""No system has so many streams that it would ever be full."""


class GroupSetting(msgspec.Struct, frozen=True):
    """How many of what.

    `consumers` and `hosts` (leader hosts) take part, over `topics` streams of `offsets` messages; `network`;
    `sessions`: consumers are whole, and what follows up to `disconnects` is theirs, as `delivering` says;
    `roots` batches are committed after a claim was taken (0: none is, and no progress becomes durable);
    `script`: what the environment does with the stream store (`stores.script`), which lists `page` streams at a time;
    `lies`: consumers report what was never stored; so many `mutes` among them answer no grant;
    `grant_window`: so many grants of a member may be unanswered;
    `pretends`: so many lies are told to consumer-1, which hears by its witness, by somebody who says it leads;
    `read_failures`: so many reads of the witness fail; `restores`: so often the group store is put back;
    `lost`: so many messages to or from a leader host are lost, in a network that loses none;
    `look_failures`: so many requests that the stream store alone fails;
    `silences`: a store that fails may not even answer; `renews`: a leader renews its claim in time while it lives;
    `idles`: a leader without members gives its claim up;
    `lives` borrowers each consumer makes, `pings` each of them sends; `registrations`, `grants`, `epochs` of leaders;
    `host_lives` of a leader host and `leaders` it starts in each; faults: how often all together.
    """

    consumers: int = 2
    hosts: int = 1
    topics: int = 1
    offsets: int = 0
    sessions: bool = False
    buffer: int = 256
    ended: bool = False
    at_delivery: bool = False
    fetches_wait: bool = False
    losses: int = 0
    leases_hold: bool = False
    filter: str = FILTER
    disconnects: int = 0
    network: Network = Network(1)
    lives: int = 1
    pings: int = 1
    registrations: int = 2
    grants: int = 3
    grant_window: int = WINDOW
    epochs: int = 1
    host_lives: int = 1
    leaders: int = 1
    asks_travel: bool = False
    claims_age: bool = False
    roots: int = 0
    crashes: int = 0
    leader_crashes: int = 0
    timeouts: int = 0
    revoke_timeouts: int = 0
    grant_timeouts: int = 0
    pauses: int = 0
    leader_pauses: int = 0
    unsubscribes: int = 0
    script: tuple[str, ...] = ()
    page: int = 0
    lies: bool = False
    mutes: int = 0
    pretends: int = 0
    read_failures: int = 0
    restores: int = 0
    lost: int = 0
    store_failures: int = 0
    look_failures: int = 0
    silences: bool = False
    renews: bool = False
    idles: bool = False
    halts: int = 0
    late_timers: int = 0
