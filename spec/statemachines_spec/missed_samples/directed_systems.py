"""Directed systems: where mistakes are looked for: every system for what breaks, small ones for what is never met, and
single machines among everything that may be said to them."""

from __future__ import annotations

from functools import partial

from statemachines.missed_samples.publisher import Beats
from statemachines_spec.directed_system import DirectedSystem
from statemachines_spec.explorer.property import Eventually
from statemachines_spec.explorer.system import System
from statemachines_spec.missed_samples import cache_contract, publisher_contract, subscriber_contract
from statemachines_spec.missed_samples.systems import SYSTEMS, SampleSetting, build, system

LAST = ("unreliable", "continued")
"""The largest come last."""

AT_LAST = ("crowded", "early-end", "two-deep", "elsewhere", "heartbeats", "short-history", "two-sources")
"""Systems whose obligations are judged, too."""

BEATS = {
    "a heartbeat each period": (
        "heartbeats alone tell of the last sample, and nothing else goes wrong",
        SampleSetting(samples=2, depth=2, beats=Beats.PERIODIC, past=True, in_flight=1, shows=("recovered",)),
    ),
    "a heartbeat after each change": (
        "the one sample there is is lost, and a heartbeat tells of it",
        SampleSetting(samples=1, depth=1, beats=Beats.SPORADIC, past=True, in_flight=1, shows=("asked for",)),
    ),
}
"""Small enough for obligations to be judged of each mutant, and with no other way to learn of a loss."""


def _declared(made: System) -> tuple[Eventually, ...]:
    return made.obligations


DIRECTED_SYSTEMS = (
    *(DirectedSystem(name, SYSTEMS[name][0], partial(system, name)) for name in SYSTEMS if name not in LAST),
    *(DirectedSystem(f"{name} at last", SYSTEMS[name][0], partial(system, name), _declared) for name in AT_LAST),
    *(DirectedSystem(name, SYSTEMS[name][0], partial(system, name)) for name in LAST),
    *(DirectedSystem(name, about, partial(build, name, about, one), _declared) for name, (about, one) in BEATS.items()),
    *(DirectedSystem(name, about, partial(part.build, name))
      for part in (publisher_contract, cache_contract, subscriber_contract)
      for name, about in part.ABOUT.items()),
)  # fmt: skip
