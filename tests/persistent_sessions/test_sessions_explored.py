"""Persistent sessions explored: every interleaving of a few messages, writers, owners, faults and timers.

After a change of a table or a record: gapless check --certificates --stale --renew
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from long_cases import mark_long

from statemachines_spec import certificates
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import COMPLETE, FULL, explore
from statemachines_spec.liveness.judge import live
from statemachines_spec.persistent_sessions.directed_systems import CONTRACTS, SYSTEMS, system

FOLDER = Path(__file__).parents[2] / "spec" / "persistent_sessions"
LARGE = ("lag", "resumes", "second", "writer-crash", "slow-reads", "slow-fence", "writer-begins", "leaving",
         "fence-and-break", "overdue", "wider", "collected", "collected-unclear", "clean-start", "old-silent",
         "taker-dies", "taken-in-turn", "taken-at-once", "taken-bounded", "taken-writer-dies",
         "old-lies-of-epochs", "crowded", "crowded-and-fenced", "aging-exactly-once", "collected-aging")  # fmt: skip
"""Obligations of these are judged by `gapless check persistent_sessions --liveness`."""
WHOLE_MAX, QUICK_MAX, BEGINNING = 20_000, 750, 150
"""States: what no test explores to its end, unless it owes something; what `make test` explores so; what is larger is
explored so far.  A change of the code that a certificate rests on makes it stale, whatever its size."""


@cache
def certificate(name):
    return certificates.read(FOLDER / "certificates" / f"{name}-small.json")


@cache
def judged_whole(name):
    """What exploring a system to its end comes to, and its obligations (of a `LARGE` one: none), over one tabulation:
    that is most of the time."""
    made = certificates.system_of(certificate(name))
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    owed = () if name in LARGE else made.obligations
    return result, live(made, owed, engine="plain", entries=entries) if owed else []


WHOLE = [name for name in SYSTEMS if name not in LARGE or certificate(name).states <= WHOLE_MAX]
OWES = ("taken-one-at-a-time", "moving-and-open")
"""The smallest systems with ORPHAN, TAKES and WRITES of a second writer among their obligations."""
LONG = [name for name in WHOLE if certificate(name).states > QUICK_MAX and name not in OWES]
"""`make soak` explores these to their ends; their beginnings are explored with those of the large ones."""


@pytest.mark.parametrize("name", mark_long(WHOLE, *LONG))
def test_a_certificate_is_what_exploring_again_comes_to(name):
    """GAP, COMPLETE, TWICE, UNCOMMITTED, UNSTORED, MAXIMUM, STRANGER, CUT, KEPT, LIFE, NORMAL, SPLIT, WAITS,
    REDELIVERED, ROOM, LOST, ALONE, OTHERS, DECLARED and INORDER hold, and what must happen does."""
    kept = certificate(name)
    assert (kept.system, kept.size, kept.variant) == (name, "small", "settled")
    result, _ = judged_whole(name)
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert (result.states, result.transitions) == (kept.states, kept.transitions)


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in WHOLE or name in LONG])
def test_a_large_certificate_begins_as_exploring_again_does(name):
    """`gapless check persistent_sessions --certify`, and the soak, explore them to their ends."""
    kept = certificate(name)
    result = explore(certificates.system_of(kept), engine="plain", hashing=False, states_max=BEGINNING)
    assert (result.ended, result.is_held) == (FULL, True)
    levels = result.levels[:-1]  # the last of them is cut
    assert levels == kept.levels[: len(levels)]
    assert sum(levels) >= BEGINNING / 15


TOLD = [name for contract in CONTRACTS for name in contract.SYSTEMS]
OWING = [name for name in SYSTEMS if name not in (*LARGE, *TOLD)]


@pytest.mark.parametrize("name", mark_long(OWING, *(name for name in LONG if name in OWING)))
def test_ENDS_TAKES_ORPHAN_VANISH_FORGETS_CONNECTS_MET_what_must_be_met_is_met_once_faults_stop(name):
    """COMMITS, CLOSES, REPLACED, TELLS, REFUSES, BROUGHT and SETTLES are among them."""
    _, judged = judged_whole(name)
    assert [(one.name, one.is_held) for one in judged] == [(one.name, True) for one in system(name).obligations]
    assert judged or name == "time-stands-still", "it ends where its last instant has come"
    at_once = ("absent", "time-stands-still", "fenced-beside", "node-asks-twice")
    assert name in at_once or sum(one.open_states for one in judged), "something was open"
