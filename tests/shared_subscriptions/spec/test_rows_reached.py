"""Which rows of the machines explored systems reach, and how a run over all of them says so."""

from __future__ import annotations

import re

import msgspec
import pytest

from statemachines import catalogue, cli
from statemachines_spec.coverage import describe_coverage, find_reached
from statemachines_spec.explorer.explore import explore
from statemachines_spec.shared_subscriptions import SPEC
from statemachines_spec.shared_subscriptions.systems import system

MACHINES = catalogue.machines("shared_subscriptions")


@pytest.fixture(scope="module")
def cells():
    return explore(system("revoke-timeout", "small"), engine="plain", hashing=False).cells


def by_name(found, name):
    return next(one for one in found if one.machine == f"shared_subscriptions/{name}")


def test_a_row_counts_in_the_states_it_was_taken_in(cells):
    stream = by_name(find_reached(MACHINES, cells), "stream")
    assert (stream.rows, stream.taken) == (22, 22 - sum(not row.partly for row in stream.unreached))
    assert ("shared_subscriptions/stream", 0, "absent") in cells
    assert 0 not in {row.row for row in stream.unreached}
    ignored = next(row for row in stream.unreached if row.row == 17)
    assert ignored.partly is (len(ignored.states) < 3)
    assert stream.cells - stream.cells_taken == sum(len(row.states) for row in stream.unreached)


def test_every_cell_that_was_taken_is_one_of_the_table(cells):
    known = {
        (machine.full_name, line.number, str(state.value))
        for machine in (*MACHINES, *catalogue.process_machines("shared_subscriptions"))
        for line in machine.lines
        for state in line.sources
    }
    assert set(cells) <= known


def test_what_only_a_step_beyond_the_bounds_takes_does_not_count():
    one = system("late-copies", "small")
    leader = next(actor for actor in one.actors if actor.name == "leader-1")
    leader.within = lambda local: local.party is None
    cells = explore(msgspec.structs.replace(one, origin=None), engine="plain").cells
    assert not [cell for cell in cells if cell[0] == "shared_subscriptions/leader"]
    assert [cell for cell in cells if cell[0] == "shared_subscriptions/borrower"]


def test_rows_that_were_not_reached_are_named_with_their_clause(cells):
    lines = describe_coverage(find_reached(MACHINES, cells)).splitlines()
    assert "  group: in no system" in lines
    assert "    never 13 leader_wanted: ignore [SS-68]" in lines
    longer = describe_coverage(find_reached(MACHINES, cells), cells=True).splitlines()
    more = [line for line in longer if line not in lines]
    assert set(lines) < set(longer)
    assert all(" in " in line for line in more)


def test_a_run_over_all_systems_ends_with_them(capsys, monkeypatch):
    two = {name: SPEC.systems[name] for name in ("reordering", "revoke-timeout")}
    monkeypatch.setattr("statemachines_spec.shared_subscriptions.SPEC", msgspec.structs.replace(SPEC, systems=two))
    assert cli.run(("check", "shared_subscriptions", "--engine", "plain")) == 0
    out = capsys.readouterr().out
    end = out[out.index("entries by component:") :]
    assert "  reordering: 344: consumer-1 49, consumer-2 94, leader-1 196" in end
    assert "rows reached in these 2 systems" in end
    assert cli.run(("check", "shared_subscriptions", "--engine", "plain", "--json")) == 0
    *results, last = msgspec.json.decode(capsys.readouterr().out)
    assert last["systems"] == [result["system"] for result in results] == ["reordering", "revoke-timeout"]
    assert last["entries"]["reordering"] == results[0]["entries"]
    assert by_machine(last)["shared_subscriptions/member"]["unreached"][-1]["clause"] == "SS-68"


def by_machine(last):
    return {one["machine"]: one for one in last["reached"]}


def test_the_page_of_the_systems_counts_the_rows_that_there_are():
    """After a change of a table or a system: python tools/rows_reached.py shared_subscriptions --write"""
    lines = catalogue.page("shared_subscriptions").with_name("systems.md").read_text().splitlines()
    begin = lines.index("| machine | taken | never, by clause |") + 2
    shown = {}
    for line in lines[begin : lines.index("", begin)]:
        name, taken, never = (part.strip() for part in line.strip("|").split("|"))
        clauses = re.findall(r"(SS-[0-9]+)(?: \(([0-9]+)\))?", never)
        shown[name] = taken, {clause: int(count or 1) for clause, count in clauses}
    assert list(shown) == [machine.name for machine in MACHINES]
    for machine in MACHINES:
        taken, never = shown[machine.name]
        rows = [line.clause for line in machine.lines if line.kind != "refuse"]
        assert taken == f"{len(rows) - sum(never.values())} of {len(rows)}"
        assert all(rows.count(clause) >= count for clause, count in never.items())
