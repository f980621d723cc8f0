"""`gapless mutate`: what it makes, what it says of each, and that it goes on where it was."""

import json
import os
import signal

import pytest

from statemachines import catalogue, registry
from statemachines.cli import run
from statemachines.kernel import ConfigurationError, GaplessError
from statemachines.testing import mutant_queue
from statemachines_spec.explorer.purity import Entries
from statemachines_spec.mutants import apart, campaign
from statemachines_spec.mutants.account import account_of, page, text
from statemachines_spec.mutants.campaign import (
    CampaignHead,
    CampaignResults,
    CampaignScope,
    CampaignShape,
    pick_mutants,
)
from statemachines_spec.mutants.judging import KeptEntries, print_of
from statemachines_spec.mutants.mutant import plant
from statemachines_spec.mutants.notice import Notice, Notices, Rests
from statemachines_spec.mutants.original import walk
from statemachines_spec.mutants.row_mutants import cells
from statemachines_spec.protocol import AllowedMutants

NAME = "tank_protocol:PROTOCOL"


@pytest.fixture(autouse=True, scope="module")
def a_tank_that_is_forgotten():
    """What is registered stays so in a process; tests of other files are to know the shipped protocols alone."""
    yield
    registry._REGISTERED.pop("tank", None)
    registry._REGISTERED.pop("glutton", None)


@pytest.fixture(scope="module")
def field():
    return CampaignScope(CampaignShape(NAME))


@pytest.fixture(scope="module")
def verdicts(field):
    judge = field.judge(lambda text: None)
    return {one.name: judge.judge(one) for one in field.mutants}


# -- what is made ---------------------------------------------------------------------------------------------------


def test_a_table_compiled_from_lines_is_the_one_read_back_from_the_reference_engine():
    def shape(table):
        return {event: {state: [entry[2:3] + entry[4:] for entry in cell] for state, cell in by.items() if cell}
                for event, by in table.items()}  # fmt: skip

    for name in catalogue.names():
        for fsm in catalogue.machine(name).family():
            assert shape(cells(fsm, fsm)) == shape(fsm._cells)


def test_every_way_of_the_list_is_made_and_no_name_twice(field):
    assert field.counts(field.mutants) == {
        "row": {"deleted": 6, "redirected": 13, "swapped": 2},
        "guard": {"guard dropped": 2, "guard negated": 2},
        "timer": {"timer dropped": 2, "timer doubled": 2, "timer halved": 2},
        "code": {"comparison turned": 5, "integer off by one": 21, "field left out": 7, "effect left out": 4},
    }
    names = [one.name for one in field.mutants]
    assert len(set(names)) == len(names)
    assert [one.name for one in CampaignScope(CampaignShape(NAME)).mutants] == names


@pytest.mark.long
def test_an_argument_of_an_effect_is_changed_for_another_of_its_type():
    made = {
        one.name: one.what
        for one in CampaignScope(CampaignShape("cursor_recovery")).mutants
        if one.kind == "argument changed"
    }
    assert made["operation.swap/4/value-is-expected"].endswith("value is expected")
    assert "writer.tell_full/2/Outcome.FULL-is-Outcome.NO_CURSOR" in made


@pytest.mark.long
def test_what_was_evaluated_once_is_no_part_of_a_function():
    """A default is kept beside the code, which is all that is changed: such a mutant would change nothing."""
    names = {
        one.name
        for one in CampaignScope(CampaignShape("shared_subscriptions")).mutants
        if ".Subscription.__init__/" in one.name
    }
    assert not any("1-is-" in name for name in names)


# -- what is said ---------------------------------------------------------------------------------------------------

