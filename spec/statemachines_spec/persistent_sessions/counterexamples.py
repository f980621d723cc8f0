"""Counterexamples: where the source, word for word, loses messages, repeats them or stalls; and what the shipped
machines are worth without what they assume."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from statemachines.persistent_sessions.request import PutMarker, PutRows
from statemachines_spec.explorer.system import System
from statemachines_spec.persistent_sessions.systems import SessionSetting, build
from statemachines_spec.persistent_sessions.takeover_systems import TakeoverSetting, taking, two


class SessionCounterexample(msgspec.Struct, frozen=True):
    """`about`: what goes wrong; `breaks`: the property, or (`live`) the obligation that is never met ("": nothing), by
    these `rules`."""

    name: str
    about: str
    setting: SessionSetting | TakeoverSetting
    breaks: str
    live: bool = False

    rules: str = "as_written"

    def system(self, variant: str = "") -> System:
        """The system in a variant ("": in the one that breaks); there, of what it promises, the one thing that is to
        break."""
        variant = variant or self.rules
        make: Any = taking if isinstance(self.setting, TakeoverSetting) else build
        made: System = make(self.name, self.about, self.setting, variant)
        if not self.breaks or variant != self.rules:
            return made
        return replace(
            made,
            properties=tuple(one for one in made.properties if one.name == self.breaks),
            obligations=tuple(one for one in made.obligations if one.name == self.breaks),
        )


AS_WRITTEN = (
    SessionCounterexample(
        "cut-by-id",
        "a row behind the marker has an older id: it is sent from the database, and again from the buffer",
        SessionSetting(messages=(2,), lag=0, slow=()),
        "TWICE",
    ),
    SessionCounterexample(
        "marks-not-visible",
        "a second resume does not see what was marked: it is sent again",
        SessionSetting(messages=(1,), lag=0, slow=(), owner_lives=2),
        "TWICE",
    ),
    SessionCounterexample(
        "path-broken",
        "what was on a path that breaks is lost, and what follows is sent without it",
        SessionSetting(messages=(2,), lag=0, slow=(), breaks=1),
        "GAP",
    ),
    SessionCounterexample(
        "marker-before-rows",
        "a replica shows the marker before a row that was stored before it",
        SessionSetting(messages=(2,), lag=2, slow=(), appears=False),
        "GAP",
    ),
    SessionCounterexample(
        "dead-writer",
        "a writer dies before it has shown its marker: it is waited for without end",
        SessionSetting(messages=(1,), lag=0, slow=(), writer_lives=2, repeats=True, lost=False),
        "ENDS",
        live=True,
    ),
    SessionCounterexample(
        "not-committed",
        "what is sent is committed nowhere: nobody answers for it when the owner dies",
        SessionSetting(messages=(1,), lag=0, slow=()),
        "UNCOMMITTED",
    ),
    SessionCounterexample(
        "state-dies-with-the-old",
        "an owner dies before it gives its state: what it had sent is marked, and nobody answers for it",
        TakeoverSetting(setting=two(messages=(1,)), dies=1),
        "COMPLETE",
    ),
    SessionCounterexample(
        "state-dies-with-the-taker",
        "a new owner dies with the state that it was given, and that is stored nowhere",
        TakeoverSetting(setting=two(messages=(1,)), lives=2),
        "COMPLETE",
    ),
    SessionCounterexample(
        "old-dies-between",
        "the owner of before dies between begin and end: it is waited for without end",
        TakeoverSetting(setting=two(messages=(1,)), dies=1),
        "ENDS",
        live=True,
    ),
)
"""Found by exploring, shortest first; the shipped machines keep the promise in the same system."""

ASSUMED = (
    SessionCounterexample(
        "subscription-late",
        "a writer shows its marker before it knows that the session is live: what it stores next is not sent live",
        SessionSetting(messages=(1,), lag=0, slow=(), spreads=False),
        "COMPLETE",
        rules="settled",
    ),
    SessionCounterexample(
        "step-cut",
        "a writer stores a row and does not send it, though it lives: nothing shows it until the next",
        SessionSetting(messages=(1,), lag=0, slow=(), halves=1),
        "COMPLETE",
        rules="settled",
    ),
)
"""Of the shipped machines, without what they assume: what breaks."""

NOT_NEEDED = (
    SessionCounterexample(
        "path-not-in-order",
        "live messages of a writer overtake each other: numbers show it",
        SessionSetting(messages=(3,), lag=0, ordered=False, places=3, markers=3, slow=()),
        "",
        rules="settled",
    ),
    SessionCounterexample(
        "replica-not-in-order",
        "entries of a writer appear in any order: rows are taken without a hole, and all below the marker",
        SessionSetting(messages=(2,), lag=3, appears=False, slow=(PutRows, PutMarker)),
        "",
        rules="settled",
    ),
)
"""Assumptions of the source that the shipped machines do not need: nothing breaks without them."""

ASIDE: dict[str, SessionCounterexample] = {one.name: one for one in (*AS_WRITTEN, *ASSUMED, *NOT_NEEDED)}
"""All of them by their names: `gapless check persistent_sessions --system NAME`."""
