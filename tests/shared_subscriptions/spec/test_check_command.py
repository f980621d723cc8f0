"""`gapless check`: what it prints, exit codes, certificates."""

from __future__ import annotations

import msgspec
import pytest

from statemachines import cli
from statemachines_spec import certificates
from statemachines_spec.explorer.property import Eventually, View
from statemachines_spec.shared_subscriptions import SPEC


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


def test_a_violation_is_shown_with_its_shortest_run(gapless):
    code, out, _ = gapless("check", "shared_subscriptions", "--system", "late-copies", "--variant", "as_written")
    assert code == 1
    assert "VIOLATED S5" in out
    assert "a shortest run, 21 steps" in out


def test_a_diagram_or_a_test_instead_of_text(gapless):
    command = ("check", "shared_subscriptions", "--system", "late-copies", "--variant", "as_written")
    assert "sequenceDiagram" in gapless(*command, "--mermaid")[1]
    assert "def test_late_copies_s5" in gapless(*command, "--test")[1]


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


def test_a_certificate_is_checked_again(gapless, certificate):
    code, out, _ = gapless("check", "--certificate", str(certificate))
    assert code == 0
    assert "compared: bounds, states, transitions" in out
    assert "the same; checked within these bounds" in out


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


def test_obligations_are_judged_on_demand(gapless):
    code, out, err = gapless("check", "shared_subscriptions", "--system", "revoke-timeout", "--liveness")
    assert (code, err) == (0, "")
    assert "eventually L3 leader-1: revoking leads to none: open in 480 states" in out


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
