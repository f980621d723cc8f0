"""Systems: the closed systems of shared subscriptions that `gapless check` explores, in three sizes each.

Every system is a `Setting`: how many of what, and which faults how often.  Faults that a system does not name do not
happen in it; `gapless check` prints all of it beside the verdict.
"""

from __future__ import annotations

from typing import Any

import msgspec

from statemachines.kernel import ConfigurationError, Event
from statemachines.shared_subscriptions.assignment import GrantTimeout, RevokeTimeout
from statemachines.shared_subscriptions.borrower import OnUnsubscribe, PingTimeout
from statemachines.shared_subscriptions.claim import Halt
from statemachines.shared_subscriptions.group_store import GroupStore
from statemachines.shared_subscriptions.member import ExpiryTimer
from statemachines.shared_subscriptions.stream_store import StreamStore
from statemachines_spec.explorer.actor import Crash, Pause
from statemachines_spec.explorer.network import Network
from statemachines_spec.explorer.party import LateFiring
from statemachines_spec.explorer.property import Eventually, Property
from statemachines_spec.explorer.system import Budget, System
from statemachines_spec.shared_subscriptions import (
    agreement,
    claims,
    deliveries,
    leader_belief,
    properties,
    quiescent_properties,
    stores,
    succession,
    witness_consumer,
)
from statemachines_spec.shared_subscriptions.agreement import DUE
from statemachines_spec.shared_subscriptions.consumer import (
    ByzantineConsumer,
    Consumer,
    ReadingConsumer,
    SilentConsumer,
)
from statemachines_spec.shared_subscriptions.delivery_systems import SYSTEMS as DELIVERING
from statemachines_spec.shared_subscriptions.delivery_systems import acknowledging, with_sessions
from statemachines_spec.shared_subscriptions.leader_host import QUIET_TIMERS, LeaderHost, Lose, losing
from statemachines_spec.shared_subscriptions.orders import ORDERS, is_kept
from statemachines_spec.shared_subscriptions.script import WINDOW, GroupSetting
from statemachines_spec.shared_subscriptions.stores import (
    DROPPED,
    OPEN,
    REFUSED,
    SILENT,
    Fail,
    FailingStore,
    Restore,
    RestoredStore,
    Store,
    StoreFailure,
    make_declared_store,
    streams,
)
from statemachines_spec.shared_subscriptions.succession import CandidateHost
from statemachines_spec.shared_subscriptions.variants import borrower, configuration
from statemachines_spec.shared_subscriptions.witness_consumer import Failing, Lie, Pretender, WitnessedConsumer

SIZES = ("small", "ci", "large")

FAULTS: dict[str, tuple[str, str, type[Event]]] = {
    "crashes": ("crash of a consumer", "consumer", Crash),
    "leader_crashes": ("crash of a leader host", "leader", Crash),
    "timeouts": ("ping timeout or expiry", "", PingTimeout),
    "revoke_timeouts": ("revoke timeout", "leader", RevokeTimeout),
    "grant_timeouts": ("grant timeout", "leader", GrantTimeout),
    "pauses": ("pause of a consumer", "consumer", Pause),
    "leader_pauses": ("pause of a leader host", "leader", Pause),
    "unsubscribes": ("unsubscribe", "consumer", OnUnsubscribe),
    "store_failures": ("request that a store fails", "", Fail),
    "look_failures": ("request that the stream store fails", "stream_store", Fail),
    "halts": ("orderly stop of a leader", "leader", Halt),
    "late_timers": ("firing of a timer that was taken back", "", LateFiring),
    "pretends": ("lie of somebody who says that it leads", "consumer", Lie),
    "read_failures": ("read of the claim that fails", "consumer", Failing),
    "restores": ("group store that is put back", "group_store", Restore),
    "lost": ("message that is lost", "leader", Lose),
}
"""Field of a setting -> what is printed, whom it happens to, the event."""

REQUESTS_TO_LEAD = 4
"""A candidate reads the claim, takes it, reads the root and the progress."""

NEWER = (
    "grant_timeouts", "store_failures", "look_failures", "halts", "late_timers",
    "pretends", "read_failures", "restores", "lost",
)  # fmt: skip
"""Faults that are named only in systems that have them."""