EXPECTED = {
    "tank/0/deleted": ("property", "CUPS"),
    "tank/1/deleted": ("never", "full"),
    "tank/4/deleted": ("obligation", "DRY"),
    "tank/3/deleted": ("lived", ""),
    "tank_protocol.fill/3/no-Tell": ("equal", ""),
    "tank/leak/timer-doubled": ("equal", ""),
    "tank/5/deleted": ("never executed", ""),
    "tank_protocol.label/1/without-label": ("never executed", ""),
    "tank_protocol.drain/2/without-turns": ("not judged", "too many states"),
    "tank_protocol.has_its_cups/3/0-is-1": ("property", "tank:has-its-cups"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_verdict_of_every_kind(verdicts, name):
    one = verdicts[name]
    assert (one.verdict, one.by) == EXPECTED[name]
    assert not one.refused


def test_what_a_step_raises_is_a_class_apart():
    field = CampaignScope(CampaignShape("cursor_recovery", ("left by the dead",)))
    one = next(one for one in field.mutants if one.name == "writer/1/to-1_take_cursor")
    said = field.judge(lambda text: None).judge(one)
    assert (said.verdict, said.by, said.where) == ("error", "LocalProtocolError", "left by the dead")


def test_what_a_declaration_refuses_is_a_class_of_its_own_and_judged_all_the_same(verdicts):
    refused = {name for name, one in verdicts.items() if one.refused}
    assert refused == {"tank/0/unguarded", "tank/0/after-1", "tank/2/unguarded", "tank/2/after-3"}
    assert verdicts["tank/0/after-1"].verdict == "property"
    found = account_of(verdicts.values(), ())
    assert sum(line.made for line in found.refused) == 4
    assert not refused.intersection(one.name for one in found.alive)


def test_what_others_notice_is_counted_apart_and_alive_no_more(field, verdicts):
    clause = AllowedMutants(("tank_protocol.*/no-Tell",), "TA-1", "nobody has a meter")
    mutants, judged = {one.name: one for one in field.mutants}, list(verdicts.values())
    notices = [
        Notice("tank/3/deleted", "tests", ""),
        Notice("tank/3/deleted", "simulation", "S1"),
        Notice("tank/0/deleted", "tests", "test_of_one_that_exploration_kills"),
        Notice("tank_protocol.fill/3/no-Tell", "tests", "test_of_one_that_is_allowed"),
    ]
    without, found = account_of(judged, (clause,)), account_of(judged, (clause,), notices)
    assert [one.name for one in found.noticed] == ["tank/3/deleted"]
    assert "tank/3/deleted" not in {one.name for one in found.alive}
    assert (without.lines[-1].others, found.lines[-1].others) == (0, 1)
    assert found.lines[-1].rate == without.lines[-1].rate, "that is exploration's"
    taken = [one for one in judged if not one.refused]
    settled = sum(one.is_killed for one in taken) + 3 + 1
    line = f"Killed by something, or allowed: {settled} of {len(taken)} ({100 * settled / len(taken):.1f} %)."
    said = page("tank", found, mutants, judged, ("filling",))
    assert "## Noticed by simulation\n\n- `tank/3/deleted`: S1" in said
    for shown in (said, text(found)):
        assert line in shown
        assert "never executed | not judged | allowed | others |" in shown
    assert f"allowed: {settled - 1} of" in text(without)


# -- other judges ---------------------------------------------------------------------------------------------------


def test_notices_of_other_machines_or_tests_do_not_count_unless_they_are_kept(tmp_path):
    path, rests = tmp_path / "tank.others.jsonl", Rests("machines", "tests")
    notices = Notices(path, rests)
    assert not path.exists(), "nothing is written before anybody is asked"
    notices.begin()
    for one in (Notice("tank/0/deleted", "tests", ""), Notice("tank/0/deleted", "simulation", "S1")):
        notices.add(one)
    with path.open("ab") as file:
        file.write(b'{"name":"tank/1')  # a line that was torn
    both = {("tank/0/deleted", "tests"), ("tank/0/deleted", "simulation")}
    assert Notices(path, rests).found.keys() == both
    assert Notices(path, Rests("machines")).found.keys() == both
    assert Notices(path, rests).of("tank/0/deleted") == Notice("tank/0/deleted", "simulation", "S1")
    for other in (Rests("others", "tests"), Rests("machines", "others")):
        assert not Notices(path, other).found
        assert Notices(path, other, kept=True).found.keys() == {("tank/0/deleted", "simulation")}


@pytest.fixture
def asked(monkeypatch, tmp_path):
    """Who is asked about which mutant, in a process of its own; simulation notices the fifth row, and nobody anything
    else."""
    file = tmp_path / "asked"
    file.touch()

    def seen(protocol, mutant, judge, seconds, tests):
        with file.open("a") as to:
            print(mutant.name, judge, file=to)
        return Notice(mutant.name, judge, "S1" if (mutant.name, judge) == ("tank/3/deleted", "simulation") else "")

    monkeypatch.setattr(mutant_queue, "notice", seen)
    monkeypatch.setattr(mutant_queue, "check_tests", lambda seconds, tests: 0.0)
    monkeypatch.setattr(mutant_queue, "judges_of", lambda protocol, tests: mutant_queue.JUDGES)
    return lambda: [tuple(line.split()) for line in file.read_text().splitlines()]


THREE = ("tank/0/deleted", "tank/3/deleted", "tank/3/to-full")


def asking(out, *more):
    return ["mutate", NAME, "--out", str(out), "--others", *(part for one in THREE for part in ("--only", one)), *more]


@pytest.mark.long
def test_who_lives_is_shown_to_one_judge_after_the_other_until_one_notices(asked, tmp_path, capsys):
    assert run(asking(tmp_path)) == 1
    assert asked()[:2] == [("tank/3/deleted", "tests"), ("tank/3/deleted", "simulation")]
    assert asked()[2:] == [("tank/3/to-full", judge) for judge in mutant_queue.JUDGES]
    said = capsys.readouterr().out
    assert "noticed by simulation: tank/3/deleted: S1" in said
    assert "ALIVE tank/3/to-full" in said
    assert run(asking(tmp_path)) == 1
    assert len(asked()) == 5, "who was asked once is not asked again"
    assert run(asking(tmp_path, "--beside", "1000")) == 1
    assert sorted(asked()) == sorted((one, judge) for one in THREE for judge in mutant_queue.JUDGES), (
        "all, by everybody"
    )
    without = ["mutate", NAME, "--out", str(tmp_path), "--only", "tank/3/deleted"]
    assert run(without) == 0, "what was noticed before counts"
    assert run([*without, "--again"]) == 1


def test_what_a_process_that_asks_cannot_do_is_said(asked, monkeypatch, tmp_path, capfd):
    def refused(*args):
        raise ConfigurationError("tests", "here", "fail without any mutant; mend that first")

    monkeypatch.setattr(mutant_queue, "notice", refused)
    assert run(asking(tmp_path)) == 2
    assert "fail without any mutant; mend that first" in capfd.readouterr().err
    monkeypatch.setattr(mutant_queue, "notice", lambda *args: os._exit(3))
    assert run(asking(tmp_path)) not in (0, 1)
    assert "the process that asks about tank/3/deleted ended: 3" in capfd.readouterr().err


def test_how_strong_each_judge_is_rests_on_mutants_that_every_one_of_them_was_shown(asked, tmp_path, capsys):
    assert run(asking(tmp_path)) == 1
    assert "| exploration |" not in capsys.readouterr().out, "tests were not shown what exploration killed"
    assert run(asking(tmp_path, "--beside", "1000")) == 1
    said = capsys.readouterr().out
    assert "of 3 drawn by chance, shown to every judge" in said
    for line in (
        "| exploration | 1 of 3 (33.3 %) | - | 1 of 3 (33.3 %) | 1 |",
        "| tests | 0 of 3 (0.0 %) | - | 0 of 3 (0.0 %) | 0 |",
        "| simulation | 1 of 3 (33.3 %) | - | 1 of 3 (33.3 %) | 1 |",
        "| anybody | 2 of 3 (66.7 %) | - | 2 of 3 (66.7 %) |  |",
    ):
        assert line in said


@pytest.mark.long
def test_tests_that_fail_or_are_never_done_without_a_mutant_are_refused(tmp_path):
    file = tmp_path / "test_wrong.py"
    file.write_text("def test_wrong():\n    assert False\n")
    with pytest.raises(ConfigurationError, match=r"test_wrong\.py::test_wrong: fail without any mutant"):
        mutant_queue.check_tests(20, (file,))
    file.write_text("def test_wrong():\n    while True:\n        pass\n")
    with pytest.raises(ConfigurationError, match="take longer without any mutant"):
        mutant_queue.check_tests(1, (file,))


def test_an_original_that_breaks_is_refused(field, monkeypatch):
    monkeypatch.setattr("tank_protocol.at_most", lambda cups: cups < 2)
    with pytest.raises(ConfigurationError, match="breaks without any mistake"):
        field.judge(lambda text: None)


def test_a_system_that_is_too_large_is_left_out():
    field = CampaignScope(CampaignShape(NAME, states_max=2))
    assert field.judge(lambda text: None).originals == []
    assert field.left_out == ("filling",)


# -- keeping entries ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "compared_min"), [(25, 5), pytest.param(70, 15, marks=pytest.mark.long)])
def test_what_is_kept_is_what_would_be_made_anew(count, compared_min):
    """A fixed sample over rows, guards and code: the same walk and the same entries, kept or made for themselves."""
    field = CampaignScope(CampaignShape("cursor_recovery", ("alone",)))
    judge = field.judge(lambda text: None)
    original = judge.originals[0]
    compared = 0
    for one in pick_mutants(field.mutants, (), (), count, 3):
        with plant(one):
            kept = come_to(lambda one=one: judge._entries(original, one), original)
            anew = come_to(lambda: Entries(original.make()), original)
        if kept[0] is None:
            kept = (original.entries, (original.walked.broke, original.walked.states, True))
        assert kept[1] == anew[1], one.name
        compared += isinstance(kept[0], KeptEntries)
        if kept[0] is original.entries:
            assert print_of(anew[0]) == print_of(original.entries), one.name
    assert compared > compared_min


def come_to(make, original):
    """The entries, and what a walk over them comes to, or raises."""
    try:
        entries = make()
        if entries is None:
            return None, None
        found = walk(entries, 5 * original.walked.states)
    except Exception as error:
        return "raised", type(error)
    return entries, (found.broke, found.states, found.complete)


# -- going on -------------------------------------------------------------------------------------------------------


def test_a_campaign_that_was_stopped_goes_on_where_it_was(field, verdicts, tmp_path):
    path, head = tmp_path / "tank.jsonl", CampaignHead("tank", field.print())
    some = list(field.mutants)[:12]
    going = campaign.judge_mutants(field, some, CampaignResults(path, head), 1, lambda text: None)
    for _ in range(5):
        next(going)
    going.close()
    with path.open("ab") as file:
        file.write(b'{"name":"tank/5/del')  # a line that was torn
    results = CampaignResults(path, head)
    assert list(results.verdicts) == [one.name for one in some[:5]]
    names = [one.name for one in campaign.judge_mutants(field, some, results, 1, lambda text: None)]
    assert names == [one.name for one in some[5:]]
    again = CampaignResults(path, head).verdicts
    assert {name: one.verdict for name, one in again.items()} == {one.name: verdicts[one.name].verdict for one in some}


def test_verdicts_on_other_machines_or_systems_do_not_count_unless_they_are_kept(field, verdicts, tmp_path):
    path, head = tmp_path / "tank.jsonl", CampaignHead("tank", field.print())
    results = CampaignResults(path, head)
    for name in ("tank/0/deleted", "tank/3/deleted"):
        results.add(verdicts[name])
    other = CampaignHead("tank", "another")
    assert CampaignResults(path, other, ["tank/0/deleted", "tank/3/deleted"]).verdicts.keys() == {"tank/0/deleted"}
    assert CampaignResults(path, head).verdicts == {}
    assert CampaignScope(CampaignShape(NAME, states_max=500)).print() != field.print()


@pytest.mark.long
def test_two_processes_say_what_one_says(field, verdicts, tmp_path):
    results = CampaignResults(tmp_path / "tank.jsonl", CampaignHead("tank", field.print()))
    some = [one for one in field.mutants if one.name in EXPECTED]
    said = {
        one.name: (one.verdict, one.by) for one in campaign.judge_mutants(field, some, results, 2, lambda text: None)
    }
    assert said == EXPECTED


@pytest.mark.long
def test_a_mutant_that_eats_memory_or_ends_its_process_is_not_judged_and_all_others_are(tmp_path):
    field = CampaignScope(CampaignShape("tank_protocol:GLUTTON_PROTOCOL"))
    results = CampaignResults(tmp_path / "glutton.jsonl", CampaignHead("glutton", field.print()))
    said = {one.name: one for one in campaign.judge_mutants(field, field.mutants, results, 2, lambda text: None)}
    assert said.keys() == {one.name for one in field.mutants}
    hungry, dead = said["glutton_protocol.eat/5/1-is-2"], said["glutton_protocol.bite/1/lt-is-lte"]
    assert (hungry.verdict, hungry.by, hungry.where) == ("not judged", "too much memory", "feast")
    assert (dead.verdict, dead.by) == ("not judged", "its process ended: exit code 7")
    assert said["glutton_protocol.eat/1/3-is-4"].verdict == "equal"
    assert CampaignResults(results.path, results.head).head.systems == ("feast",)


def test_a_process_that_hangs_ends_by_its_processor_time():
    """Where no signal of Python's is heard, as in native code."""

    def hang():
        apart.limit_processor_time(0)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPROF})
        while True:
            pass

    process = apart.FORK.Process(target=hang)
    process.start()
    process.join()
    assert apart._describe_end(process.exitcode) == "SIGXCPU"


