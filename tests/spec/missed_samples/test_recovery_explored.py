"""Missed-samples recovery explored: every interleaving of a few samples, losses, queries, replies, ends and timers.

After a change of a table or a record: gapless check --certificates --stale --renew
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from statemachines_spec import certificates
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.entries import Entries
from statemachines_spec.explorer.explore import COMPLETE, VIOLATED, explore
from statemachines_spec.explorer.replay import replay
from statemachines_spec.hunt import look
from statemachines_spec.liveness.judge import live
from statemachines_spec.missed_samples import SPEC
from statemachines_spec.missed_samples.bugs import BUGS
from statemachines_spec.missed_samples.counterexamples import AS_WRITTEN
from statemachines_spec.missed_samples.systems import SYSTEMS, system

FOLDER = Path(__file__).parents[3] / "spec" / "missed_samples"
LARGE = ("unreliable", "history-tokens", "continued")
"""Obligations of these are judged by `gapless check missed_samples --liveness`."""
CELL = re.compile(r"(?P<what>\S+) in (?P<where>.+) by (?P<steps>\d+) steps, (?P<states>\d+) states; .*")


@cache
def explored_once(name):
    """A certificate, its system, and what exploring that comes to: obligations are judged over the same tables."""
    kept = certificates.read(FOLDER / "certificates" / f"{name}-small.json")
    made = certificates.system_of(kept)
    entries = Entries(made)
    return kept, made, entries, explore(made, engine="plain", hashing=False, entries=entries)


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_certificate_is_what_exploring_again_comes_to(name):
    """ORDER, ONCE, REPORT, INVENTED, NOGAP, HASTY, PROMPT, BOUND, QUIET, ASKED, COUNT, TIMING, TIMERS, FORGOTTEN,
    HISTORY, PLACES, QUEUES, REPLIES and WHOLE hold in every state, and what must happen does."""
    kept, _, _, result = explored_once(name)
    assert (kept.system, kept.size, kept.variant) == (name, "small", "settled")
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert (result.states, result.transitions) == (kept.states, kept.transitions)


@pytest.mark.parametrize("name", [name for name in SYSTEMS if name not in LARGE])
def test_LIVE_ISOLATION_TAIL_every_hole_is_settled_once_faults_stop(name):
    _, made, entries, _ = explored_once(name)
    judged = live(made, made.obligations, engine="plain", entries=entries)
    assert [(one.name, one.is_held) for one in judged] == [(one.name, True) for one in made.obligations]
    assert sum(one.open_states for one in judged), "something was open"
    assert sum(one.bounded for one in judged) == 0


def test_an_edge_hash_is_that_of_the_certificate():
    kept = certificates.read(FOLDER / "certificates" / "crowded-small.json")
    assert certificates.differences(kept, explore(certificates.system_of(kept))) == []


def broken(made):
    """What breaks first: of all properties one alone is left in these systems."""
    result = explore(made, engine="plain", hashing=False)
    assert result.ended in (COMPLETE, VIOLATED)
    found = {name for name, held in result.always.items() if not held}
    return found or {one.name for one in live(made, made.obligations, engine="plain") if not one.is_held}


@pytest.mark.parametrize("one", AS_WRITTEN, ids=lambda one: one.name)
def test_the_source_word_for_word_breaks_and_the_shipped_machine_does_not(one):
    assert broken(one.system("as_written")) == {one.breaks}
    assert broken(one.system("settled")) == set()


@pytest.mark.parametrize("one", [one for one in AS_WRITTEN if not one.live], ids=lambda one: one.name)
def test_a_shortest_run_of_the_source_is_kept(one):
    result = explore(one.system(), engine="plain", hashing=False)
    said = {line.split("|")[1].strip(" `"): line for line in (FOLDER / "systems.md").read_text().splitlines()
            if line.startswith("| `")}  # fmt: skip
    assert f"| {one.breaks}, {len(result.path.legs)} |" in said[one.name]
    assert one.about in said[one.name]


def test_a_run_of_the_shipped_machines_is_replayed():
    bug = next(one for one in BUGS if one.name == "missed-twice")
    made = system("shallow")
    with plant_bug(f"missed_samples/{bug.name}"):
        result = explore(made, engine="plain", hashing=False)
        assert result.path.broken == "ORDER"
        assert replay(made, result.path).events > 0


def cells():
    """Bug -> what the page says of its exploration."""
    lines = (FOLDER / "planted_bugs.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return {row[0].strip("`"): row[3] for row in rows if row[0].startswith("`")}


def test_every_bug_is_in_the_table():
    assert list(cells()) == [bug.name for bug in BUGS]


def test_exploration_finds_all_that_its_systems_can_show():
    """The page says why not this one."""
    assert {name for name, cell in cells().items() if cell == "-"} == {"dead-are-not-asked"}


@pytest.mark.parametrize("bug", [name for name, cell in cells().items() if cell != "-"])
def test_a_planted_bug_is_found_where_the_table_says(bug):
    """Found anew in the one system that found it first (tools/planted.py goes through all)."""
    said = CELL.fullmatch(cells()[bug])
    hunt = next(one for one in SPEC.hunts() if one.name == said["where"])
    with plant_bug(f"missed_samples/{bug}"):
        found = look(hunt)
    assert (found.what, found.steps, found.states) == (said["what"], int(said["steps"]), int(said["states"]))


def test_every_system_is_on_its_page_with_its_size():
    page = (FOLDER / "systems.md").read_text()
    for name, about in SPEC.systems.items():
        kept = certificates.read(FOLDER / "certificates" / f"{name}-small.json")
        assert f"| `{name}` | {about} | {kept.states:,} |".replace(",", " ") in page.replace(",", " ")