def system(name: str, size: str = "ci", variant: str = "settled", without: tuple[str, ...] = ()) -> System:
    """The system of that name; `without` these deadline orders.  Raises `ConfigurationError` for unknown names."""
    if name not in SYSTEMS:
        raise ConfigurationError("system", name, f"unknown; there are: {', '.join(SYSTEMS)}")
    about, sizes = SYSTEMS[name]
    if size not in SIZES:
        raise ConfigurationError("size", size, f"unknown; there are: {', '.join(SIZES)}")
    for order in without:
        if order not in (known := [order.name for order in ORDERS]):
            raise ConfigurationError("deadline order", order, f"unknown; there are: {', '.join(known)}")
    if name == succession.NAME:
        made = succession.system(size, variant, without)
    else:
        made = build(name, about, msgspec.structs.replace(GroupSetting(), **sizes[size]), variant, without)
    arguments: dict[str, Any] = {"name": name, "size": size, "variant": variant}
    if without:
        arguments["without"] = without
    return msgspec.structs.replace(made, origin=(f"{__name__}:system", arguments))


def obligations_of(made: System) -> tuple[Eventually, ...]:
    """What must be met sooner or later in a system of these actors."""
    candidates = tuple(actor.name for actor in made.actors if isinstance(actor, CandidateHost))
    if candidates:
        return (properties.make_elected(candidates),)
    consumers = tuple(actor for actor in made.actors if isinstance(actor, Consumer))
    hosts = tuple(actor.name for actor in made.actors if isinstance(actor, LeaderHost))
    obligations = properties.obligations([one.name for one in consumers], hosts)
    answered = agreement.make_granting_ends(hosts) if any(isinstance(one, SilentConsumer) for one in consumers) else ()
    return (*obligations, *answered, *quiescent_properties.obligations(consumers, hosts), *acknowledging(made))


def build(
    name: str, about: str, setting: GroupSetting, variant: str = "settled", without: tuple[str, ...] = ()
) -> System:
    """A closed system by its setting."""
    topics = tuple("abcdefgh"[: setting.topics])
    held = tuple(f"0.0/{topic}" for topic in topics)
    held = tuple(dict.fromkeys((*held, *deliveries.streams_of(topics, setting.script))))
    consumers = tuple(_consumer(number, setting, variant) for number in range(setting.consumers))
    hosts = tuple(_host(number, setting, variant) for number in range(setting.hosts))
    names, leaders = tuple(one.name for one in consumers), tuple(one.name for one in hosts)
    made = System(
        name,
        about,
        (*consumers, *hosts, *_stores(setting, variant, topics), *((Pretender(),) if setting.pretends else ())),
        setting.network,
        (
            properties.exclusive(names, held),
            *((properties.one_leader(leaders),) if setting.hosts > 1 else ()),
            *properties.sometimes_served(names[setting.mutes :], held),
            *(deliveries.in_generations(leaders, held) if setting.script else ()),
            *(claims.knows_store(leaders) if setting.epochs > 1 else ()),
            *((claims.goes_on(leaders),) if setting.epochs > 1 else ()),
            *(claims.doubts(leaders) if setting.store_failures else ()),
            *(deliveries.make_vanished(leaders) if "drop" in setting.script else ()),
            *(leader_belief.believes(leaders, held) if setting.script or setting.lies else ()),
            *((leader_belief.make_refusal(leaders),) if setting.lies else ()),
            *((agreement.gives_up(leaders),) if setting.mutes else ()),
            *(agreement.within_window(leaders, setting.grant_window) if setting.grant_window < WINDOW else ()),
            *(witness_consumer.believes(names[:1]) if _is_witnessed(setting) else ()),
            quiescent_properties.make_balanced(leaders),
            quiescent_properties.at_rest(leaders),
            *_resets(setting, consumers),
            *(_known_to_both(consumers, hosts, held, setting.mutes) if variant == "settled" else ()),
            *properties.STEPWISE,
        ),
        tuple(_budget(field, setting) for field in FAULTS if field not in NEWER or getattr(setting, field)),
        tuple(order for order in ORDERS if order.name not in without and is_kept(order, configuration(variant))),
        _bounds(setting, variant),
    )
    if setting.restores:
        made = msgspec.structs.replace(made, properties=stores.keep_unbroken(made.properties))
    if setting.lost:
        made = losing(made)
    return with_sessions(made, setting, variant) if setting.sessions else made


