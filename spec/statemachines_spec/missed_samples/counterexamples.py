"""Counterexamples: where the source, word for word, loses samples, repeats them, or stalls."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.missed_samples.publisher import Beats
from statemachines_spec.explorer.system import System
from statemachines_spec.missed_samples.systems import SampleSetting, build


class SampleCounterexample(msgspec.Struct, frozen=True):
    """`about`: what goes wrong; `breaks`: the property, or (`live`) the obligation that is never met."""

    name: str
    about: str
    setting: SampleSetting
    breaks: str
    live: bool = False

    def system(self, variant: str = "as_written") -> System:
        """The system in a variant, and of what it promises the one thing that is to break."""
        made = build(self.name, self.about, self.setting, variant)
        return replace(
            made,
            properties=tuple(one for one in made.properties if one.name == self.breaks),
            obligations=tuple(one for one in made.obligations if one.name == self.breaks),
        )


AS_WRITTEN = (
    SampleCounterexample(
        "empty-answer",
        "a network that is coming back answers nothing: what the cache has is given up",
        SampleSetting(samples=3, depth=3, empty=1, ordered=True),
        "HASTY",
    ),
    SampleCounterexample(
        "lost-reply",
        "a reply is lost: what the cache has is given up",
        SampleSetting(samples=3, depth=3, reliable=False, lost_replies=1, ordered=True),
        "HASTY",
    ),
    SampleCounterexample(
        "early-end",
        "the end of a query overtakes its replies: they come too late",
        SampleSetting(samples=3, depth=3, reliable=False, early=1, ordered=True),
        "HASTY",
    ),
    SampleCounterexample(
        "loss-meanwhile",
        "a sample is lost after a query was answered, and before it ends: nobody asks for it",
        SampleSetting(samples=5, depth=5, ordered=True),
        "HASTY",
    ),
    SampleCounterexample(
        "older",
        "a sample is overtaken: it is taken for one that is ahead, and delivered after what came later",
        SampleSetting(samples=2, depth=2),
        "ORDER",
    ),
    SampleCounterexample(
        "asks-for-nothing",
        "a sample is overtaken: its subscriber asks, and nothing is missing",
        SampleSetting(samples=2, depth=2),
        "QUIET",
    ),
    SampleCounterexample(
        "never-ends",
        "a query never ends, and its source is waited for without end",
        SampleSetting(samples=3, depth=3, vanished=1, ordered=True),
        "LIVE",
        live=True,
    ),
    SampleCounterexample(
        "tail",
        "the last sample is lost: nothing that comes later shows it",
        SampleSetting(samples=2, depth=2, beats=Beats.PERIODIC, past=True, ordered=True),
        "TAIL",
        live=True,
    ),
    SampleCounterexample(
        "unbounded",
        "as much is held as comes while a query is open",
        SampleSetting(samples=4, depth=4, pending=1, ordered=True),
        "BOUND",
    ),
)
"""Found by exploring, shortest first; the shipped machines keep the promise in the same system."""
