"""Persistent sessions explored with mistakes: a rule of the source, what is assumed, planted bugs.

Ways that nothing heals, explored: a writer that no owner hears, and an owner without its database.

Persistent sessions explored: every interleaving of a few messages, writers, owners, faults and timers.

After a change of a table or a record: gapless check --certificates --stale --renew

Contracts of single machines: they hold, every rule is met, and one small mistake breaks each.

The contract of a member of a group: it holds, every rule is met, and one small mistake breaks each.
"""

from contextlib import ExitStack
from functools import cache
from pathlib import Path

import pytest
from long_cases import mark_long
from msgspec.structs import replace
from mutants import without_rows

from statemachines import cli
from statemachines.kernel import Row
from statemachines.persistent_sessions.request import RowFenced, RowUnclear
from statemachines.persistent_sessions.resume import RESUME
from statemachines.persistent_sessions.writer import WRITER
from statemachines_spec import certificates
from statemachines_spec.bug import plant_bug
from statemachines_spec.explorer.explore import COMPLETE, FULL, VIOLATED, explore
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.liveness.judge import live
from statemachines_spec.mutants.campaign import CampaignScope, CampaignShape
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.persistent_sessions import (
    SPEC,
    collector_systems,
    connection_systems,
    directed_systems,
    group_member_contract,
)
from statemachines_spec.persistent_sessions.counterexamples import ASSUMED, NOT_NEEDED
from statemachines_spec.persistent_sessions.directed_systems import CONTRACTS, SYSTEMS, system

FOLDER = Path(__file__).parents[2] / "spec" / "persistent_sessions"


def broken(made):
    """What breaks first; of what must be met sooner or later only where everything else holds."""
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    assert result.ended in (COMPLETE, VIOLATED)
    found = {name for name, held in result.always.items() if not held}
    return found or {
        one.name for one in live(made, made.obligations, engine="plain", entries=entries) if not one.is_held
    }


@pytest.mark.parametrize("one", ASSUMED, ids=lambda one: one.name)
def test_what_is_assumed_is_needed(one):
    assert broken(one.system()) == {one.breaks}


@pytest.mark.parametrize(("system", "event"), [("unclear", RowUnclear), ("fenced-beside", RowFenced)])
def test_WRITES_a_writer_without_a_row_for_an_answer_waits_for_ever(system, event):
    gone = tuple(row for row in WRITER.declared if isinstance(row, Row) and row.on is event)
    with ExitStack() as stack:
        without_rows(stack, WRITER, gone)
        found = broken(replace(SPEC.system(system), origin=None))
    assert any(one.startswith("WRITES") for one in found)