def _stores(setting: GroupSetting, variant: str, topics: tuple[str, ...]) -> tuple[Store, Store]:
    at_once = not setting.asks_travel
    group: dict[str, Any] = {
        "at_once": at_once,
        "state": make_declared_store(configuration(variant)),
        "roots": setting.roots,
    }
    # What a script rotates has ended before: its readers say so whenever they have read it.
    held = streams(topics, max(1, setting.offsets), ended=bool(setting.script))
    script = stores.script(setting.script)
    messages: dict[str, Any] = {"at_once": at_once, "state": held, "script": script, "page": setting.page}
    if setting.restores:
        group["state"] = stores.release_claim(group["state"], stores.FIRST)
        return RestoredStore(GroupStore(), **group), Store(StreamStore(1), **messages)
    if setting.look_failures:
        return Store(GroupStore(), **group), FailingStore(StreamStore(1), hows=(REFUSED,), **messages)
    if not setting.store_failures:
        return Store(GroupStore(), **group), Store(StreamStore(1), **messages)
    hows = _hows(setting)
    unread = tuple(how for how in hows if how in (REFUSED, DROPPED))  # what is only read is carried out in no other way
    failing = FailingStore(GroupStore(), hows=hows, chain=REQUESTS_TO_LEAD if at_once else 1, **group)
    return failing, FailingStore(StreamStore(1), hows=unread, **messages)


def _resets(setting: GroupSetting, consumers: tuple[Consumer, ...]) -> tuple[Property, ...]:
    """L8: not where consumers leave, which looks like a reset, nor where they lie, and are kicked for it: of a stream
    that a script begins before it rotates readers may say too soon that it has ended."""
    early = bool(setting.script) and setting.script[0] != "rotate"
    if setting.unsubscribes or setting.lies or early:
        return ()
    ends = setting.epochs * setting.consumers if setting.claims_age else 0
    faults = setting.timeouts + setting.revoke_timeouts + setting.grant_timeouts + setting.pauses + setting.late_timers
    always, sometimes = quiescent_properties.resets_bounded(consumers, faults + ends)
    return (always, sometimes) if faults else (always,)


def _hows(setting: GroupSetting) -> tuple[StoreFailure, ...]:
    return (REFUSED, OPEN, *((DROPPED, SILENT) if setting.silences else ()))


def _known_to_both(
    consumers: tuple[Consumer, ...], hosts: tuple[LeaderHost, ...], streams: tuple[str, ...], mutes: int
) -> tuple[Property, ...]:
    """S10, S11, L10, L11; the unsafe variants, which break S5, break S10 a few steps earlier.  The mute never agree."""
    names, leaders = [one.name for one in consumers], [one.name for one in hosts]
    return (
        *agreement.agreement(consumers, hosts, streams),
        agreement.make_agreement(consumers[mutes:], hosts, streams),
        agreement.deadlines(leaders),
        agreement.waits_no_longer(leaders),
        agreement.timers_bounded(names, leaders),
        agreement.make_other_timer(leaders),
        agreement.LET_GO,
    )


def _consumer(number: int, setting: GroupSetting, variant: str) -> Consumer:
    faults = (
        *((Crash,) if setting.crashes else ()),
        *((Pause,) if setting.pauses else ()),
        *((OnUnsubscribe,) if setting.unsubscribes else ()),
    )
    if _is_witnessed(setting) and not number:
        return _witnessed(setting, variant, faults)
    kind = (
        SilentConsumer
        if number < setting.mutes
        else ReadingConsumer
        if setting.script
        else ByzantineConsumer
        if setting.lies
        else Consumer
    )
    return kind(
        f"consumer-{number + 1}",
        configuration(variant),
        fsm=borrower(variant),
        registry=f"leader-{number % setting.hosts + 1}",
        lives=setting.lives,
        pings=setting.pings,
        offsets=setting.offsets,
        faults=faults,
        silent=("ping",) if setting.pings == 1 else (),
        late=setting.late_timers > 0,
    )


def _is_witnessed(setting: GroupSetting) -> bool:
    """Whether consumer-1 hears by its witness."""
    return setting.pretends > 0 or setting.restores > 0


