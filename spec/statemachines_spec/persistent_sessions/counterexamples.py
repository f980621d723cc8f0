"""Counterexamples: where a rule of the source loses messages; and what the shipped machines are worth without what
they assume."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from statemachines.persistent_sessions.request import PutMarker, PutRows
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.systems import SessionSetting, build


class SessionCounterexample(msgspec.Struct, frozen=True):
    """`about`: what goes wrong; `breaks`: the property ("": nothing), by these `rules`."""

    name: str
    about: str
    setting: SessionSetting
    breaks: str
    rules: str = "settled"

    def system(self, variant: str = "") -> System:
        """The system in a variant ("": in the one that breaks); there, of what it promises, the one thing that is to
        break."""
        variant = variant or self.rules
        made = build(self.name, self.about, self.setting, variant)
        if not self.breaks or variant != self.rules:
            return made
        kept = tuple(one for one in made.properties if one.name == self.breaks)
        return replace(made, properties=kept, obligations=())


AS_WRITTEN = SessionCounterexample(
    "path-broken",
    "what was on a path that breaks is lost: nobody asks for it",
    SessionSetting(messages=(1,), lag=0, slow=(), breaks=1),
    "COMPLETE",
    rules="as_written",
)
"""The shipped machines keep the promise in the same system."""

ASSUMED = (
    SessionCounterexample(
        "subscription-late",
        "a writer shows its marker before it knows that the session is live: what it stores next is not sent live",
        SessionSetting(messages=(1,), lag=0, slow=(), spreads=False),
        "COMPLETE",
    ),
    SessionCounterexample(
        "step-cut",
        "a writer stores a row and does not send it, though it lives: nothing shows it until the next",
        SessionSetting(messages=(1,), lag=0, slow=(), halves=1),
        "COMPLETE",
    ),
)
"""Of the shipped machines, without what they assume: what breaks."""

NOT_NEEDED = (
    SessionCounterexample(
        "path-not-in-order",
        "live messages of a writer overtake each other: numbers show it",
        SessionSetting(messages=(3,), lag=0, ordered=False, places=3, markers=3, slow=()),
        "",
    ),
    SessionCounterexample(
        "replica-not-in-order",
        "entries of a writer appear in any order: rows are taken without a hole, and all below the marker",
        SessionSetting(messages=(2,), lag=3, appears=False, slow=(PutRows, PutMarker)),
        "",
    ),
)
"""Assumptions of the source that the shipped machines do not need: nothing breaks without them."""

ASIDE: dict[str, SessionCounterexample] = {one.name: one for one in (AS_WRITTEN, *ASSUMED, *NOT_NEEDED)}
"""All of them by their names: `gapless check persistent_sessions --system NAME`."""
