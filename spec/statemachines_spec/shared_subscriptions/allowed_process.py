"""Mutants of the process rows of shared subscriptions that change nothing a clause speaks of."""

from __future__ import annotations

from typing import Final

from statemachines_spec.protocol import AllowedMutants

ALLOWED: Final = (
    AllowedMutants(
        ("agent/*/to-open", "handler/*/to-open"),
        "SS-170",
        "a session has one state, and entering it sets no timer",
    ),
    AllowedMutants(
        ("agent/0/after-1", "handler/0/after-1", "handler/23/after-24"),
        "SS-174",
        "a malformed subscribe of a session that is full is refused for either reason",
    ),
    AllowedMutants(
        ("agent/11/after-12", "handler/11/after-12"),
        "SS-276",
        "a message is a connect response that was relayed or a direct ping response, never both",
    ),
    AllowedMutants(
        ("registry/1/after-2", "registry/2/after-3", "registry/4/after-5"),
        "SS-220",
        "a message asks for a leader, or speaks to one that is gone, never both; a leader that is there has names that "
        "are well formed",
    ),
    AllowedMutants(
        ("registry/3/to-open", "registry/3/to-closing"),
        "SS-223",
        "the row refuses what was said, so that no state is entered",
    ),
    AllowedMutants(
        ("registry/4/to-open",),
        "SS-220",
        "the host stays open either way, and entering the state sets no timer",
    ),
    AllowedMutants(
        ("registry/8/to-open", "registry/9/to-open"),
        "SS-224",
        "a host that ends has halted its leaders, and a leader that was halted answers nothing",
    ),
    AllowedMutants(
        ("registry/14/unguarded",),
        "SS-281",
        "each time that is set ends once; the next one is set by a leader that led after that, so that only a firing "
        "which comes later still finds nothing to let go",
    ),
)