def _witnessed(setting: GroupSetting, variant: str, faults: tuple[type[Event], ...]) -> WitnessedConsumer:
    return WitnessedConsumer(
        "consumer-1",
        configuration(variant),
        lies=setting.epochs + 1 if setting.pretends else 0,
        fails=setting.read_failures > 0,
        fsm=borrower(variant),
        lives=setting.lives,
        pings=setting.pings,
        offsets=setting.offsets,
        faults=faults,
        silent=("ping",) if setting.pings == 1 else (),
    )


def _host(number: int, setting: GroupSetting, variant: str) -> LeaderHost:
    faults = (
        *((Crash,) if setting.leader_crashes else ()),
        *((Pause,) if setting.leader_pauses else ()),
        *((Halt,) if setting.halts else ()),
    )
    failing = setting.store_failures + setting.look_failures > 0
    fires = {
        "claim_end": setting.claims_age and not setting.renews,
        "commit": setting.roots > 0,
        "idle": setting.idles,
        # A request that is never answered keeps numbers from beginning anew, and listings would count on for ever.
        "renew": (failing and not setting.silences) or bool(setting.script),
        "recheck": failing,
        "heartbeat": failing,
        "measure": setting.look_failures > 0,
        "grant_timeout": setting.grant_timeouts > 0,
    }
    silent = [timer for timer in QUIET_TIMERS if not fires.get(timer, False)]
    return LeaderHost(
        f"leader-{number + 1}",
        msgspec.structs.replace(configuration(variant), grant_window=setting.grant_window),
        at_once=not setting.asks_travel,
        lives=setting.host_lives,
        leaders=setting.leaders,
        registrations=setting.registrations,
        grants=setting.grants,
        epochs=setting.epochs,
        faults=faults,
        silent=tuple(silent),
        late=setting.late_timers > 0,
        ages=setting.claims_age,
        by_name=_is_witnessed(setting),
    )


def _budget(field: str, setting: GroupSetting) -> Budget:
    text, whom, kind = FAULTS[field]
    kinds: tuple[type[Event], ...] = (kind, ExpiryTimer) if kind is PingTimeout else (kind,)
    due = DUE if kind in (PingTimeout, RevokeTimeout) else None
    if kind is GrantTimeout:
        due = agreement.make_due(tuple(f"consumer-{number + 1}" for number in range(setting.mutes)))
    limit = getattr(setting, field)
    return Budget(text, limit, lambda actor, event: actor.startswith(whom) and type(event) in kinds, due)


def _bounds(setting: GroupSetting, variant: str) -> dict[str, str]:
    return {
        "variant": variant,
        "streams": f"{setting.topics}, {setting.offsets} messages acknowledged one by one in each",
        "borrowers": f"{setting.lives} for each consumer, {setting.pings} pings each",
        "leaders": f"{setting.registrations} registrations and {setting.grants} grants in an epoch, "
        f"{setting.epochs} epochs; {setting.leaders} in each of {setting.host_lives} lives of a host",
        "stores": "requests and answers travel" if setting.asks_travel else "answer within the step that asks",
        "commits": f"{setting.roots} batches after a claim was taken",
        **_bounds_of_stores(setting),
    }


def _bounds_of_stores(setting: GroupSetting) -> dict[str, str]:
    """What only some systems have."""
    lines = {}
    if setting.script:
        ends = "streams of the first generation end whenever they have been read"
        lines["environment"] = f"in this order: {', '.join(setting.script)}; {ends}"
    if setting.lies:
        lines["lies"] = "a consumer reports more than a stream has, or its end, whenever it likes"
    if setting.mutes:
        lines["silence"] = f"{setting.mutes} of the consumers answer no grant"
    if setting.grant_window < WINDOW:
        lines["window"] = f"{setting.grant_window} unanswered grants of a member"
    if _is_witnessed(setting):
        lines["witness"] = "of consumer-1 alone; reads of the claim are done, and arrive, at any time, or never"
    if setting.pretends:
        lines["lies"] = f"under epochs up to {setting.epochs + 1}, by the pair that the borrower goes by"
    if setting.page:
        lines["listings"] = f"{setting.page} streams in a page"
    if setting.look_failures:
        lines["failures"] = f"of the stream store alone: {REFUSED.value}"
    if setting.store_failures:
        lines["failures"] = ", or ".join(how.value for how in _hows(setting))
    if setting.renews:
        lines["renewals"] = "in time, as long as the leader's host lives"
    return lines


