"""`gapless show` of a process: its table, the kinds of its parties and its routes."""

from __future__ import annotations

import msgspec
import pytest
from typer.testing import CliRunner

from statemachines import catalogue, registry
from statemachines.cli import app
from statemachines.kernel import ConfigurationError, Protocol

RUNNER = CliRunner(env={"COLUMNS": "160", "TERM": "dumb", "NO_COLOR": "1"})


def show(*arguments):
    done = RUNNER.invoke(app, ["show", *arguments])
    return done.exit_code, done.output


@pytest.mark.parametrize("name", ["registry", "shared_subscriptions/registry"])
def test_a_process_is_shown_with_its_table_its_parties_and_its_routes(name):
    code, output = show(name)
    assert code == 0
    assert "start_leader" in output
    assert "at most 10000, such as LIFE/1" in output
    assert "is_for_leader_itself" in output
    assert "SS-281" in output


def test_a_process_is_drawn_as_boxes_and_arrows():
    code, output = show("handler", "--mermaid")
    assert code == 0
    assert output.startswith("flowchart LR\n")
    assert '    session -- "progressed SS-180" --> borrower\n' in output
    assert output.endswith("    application([application])\n")


def test_a_process_as_json_has_its_routes():
    code, output = show("agent", "--json")
    found = msgspec.json.decode(output)
    assert code == 0
    assert {one["name"] for one in found["kinds"]} == {"declarer", "borrower", "witness"}
    assert {"claim_read"} in [set(one["events"]) for one in found["routes"]]


def test_a_process_has_one_kind_of_diagram():
    code, output = show("agent", "--graphviz")
    assert code == 2
    assert "a process has a Mermaid diagram" in output


def test_a_process_and_a_machine_of_one_name_are_refused():
    with pytest.raises(ConfigurationError, match="is the name of a machine of it; rename one"):
        Protocol("p", "PP", {"m": "a:B"}, processes={"m": "a:C"})
    with pytest.raises(ConfigurationError, match="must be module:ATTRIBUTE"):
        Protocol("p", "PP", {"m": "a:B"}, processes={"n": "nowhere"})


def test_two_processes_of_one_name_are_refused(monkeypatch):
    place = catalogue.find_process("registry").protocol + ".registry:REGISTRY"
    two = tuple(Protocol(name, "PP", {}, processes={"registry": f"statemachines.{place}"}) for name in ("one", "two"))
    monkeypatch.setattr(registry, "protocols", lambda: two)
    with pytest.raises(ConfigurationError, match="several protocols have one: say one/registry or two/registry"):
        catalogue.find_process("registry")
    with pytest.raises(ConfigurationError, match="calls itself 'shared_subscriptions/registry': both must be the same"):
        catalogue.find_process("one/registry")


def test_a_process_is_listed_with_the_machines_of_its_protocol():
    code, output = show("shared_subscriptions")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines() if "a process of" in line] == [
        "registry",
        "agent",
        "handler",
    ]
    assert "a process of session, declarer, borrower, witness, private, standby" in output
    code, output = show()
    assert "processes: session_host" in output


def test_what_no_route_brings_to_a_party_is_said():
    code, output = show("session_host")
    assert code == 0
    assert (
        "party   writer      no route brings start, hand, hand_range, marker_wanted, live_known, live_gone\n" in output
    )
    assert "party   collector   no route brings collect; nothing that it tells has a route\n" in output
    code, output = show("agent")
    assert "party   witness    no route leads here\n" in output
