"""Hunts: where mistakes are looked for: every system for what breaks, small ones for what is never met, and
single machines among everything that may be said to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec.structs import replace

from statemachines.kernel import Fsm
from statemachines.missed_samples.cache import CACHE, CacheRecord
from statemachines.missed_samples.publisher import PUBLISHER, Beats, PublisherRecord
from statemachines.missed_samples.subscriber import SUBSCRIBER
from statemachines.missed_samples.subscriber_record import SubscriberRecord
from statemachines_spec.explorer.property import Eventually, Stepwise
from statemachines_spec.explorer.system import System
from statemachines_spec.hunt import Hunt
from statemachines_spec.missed_samples import cache_contract, publisher_contract, subscriber_contract
from statemachines_spec.missed_samples.systems import SYSTEMS, Setting, build, system

LAST = ("unreliable", "continued")
"""The largest come last."""

AT_LAST = ("crowded", "early-end", "two-deep", "elsewhere", "heartbeats", "short-history", "two-sources")
"""Systems whose obligations are judged, too."""

PROMISED = ("two-deep", "short-history", "turn-history", "two-sources")
"""Systems in which the invariants of the machines are judged, too."""

BEATS = {
    "a heartbeat each period": (
        "heartbeats alone tell of the last sample, and nothing else goes wrong",
        Setting(samples=2, depth=2, beats=Beats.PERIODIC, past=True, in_flight=1, shows=("recovered",)),
    ),
    "a heartbeat after each change": (
        "the one sample there is is lost, and a heartbeat tells of it",
        Setting(samples=1, depth=1, beats=Beats.SPORADIC, past=True, in_flight=1, shows=("asked for",)),
    ),
}
"""Small enough for obligations to be judged of each mutant, and with no other way to learn of a loss."""


MACHINES: dict[type[Any], Fsm[Any]] = {PublisherRecord: PUBLISHER, CacheRecord: CACHE, SubscriberRecord: SUBSCRIBER}


def _keeps_its_promises(actor: str, before: Any, event: Any, after: Any) -> bool:
    record = getattr(getattr(after, "party", None), "record", None)
    fsm = MACHINES.get(type(record))
    return fsm is None or all(one.holds(record) for one in fsm.invariants)


PROMISES = Stepwise("PROMISES", "the machines keep what they promise of themselves", _keeps_its_promises)


def _with_promises(make: Callable[[], System]) -> System:
    made = make()
    return replace(made, properties=(*made.properties, PROMISES))


def _declared(made: System) -> tuple[Eventually, ...]:
    return made.obligations


HUNTS = (
    *(Hunt(name, SYSTEMS[name][0], partial(system, name)) for name in SYSTEMS if name not in LAST),
    *(Hunt(f"{name} at last", SYSTEMS[name][0], partial(system, name), _declared) for name in AT_LAST),
    *(Hunt(name, SYSTEMS[name][0], partial(system, name)) for name in LAST),
    *(Hunt(name, about, partial(build, name, about, one), _declared) for name, (about, one) in BEATS.items()),
    *(Hunt(name, about, partial(_with_promises, partial(part.build, name)))
      for part in (publisher_contract, cache_contract, subscriber_contract)
      for name, about in part.ABOUT.items()),
    *(Hunt(f"{name}, promises", SYSTEMS[name][0], partial(_with_promises, partial(system, name))) for name in PROMISED),
)  # fmt: skip