def test_systems_that_break_without_a_mistake_are_said_in_a_line(field, tmp_path):
    with (
        pytest.raises(ConfigurationError, match=r"^system 'flood' = 'CUPS': breaks without any mistake"),
        apart.judge_apart(breaking, 1, lambda text: None) as words,
    ):
        list(words)


def breaking(say):
    raise ConfigurationError("system 'flood'", "CUPS", "breaks without any mistake; mend that first")


def test_a_process_that_explores_and_dies_is_said(tmp_path):
    with (
        pytest.raises(GaplessError, match=r"ended .exit code 9.; what was judged is kept"),
        apart.judge_apart(dying, 1, lambda text: None) as words,
    ):
        list(words)


def dying(say):
    os._exit(9)


def test_what_never_happens_without_a_mistake_either_says_nothing_of_a_mutant(field, monkeypatch):
    monkeypatch.setattr("tank_protocol.never_seen", True)
    judge = field.judge(lambda text: None)
    assert judge.originals[0].walked.never == ("overflow",)
    one = next(one for one in field.mutants if one.name == "tank/3/deleted")
    assert judge.judge(one).verdict == "lived"


# -- the command ----------------------------------------------------------------------------------------------------


def test_the_command_judges_one_by_its_name(tmp_path, capsys):
    arguments = ["mutate", NAME, "--out", str(tmp_path), "--only"]
    assert run([*arguments, "tank/0/deleted"]) == 0
    shown = capsys.readouterr()
    assert "| deleted | 1 | 1 |" in shown.out
    assert shown.err.startswith("tank: 1 mutants: row 1 (deleted 1)")
    assert run([*arguments, "tank/3/deleted", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["verdict"]) for one in said["verdicts"]] == [("tank/3/deleted", "lived")]
    assert run([*arguments, "tank_protocol.drain/2/without-turns"]) == 3
    assert run([*arguments, "tank/9/deleted"]) == 2


def test_the_command_lists_what_it_would_judge(tmp_path, capsys):
    assert run(["mutate", NAME, "--list", "--group", "guard", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        f"tank/{row}/{how}" for row in (0, 2) for how in ("unguarded", "negated")
    ]
    assert not list(tmp_path.iterdir())


def test_a_sample_is_drawn_by_its_seed(field):
    one, same, other = (pick_mutants(field.mutants, (), (), 10, seed) for seed in (1, 1, 2))
    assert [each.name for each in one] == [each.name for each in same]
    assert [each.name for each in one] != [each.name for each in other]
    assert len(one) == 10