def test_KEEPS_room_for_less_than_a_page_is_looked_at_while_the_client_is_still():
    """Shipped it is, and the row is taken that does; without the timer somebody waits for the client alone."""
    shipped = explore(SPEC.system("keeps"), engine="plain", hashing=False)
    row = next(line.number for line in RESUME.lines if line.clause == "PS-286")
    assert shipped.ended == COMPLETE
    assert (RESUME.full_name, row, "normal") in shipped.cells
    with plant_bug("persistent_sessions/keeps-and-waits"):
        found = explore(SPEC.system("keeps"), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == ["KEEPS"]


@pytest.mark.parametrize("name", collector_systems.ASSUMED)
def test_KEPT_VANISH_graces_that_end_too_early_are_missed(name):
    assert broken(collector_systems.without_graces(name)) == {collector_systems.ASSUMED[name][2]}


@pytest.mark.parametrize("name", connection_systems.ASSUMED)
def test_PS_122_PS_123_what_the_transaction_that_forgets_must_do_is_missed(name):
    assert broken(connection_systems.without(name)) == {connection_systems.ASSUMED[name][2]}


@pytest.mark.parametrize("one", NOT_NEEDED, ids=lambda one: one.name)
def test_what_the_source_assumes_and_the_machines_do_not_need(one):
    assert broken(one.system()) == set()


def broken_of_sessions_unreachable(name):
    """What breaks; of what must be met sooner or later only where everything else holds."""
    made = SPEC.system(name)
    entries = Entries(made)
    result = explore(made, engine="plain", hashing=False, entries=entries)
    found = {one for one, held in result.always.items() if not held}
    if found:
        return found
    assert result.ended == COMPLETE
    judged = live(made, made.obligations, engine="plain", entries=entries)
    assert not any(one.bounded for one in judged), "something is claimed of every part"
    return {one.name for one in judged if not one.is_held}


@pytest.mark.parametrize(
    ("bug", "name", "what"),
    [
        ("silence-is-borne", "unheard-writer", {"ENDS"}),
        ("fenced-rows-forgotten", "unheard-writer", {"COMPLETE"}),
        ("link-is-not-watched", "unheard-writer", {"COMPLETE"}),
        ("old-goes-on", "owner-without-database", {"SPLIT"}),
        ("handed-and-not-counted", "owner-without-database", {"TWICE"}),
        ("refusal-waited-out", "owner-without-database", {"ENDS", "TAKES"}),
    ],
)
def test_a_mistake_is_found_where_a_way_does_not_work(bug, name, what):
    with plant_bug(f"persistent_sessions/{bug}"):
        assert broken_of_sessions_unreachable(name) == what


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


SESSION_CONTRACTS_CONTRACTS = {
    name: contract
    for contract in directed_systems.CONTRACTS
    if contract is not group_member_contract
    for name in contract.SYSTEMS
}


@cache
def mutants():
    return {one.name: one for one in CampaignScope(CampaignShape("persistent_sessions")).mutants}


@pytest.mark.long
@pytest.mark.parametrize("name", SESSION_CONTRACTS_CONTRACTS)
def test_OWES_a_machine_keeps_its_contract_and_every_rule_is_met(name):
    found = explore(SESSION_CONTRACTS_CONTRACTS[name].system(name), engine="plain", hashing=False)
    assert found.path is None
    assert not [one for one, times in found.sometimes.items() if not times]


BROKEN = [
    ("collector-told", "collector/round/timer-doubled", "OWES begins in time"),
    ("collector-told", "collector/1/deleted", "OWES begins"),
    ("collector-told", "collector/2/deleted", "OWES finds clients"),
    ("collector-told", "collector/5/deleted", "OWES forgets"),
    ("collector-told", "collector/7/negated", "OWES deletes rows"),
    ("collector-told", "collector/11/negated", "OWES removes messages"),
    ("collector-told", "collector/14/deleted", "OWES goes on"),
    ("collector-told", "collector/15/deleted", "OWES breaks off"),
    ("resume-told", "session_resume/0/deleted", "OWES loads"),
    ("resume-delivers", "session_resume/13/deleted", "OWES delivers"),
    ("resume-told", "session_resume/24/deleted", "OWES follows a writer"),
    ("resume-takes-over", "session_resume/40/deleted", "OWES takes over"),
    ("resume-told", "session_resume/45/deleted", "OWES yields"),
    ("resume-told", "session_resume/53/deleted", "OWES ends"),
    ("resume-timed", "session_resume/45/timer-halved", "OWES keeps time"),
    ("life-told", "session_life/0/deleted", "OWES locks"),
    ("life-told", "session_life/3/deleted", "OWES looks up"),
    ("life-told", "session_life/2/deleted", "OWES asks again"),
    ("life-told", "session_life/4/negated", "OWES opens"),
    ("life-told", "session_life/6/negated", "OWES is opened"),
    ("life-told", "session_life/8/deleted", "OWES is full"),
    ("life-told", "session_life/9/deleted", "OWES accepts"),
    ("life-told", "session_life/alive/timer-doubled", "OWES lives"),
    ("life-told", "session_life/12/deleted", "OWES leaves"),
    ("life-told", "session_life/21/deleted", "OWES gives up"),
    ("life-told", "session_life/17/deleted", "OWES has left"),
    ("life-told", "session_life/18/deleted", "OWES is superseded"),
    ("life-told", "session_life/19/deleted", "OWES is discarded"),
    ("life-told", "session_life/20/deleted", "OWES fails"),
    ("takeover-told", "takeover/0/deleted", "OWES begins"),
    ("takeover-told", "takeover/again/timer-doubled", "OWES asks again"),
    ("takeover-told", "takeover/5/deleted", "OWES finishes"),
    ("takeover-told", "takeover/7/deleted", "OWES confirms"),
    ("takeover-told", "takeover/9/deleted", "OWES hands on"),
    ("takeover-told", "takeover/10/deleted", "OWES is refused"),
    ("takeover-left", "takeover/begin/timer-doubled", "OWES gives up"),
    ("takeover-told", "takeover/3/unguarded", "OWES ignores"),
    ("writer-told", "writer/0/deleted", "OWES begins"),
    ("writer-told", "writer/4/deleted", "OWES stores"),
    ("writer-ranges", "writer/6/deleted", "OWES stores a range"),
    ("writer-told", "writer/10/deleted", "OWES goes on"),
    ("writer-ranges", "writer/11/deleted", "OWES drops duplicates"),
    ("writer-told", "writer/15/deleted", "OWES reads back"),
    ("writer-told", "writer/19/deleted", "OWES believes what it reads"),
    ("writer-told", "writer/20/deleted", "OWES begins anew"),
    ("writer-told", "writer/21/deleted", "OWES marks"),
    ("flow-told", "writer_flow/0/deleted", "OWES begins"),
    ("flow-timed", "writer_flow/repeat/timer-doubled", "OWES asks again"),
    ("flow-told", "writer_flow/9/deleted", "OWES hears the writer"),
    ("flow-told", "writer_flow/16/unguarded", "OWES reads"),
    ("flow-timed", "writer_flow/17/timer-halved", "OWES looks again"),
    ("flow-timed", "writer_flow/23/timer-dropped", "OWES fences"),
    ("flow-fenced", "writer_flow/28/deleted", "OWES reads what is fenced"),
    ("flow-told", "writer_flow/18/deleted", "OWES hears its session"),
    ("flow-told", "writer_flow/25/deleted", "OWES hears the node"),
]


@pytest.mark.parametrize(("name", "mutant", "rule"), BROKEN)
def test_OWES_a_mistake_in_a_row_of_a_machine_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(
            replace(SESSION_CONTRACTS_CONTRACTS[name].system(name), origin=None), engine="plain", hashing=False
        )
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]


