"""Which rows of the machines explored systems reach, and how a run over all of them says so.

The model of the rules that was written by hand from the texts: SPIN comes to the verdicts of the explorer.

The plain walker comes to what the small certificates say (`test_certificates.py` has the rest of them).

`gapless check`: what it prints, exit codes, certificates.

A counterexample that was written as ITF and read again is the same script for real hosts.
"""

import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import msgspec
import pytest

from statemachines import catalogue, cli
from statemachines.trace.itf import read_itf
from statemachines_spec import certificates
from statemachines_spec.coverage import describe_coverage, find_reached
from statemachines_spec.explorer.explore import COMPLETE, explore
from statemachines_spec.explorer.property import Eventually, View
from statemachines_spec.itf.export import export_run
from statemachines_spec.itf.matching import match_run
from statemachines_spec.script.path_to_script import script_of
from statemachines_spec.shared_subscriptions import SPEC
from statemachines_spec.shared_subscriptions.systems import SYSTEMS, system

MACHINES = catalogue.machines("shared_subscriptions")


@pytest.fixture(scope="module")
def cells():
    return explore(system("revoke-timeout", "small"), engine="plain", hashing=False).cells


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


@pytest.mark.long
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


MODEL = Path(__file__).parents[3] / "spec" / "shared_subscriptions" / "models" / "shared_subscriptions.pml"

S4 = r"\(\(assigned\[\d\]!=0\)&&\(by"
S5 = r"!\(\(\(leased"
SHOWN = r"!\(\(delivered"


def searched(folder, *switches):
    """What the full search says; the model is copied, since SPIN leaves its trail beside it."""
    shutil.copy(MODEL, folder)
    for command in (
        ["spin", "-a", *(f"-D{switch}" for switch in switches), MODEL.name],
        ["gcc", "-DSAFETY", "-DNOREDUCE", "-DCOLLAPSE", "-DMEMLIM=2000", "-o", "pan", "pan.c"],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    return subprocess.run(["./pan", "-m200000", "-w22"], cwd=folder, capture_output=True, text=True).stdout


@pytest.mark.long
def test_the_settled_rules_hold_in_a_full_search(tmp_path):
    said = searched(tmp_path)
    assert "errors: 0" in said
    assert "max search depth too small" not in said
    assert "Search not completed" not in said
    assert int(re.search(r"(\d+) states, stored", said)[1]) > 100_000
    assert explore(system("late-copies", "small"), engine="plain", hashing=False).always["S5"]


@pytest.mark.parametrize(
    ("switch", "assertion"),
    [
        pytest.param("AS_WRITTEN", S5, marks=pytest.mark.long),
        pytest.param("ANY_GRANT", S4, marks=pytest.mark.long),
        pytest.param("NO_WAIT", S5, marks=pytest.mark.long),
        pytest.param("LATE_LEASE", S5, marks=pytest.mark.long),
        pytest.param("SHOW", SHOWN, marks=pytest.mark.long),
    ],
)
def test_without_a_rule_an_assertion_breaks(switch, assertion, tmp_path):
    said = searched(tmp_path, switch)
    assert re.search(r"assertion violated\s+" + assertion, said), said
    assert (tmp_path / "shared_subscriptions.pml.trail").is_file()


@pytest.mark.parametrize(("variant", "name"), [("as_written", "late-copies"), ("at_once", "borrower-crash")])
def test_the_explorer_comes_to_the_same_verdicts(variant, name):
    assert not explore(system(name, "small", variant), engine="plain", hashing=False).always["S5"]


FOLDER = Path(__file__).parents[3] / "spec" / "shared_subscriptions" / "certificates"


PLAIN_MAX = 4_000
"""States: what is larger the plain walker explores where its results are compared in every field."""


@cache
def small(name):
    """The certificate of a small system."""
    return certificates.read(FOLDER / f"{name}-small.json")


@pytest.mark.parametrize("name", [name for name in SYSTEMS if small(name).states <= PLAIN_MAX])
def test_the_plain_walker_comes_to_the_same(name):
    kept = small(name)
    result = explore(system(name, "small"), engine="plain", hashing=False)
    assert (result.ended, result.is_held, result.is_shown) == (COMPLETE, True, True)
    assert (result.states, result.transitions) == (kept.states, kept.transitions)


@pytest.fixture
def gapless(capsys):
    def run(*arguments):
        code = cli.run(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def test_a_system_that_holds_is_checked_within_bounds_that_are_printed(gapless):
    code, out, err = gapless("check", "shared_subscriptions", "--system", "revoke-timeout")
    assert (code, err) == (0, "")
    assert "checked within these bounds: no-error, S5" in out
    for line in (
        "network: lossy, duplicating; at most 1 in flight",
        "deadline order: lease before hand-over",
        "at most: revoke timeout: 1",
    ):
        assert line in out
    assert "proved" not in out


@pytest.mark.long
def test_a_violation_is_shown_with_its_shortest_run(gapless):
    code, out, _ = gapless("check", "shared_subscriptions", "--system", "late-copies", "--variant", "as_written")
    assert code == 1
    assert "VIOLATED S5" in out
    assert "a shortest run, 21 steps" in out


@pytest.mark.long
def test_a_diagram_or_a_test_instead_of_text(gapless):
    command = ("check", "shared_subscriptions", "--system", "late-copies", "--variant", "as_written")
    assert "sequenceDiagram" in gapless(*command, "--mermaid")[1]
    assert "def test_late_copies_s5" in gapless(*command, "--test")[1]


@pytest.mark.long
def test_json_is_for_programs(gapless):
    code, out, _ = gapless("check", "shared_subscriptions", "--system", "revoke-timeout", "--json")
    (result,) = msgspec.json.decode(out)
    assert code == 0
    assert (result["ended"], result["always"]["S5"]) == ("complete", True)
    code, out, _ = gapless(
        "check", "shared_subscriptions", "--system", "borrower-crash", "--without", "lease before hand-over", "--json"
    )
    (result,) = msgspec.json.decode(out)
    assert (code, result["broken"]) == (1, "S5")
    assert result["counterexample"][-1].startswith("broken: S5")


def test_out_of_room_is_inconclusive(gapless):
    code, out, _ = gapless(
        "check", "shared_subscriptions", "--system", "pause", "--states-max", "2000", "--engine", "plain"
    )
    assert code == 3
    assert "PARTIAL (out of room)" in out


def test_list_names_systems_variants_and_orders(gapless):
    code, out, _ = gapless("check", "list")
    assert code == 0
    for name in (*SPEC.systems, "as_written", "lease before hand-over"):
        assert name in out
    listed = msgspec.json.decode(gapless("check", "list", "--json")[1])["shared_subscriptions"]["systems"]
    assert set(listed) == {*SPEC.systems}


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("shared",), "shared_subscriptions"),
        (("shared_subscriptions", "--system", "x"), "there are 74, such as next-leader"),
        (("shared_subscriptions", "--size", "huge"), "small, ci, large"),
        (("shared_subscriptions", "--variant", "x"), "settled"),
        (("shared_subscriptions", "--without", "x"), "lease before hand-over"),
        (("shared_subscriptions", "--system", "late-copies", "--engine", "x"), "compiled"),
        (("--certificate", "no such file"), "no such file"),
    ],
)
def test_a_wrong_argument_is_usage_and_names_what_there_is(gapless, arguments, word):
    code, out, err = gapless("check", *arguments)
    assert (code, out) == (2, "")
    assert word in err


