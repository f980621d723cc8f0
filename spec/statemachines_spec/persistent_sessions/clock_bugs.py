"""Bugs of the time of a store: mistakes that can be planted in it.  No explored system has a clock that leaps; scenario
`leaping_clock` has one."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from statemachines.drivers.persistent_sessions import sql
from statemachines.persistent_sessions import store_time
from statemachines_spec.bug import Bug, replace_call, wrap_call


def without_lead(next_time: Any) -> Any:
    """What is kept of a leap is that ages stand still, and not how far it went."""
    return lambda known, clock_ns, expected_ns: replace(next_time(known, clock_ns, expected_ns), ahead_ns=0)


BUGS = (
    Bug("leap-is-believed", "a clock of the database that is set ahead counts at once", "PS-291",
        "the look at the steady clock", replace_call(store_time, "has_leapt", lambda shown_ns, expected_ns: False)),
    Bug("lead-is-forgotten", "how far a clock has leapt is not kept, so a clock that is accepted leaps again", "PS-293",
        "the lead", wrap_call(sql, "next_time", without_lead)),
)  # fmt: skip
"""Each with a sentence of its own."""