@pytest.mark.long
def test_every_mutant_of_a_row_of_a_takeover_and_of_a_collector_is_killed_or_allowed(tmp_path):
    systems = ("--systems", "takeover-told", "--systems", "takeover-left", "--systems", "collector-told")
    only = ("--only", "takeover/*", "--only", "collector/*")
    assert cli.run(("mutate", "persistent_sessions", *only, *systems, "--out", str(tmp_path))) == 0


GROUP_MEMBER_KEPT_TOLD, DECLARES = group_member_contract.SYSTEMS


GROUP_MEMBER_KEPT_BROKEN = [
    (DECLARES, "group_member/0/deleted", "OWES begins"),
    (DECLARES, "group_member/3/deleted", "OWES declares"),
    (DECLARES, "group_member/declare/timer-dropped", "OWES declares"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/1/deleted", "OWES begins"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/7/negated", "OWES joins"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/10/deleted", "OWES follows"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/11/deleted", "OWES counts"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/18/deleted", "OWES stores"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member_actions.rest/1/no-acknowledge", "OWES acknowledges"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/24/deleted", "OWES yields"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/look/timer-doubled", "OWES looks"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/28/negated", "OWES finds"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/30/unguarded", "OWES finds"),
    (GROUP_MEMBER_KEPT_TOLD, "group_member/33/deleted", "OWES ends"),
]


@pytest.mark.parametrize(("name", "mutant", "rule"), GROUP_MEMBER_KEPT_BROKEN)
def test_OWES_a_mistake_in_a_row_of_a_member_breaks_a_rule(name, mutant, rule):
    with plant(mutants()[mutant]):
        found = explore(replace(group_member_contract.system(name), origin=None), engine="plain", hashing=False)
    assert found.ended == VIOLATED
    assert [one for one, held in found.always.items() if not held] == [rule]


@pytest.mark.long
def test_every_mutant_of_a_row_of_a_member_is_killed_or_allowed(tmp_path):
    systems = ("--systems", GROUP_MEMBER_KEPT_TOLD, "--systems", DECLARES)
    only = ("--only", "group_member/*", "--only", "group_member_actions*")
    assert cli.run(("mutate", "persistent_sessions", *only, *systems, "--out", str(tmp_path))) == 0