# -- certificates ---------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(gapless, tmp_path):
    gapless("check", "shared_subscriptions", "--system", "revoke-timeout", "--certify", str(tmp_path))
    return tmp_path / "revoke-timeout-small.json"


@pytest.mark.long
def test_a_certificate_is_checked_again(gapless, certificate):
    code, out, _ = gapless("check", "--certificate", str(certificate))
    assert code == 0
    assert "compared: bounds, states, transitions" in out
    assert "the same; checked within these bounds" in out


@pytest.mark.long
def test_a_certificate_that_says_something_else_differs(gapless, certificate):
    kept = certificates.read(certificate)
    wrong = msgspec.structs.replace(kept, states=kept.states + 1, edges="0" * 16)
    certificate.write_bytes(msgspec.json.encode(wrong))
    code, out, _ = gapless("check", "--certificate", str(certificate))
    assert code == 1
    assert "DIFFERS states" in out
    assert "DIFFERS edges" in out


def test_a_file_that_is_no_certificate_is_refused(gapless, tmp_path):
    path = tmp_path / "x.json"
    path.write_text('{"protocol": 3}')
    code, _, err = gapless("check", "--certificate", str(path))
    assert code == 2
    assert "certificate" in err


@pytest.mark.long
def test_what_broke_gets_no_certificate(gapless, tmp_path):
    gapless(
        "check",
        "shared_subscriptions",
        "--system",
        "late-copies",
        "--variant",
        "as_written",
        "--certify",
        str(tmp_path),
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.long
def test_obligations_are_judged_on_demand(gapless):
    code, out, err = gapless("check", "shared_subscriptions", "--system", "revoke-timeout", "--liveness")
    assert (code, err) == (0, "")
    assert "eventually L3 leader-1: revoking leads to none: open in 480 states" in out


@pytest.mark.long
def test_a_graph_that_is_too_large_for_obligations_is_inconclusive(gapless):
    code, out, _ = gapless(
        "check", "shared_subscriptions", "--system", "revoke-timeout", "--liveness", "--states-max", "3000"
    )
    assert code == 3
    assert "checked within these bounds" in out
    assert "PARTIAL (out of room" in out
    assert "nothing is claimed of obligations" in out


@pytest.mark.long
def test_an_obligation_that_is_not_met_is_shown(gapless, monkeypatch):
    def never(system):
        return (Eventually("never", "nobody connects", (View("consumer-1", 1, lambda local: 0),), lambda value: True),)

    changed = msgspec.structs.replace(SPEC, obligations_of=never)
    monkeypatch.setattr("statemachines_spec.shared_subscriptions.SPEC", changed)
    code, out, _ = gapless("check", "shared_subscriptions", "--system", "revoke-timeout", "--liveness")
    assert code == 1
    assert "VIOLATED never: nobody connects; a run after which it never happens:" in out
    assert out.endswith("\nand then nothing can happen any more: a deadlock\n")
    assert "again and again:" not in out


def test_a_run_that_went_through_itf_has_the_same_script(tmp_path):
    late_copies = system("late-copies", "small", "as_written")
    found = explore(late_copies).path
    export_run(tmp_path / "run.itf.json", late_copies, found)
    again = match_run(late_copies, read_itf(tmp_path / "run.itf.json")).run
    first, second = (
        script_of(late_copies, one, protocol="shared_subscriptions", variant="as_written") for one in (found, again)
    )
    assert second == first
    assert second.breaks == "S5"