def _sizes(small: dict[str, Any], ci: dict[str, Any], large: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {"small": small, "ci": small | ci, "large": small | ci | large}


SYSTEMS: dict[str, tuple[str, dict[str, dict[str, Any]]]] = {
    "late-copies": (
        "no faults but those of the network: copies of old messages come late",
        _sizes({"network": Network(2)}, {"network": Network(3), "topics": 2}, {"pings": 2, "offsets": 1}),
    ),
    "borrower-crash": (
        "a consumer crashes; its streams are handed over when its lease has ended",
        _sizes({"crashes": 1, "timeouts": 1}, {"network": Network(2), "pings": 2, "offsets": 1}, {"topics": 2}),
    ),
    "false-timeouts": (
        "pings and borrowers are given up although nobody is dead",
        _sizes({"timeouts": 1, "lives": 2, "registrations": 3}, {"network": Network(2), "timeouts": 2}, {"pings": 2}),
    ),
    "pause": (
        "a consumer stands still until its lease, and everything else, has passed",
        _sizes({"pauses": 1, "timeouts": 1}, {"network": Network(2), "pings": 2}, {"topics": 2}),
    ),
    "unsubscribe": (
        "a consumer unsubscribes while it holds streams",
        _sizes({"unsubscribes": 1, "offsets": 1}, {"network": Network(2), "pings": 2, "offsets": 2}, {"topics": 2}),
    ),
    "old-answers": (
        "answers to pings come twice, and late: one to an earlier ping says nothing of the last one",
        _sizes(
            {"consumers": 1, "pings": 2, "offsets": 1, "network": Network(2)},
            {"consumers": 2, "timeouts": 1, "offsets": 0},
            {"pings": 3},
        ),
    ),
    "revoke-timeout": (
        "a borrower does not finish a revoke in time",
        _sizes(
            {"revoke_timeouts": 1},
            {"network": Network(2), "topics": 2, "pings": 2},
            {"lives": 2, "registrations": 3},
        ),
    ),
    "leader-crash": (
        "a leader host crashes; the next leader waits until every lease from before has ended",
        _sizes(
            {"leader_crashes": 1, "host_lives": 2, "epochs": 2, "claims_age": True, "lives": 2, "grants": 2},
            {"network": Network(2), "roots": 1, "offsets": 1},
            {"registrations": 3},
        ),
    ),
    "two-leaders": (
        "two hosts race for the claim; one of them may stand still past its end",
        _sizes(
            {
                "hosts": 2, "leader_pauses": 1, "epochs": 2, "claims_age": True, "asks_travel": True, "grants": 1,
                "network": Network(1),
            },
            {"network": Network(2), "roots": 1, "offsets": 1},
            {"network": Network(3), "lives": 2},
        ),
    ),
    "fail-over": (
        "a leader host crashes, and only then its claim ends; somebody leads again",
        _sizes(
            {
                "leader_crashes": 1, "host_lives": 2, "epochs": 2, "claims_age": True, "renews": True, "consumers": 1,
                "timeouts": 1, "lives": 3, "registrations": 3,
            },
            {"network": Network(2), "pings": 2},
            {"consumers": 2, "registrations": 4, "grants": 4},
        ),
    ),
    "rebalance": (
        "members join, and streams are taken back until everybody has as many",
        _sizes(
            {"topics": 2, "grants": 4, "network": Network(1, ordered=True)},
            {"topics": 3, "grants": 6, "network": Network(2)},
            {"offsets": 1},
        ),
    ),
    "generations": (
        "the store begins a new generation of streams; those of the one before have to be read to their end first",
        _sizes(
            {"script": ("rotate", "a"), "grants": 4},
            {
                "script": ("A", "rotate", "a"), "topics": 2, "page": 1, "asks_travel": True, "consumers": 1,
                "network": Network(2),
            },
            {"consumers": 2},
        ),
    ),
    "lies": (
        "consumers report progress beyond what is stored, and the end of streams that go on",
        _sizes(
            {"lies": True, "lives": 2, "registrations": 3, "roots": 1, "consumers": 1},
            {"consumers": 2, "offsets": 1, "grants": 4},
            {"network": Network(2)},
        ),
    ),
    "two-lies": (
        "a consumer lies about two streams; the store fails to say how far they go, and then judges both at once",
        _sizes(
            {
                "consumers": 1, "lies": True, "topics": 2, "look_failures": 1, "lives": 2, "registrations": 2,
                "grants": 4,
            },
            {"offsets": 1, "grants": 5},
            {"consumers": 2, "grants": 6},
        ),
    ),
    "unanswered": (
        "a member never answers a grant, whatever else it says; its stream goes to others when its lease has ended",
        _sizes(
            {"mutes": 1, "grant_timeouts": 1, "lives": 2, "registrations": 3},
            {"network": Network(2), "grant_timeouts": 2, "grants": 4},
            {"topics": 2},
        ),
    ),
    "grant-window": (
        "a member has one unanswered grant at a time; the other streams wait for their turn",
        _sizes(
            {"topics": 2, "grant_window": 1},
            {"topics": 3, "grants": 4},
            {"network": Network(2)},
        ),
    ),
    "pretender": (
        "somebody says that it leads, whom the claim does not name; a consumer hears by its witness",
        _sizes(
            {"pretends": 1},
            {"pretends": 2, "read_failures": 1},
            {"network": Network(2), "timeouts": 1, "lives": 2, "registrations": 3},
        ),
    ),
    "pretended-epochs": (
        "the same while leaders follow each other, and what was read of the claim may be out of date",
        _sizes(
            {
                "pretends": 1, "consumers": 1, "leader_crashes": 1, "host_lives": 2, "epochs": 2, "claims_age": True,
                "lives": 2, "grants": 2,
            },
            {"pretends": 2, "read_failures": 1},
            {"network": Network(2), "lives": 3, "registrations": 3},
        ),
    ),
    "restored-claim": (
        "a group store is put back: epochs begin anew below, or come twice; nobody waits for those of before",
        _sizes(
            {
                "consumers": 1, "restores": 1, "leader_crashes": 1, "host_lives": 2, "epochs": 2, "claims_age": True,
                "lives": 3, "registrations": 2, "grants": 1,
            },
            {"pretends": 1},
            {"read_failures": 1, "registrations": 3, "grants": 2},
        ),
    ),
    "vanished": (
        "the store drops a generation while its streams are being read",
        _sizes(
            {"script": ("rotate", "a", "drop"), "grants": 4, "consumers": 1},
            {"consumers": 2, "network": Network(2)},
            {"topics": 2},
        ),
    ),
    "idle-stop": (
        "a leader that nobody needs gives its claim up, and the next one begins at once",
        _sizes(
            {"idles": True, "unsubscribes": 1, "roots": 2, "epochs": 2, "leaders": 2, "offsets": 1},
            {"network": Network(2)},
            {"unsubscribes": 2, "consumers": 3},
        ),
    ),
    "store-failures": (
        "a store fails: a request is not carried out, or it is and nobody knows",
        _sizes(
            {
                "store_failures": 1, "claims_age": True, "consumers": 1, "offsets": 1, "roots": 2, "epochs": 2,
                "leaders": 2, "lives": 2,
            },
            {"silences": True, "network": Network(2)},
            {"store_failures": 2},
        ),
    ),
    "late-timers": (
        "timers that were taken back fire all the same, as they may over the queue of a real event loop",
        _sizes({"late_timers": 1}, {"network": Network(2), "pings": 2, "offsets": 1}, {"topics": 2}),
    ),
    "reordering": (
        "a network that loses and doubles nothing, but hands over in any order",
        _sizes(
            {"network": Network(3, lossy=False, duplicating=False)},
            {"network": Network(5, lossy=False, duplicating=False), "topics": 2, "pings": 2},
            {"offsets": 1},
        ),
    ),
    succession.NAME: (succession.ABOUT, succession.SIZES),
    **{name: (about, _sizes(*sizes)) for name, (about, sizes) in DELIVERING.items()},
}  # fmt: skip
"""Name -> (about, size -> what differs from the default setting; for `election`, from its own)."""
