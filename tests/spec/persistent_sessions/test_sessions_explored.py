"""Persistent sessions explored: every interleaving of a few messages, writers, owners, faults and timers.

After a change of a table or a record: gapless check persistent_sessions --certify spec/persistent_sessions/certificates
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from statemachines_spec import certificates
from statemachines_spec.bug import planted
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import COMPLETE, FULL, VIOLATED, explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.hunt import look
from statemachines_spec.liveness.judge import live
from statemachines_spec.persistent_sessions import SPEC, collecting, forgetting
from statemachines_spec.persistent_sessions.bugs import BUGS
from statemachines_spec.persistent_sessions.counterexamples import AS_WRITTEN, ASSUMED, NOT_NEEDED
from statemachines_spec.persistent_sessions.every_system import SYSTEMS, system

FOLDER = Path(__file__).parents[3] / "spec" / "persistent_sessions"
LARGE = ("lag", "resumes", "second", "writer-crash", "slow-reads", "slow-fence", "writer-begins", "leaving",
         "fence-and-break", "overdue", "wider", "collected", "collected-unclear", "clean-start", "old-silent",
         "taker-dies", "taken-in-turn", "taken-at-once", "taken-bounded", "taken-writer-dies",
         "old-lies-of-epochs", "crowded", "crowded-and-fenced", "aging-exactly-once")  # fmt: skip
"""Obligations of these are judged by `gapless check persistent_sessions --liveness`."""
WHOLE_MAX, BEGINNING = 20_000, 4_000
"""States: what is larger is explored so far."""
FAR = ("fence-just-above", "death-during-a-fence", "numbers-go-on")
"""Bugs that take more than ten thousand states, or near it: `tools/planted.py` finds them anew."""
CELL = re.compile(r"(?P<what>\S+) in (?P<where>.+) by (?P<steps>\d+) steps, (?P<states>\d+) states; .*")


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


@pytest.mark.parametrize("name", WHOLE)
def test_a_certificate_is_what_exploring_again_comes_to(name):
    """GAP, COMPLETE, TWICE, UNCOMMITTED, UNSTORED, MAXIMUM, STRANGER, CUT, KEPT, LIFE, NORMAL and SPLIT hold, and what
    must happen does."""
    kept = certificate(name)
    assert (kept.system, kept.size, kept.variant) == (name, "small", "settled")
    result, _ = judged_whole(name)
    assert (result.ended, result.held, result.shown) == (COMPLETE, True, True)
    assert (result.states, result.transitions) == (kept.states, kept.transitions)


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in WHOLE])
def test_a_large_certificate_begins_as_exploring_again_does(name):
    """`gapless check persistent_sessions --certify`, and the soak, explore them to their ends."""
    kept = certificate(name)
    result = explore(certificates.system_of(kept), engine="plain", hashing=False, states_max=BEGINNING)
    assert (result.ended, result.held) == (FULL, True)
    levels = result.levels[:-1]  # the last of them is cut
    assert levels == kept.levels[: len(levels)]
    assert sum(levels) > BEGINNING / 8


def test_an_edge_hash_is_that_of_the_certificate():
    kept = certificates.read(FOLDER / "certificates" / "no-lag-small.json")
    assert certificates.differences(kept, explore(certificates.system_of(kept))) == []


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in LARGE])
def test_ENDS_TAKES_ORPHAN_VANISH_FORGETS_CONNECTS_what_must_be_met_is_met_once_faults_stop(name):
    _, judged = judged_whole(name)
    assert [(one.name, one.held) for one in judged] == [(one.name, True) for one in system(name).obligations]
    assert judged or name == "time-stands-still", "it ends where its last instant has come"
    assert name in ("absent", "time-stands-still") or sum(one.open_states for one in judged), "something was open"


def broken(made):
    """What breaks first; of what must be met sooner or later only where everything else holds."""
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    assert result.ended in (COMPLETE, VIOLATED)
    found = {name for name, held in result.always.items() if not held}
    return found or {one.name for one in live(made, made.obligations, engine="plain", entries=entries) if not one.held}


@pytest.mark.parametrize("one", AS_WRITTEN, ids=lambda one: one.name)
def test_the_source_word_for_word_breaks_and_the_shipped_machines_do_not(one):
    assert broken(one.system("as_written")) == {one.breaks}
    assert broken(one.system("settled")) == set()


def test_the_run_to_a_counterexample_is_replayed():
    made = AS_WRITTEN[0].system("as_written")
    result = explore(made, engine="plain", hashing=False)
    assert replay(made, result.path).events > 0


@pytest.mark.parametrize("one", ASSUMED, ids=lambda one: one.name)
def test_what_is_assumed_is_needed(one):
    assert broken(one.system("settled")) == {one.breaks}


@pytest.mark.parametrize("name", collecting.ASSUMED)
def test_KEPT_VANISH_graces_that_end_too_early_are_missed(name):
    assert broken(collecting.without_graces(name)) == {collecting.ASSUMED[name][2]}


@pytest.mark.parametrize("name", forgetting.ASSUMED)
def test_PS_122_PS_123_what_the_transaction_that_forgets_must_do_is_missed(name):
    assert broken(forgetting.without(name)) == {forgetting.ASSUMED[name][2]}


@pytest.mark.parametrize("one", NOT_NEEDED, ids=lambda one: one.name)
def test_what_the_source_assumes_and_the_machines_do_not_need(one):
    assert broken(one.system("settled")) == set()


def cells():
    """Bug -> what the page says of its exploration."""
    lines = (FOLDER / "planted_bugs.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[3] for row in rows if row[0].startswith("`")}


def test_every_bug_is_in_the_table_and_found():
    assert list(cells()) == [bug.name for bug in BUGS]
    assert [name for name, cell in cells().items() if not CELL.fullmatch(cell)] == []


@pytest.mark.parametrize("bug", [bug.name for bug in BUGS if bug.name not in FAR])
def test_a_planted_bug_is_found_where_the_table_says(bug):
    """Found anew in the one system that found it first (tools/planted.py goes through all)."""
    said = CELL.fullmatch(cells()[bug])
    hunt = next(one for one in SPEC.hunts() if one.name == said["where"])
    with planted(f"persistent_sessions/{bug}"):
        found = look(hunt)
    assert (found.what, found.steps, found.states) == (said["what"], int(said["steps"]), int(said["states"]))
