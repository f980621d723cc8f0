"""The catalogue: every machine is in it, and every clause that a table names stands on a page."""

from __future__ import annotations

import pkgutil
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import statemachines
from statemachines import catalogue, registry
from statemachines.catalogue import Clause, parse_clauses
from statemachines.kernel import ConfigurationError, Fsm

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "shared_subscriptions",
    "persistent_sessions",
    "missed_samples",
    "sequence_windows",
    "cursor_recovery",
    "mqtt_connections",
)

OURS = tuple(one for one in registry.protocols() if (ROOT / "spec" / one.name).is_dir())
"""Others may be installed beside them."""

PAGE = """# A page

Prose with **bold** and - dashes.

## Door (of a house)

- **DR-01** A door that is pushed
  opens (or breaks). ("The door", part 2; D-01)
- **DR-02** A late push changes nothing. (as DR-01)
- **DR-03** Nobody knows where this comes from.

After the list.
"""


def test_each_clause_cites_a_heading_or_a_decision_and_each_requirement_of_a_source_is_answered(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "tools")
    sources = import_module("sources")
    assert sources.main() == 0
    known = sources.list_names() - {"MS-D1", "MS-33"}
    assert [fault.split()[0] for fault in sources.find_faults("missed_samples", known)][:2] == ["MS-01", "MS-02"]
    assert len(list(sources.find_faults("missed_samples", known))) > 5


@pytest.mark.parametrize("name", catalogue.names())
def test_a_machine_is_found_by_the_name_it_has(name):
    fsm = catalogue.machine(name)
    assert fsm.full_name == name
    assert fsm.name in catalogue.protocol_of(name).machines
    assert catalogue.machine(catalogue.place_of(name)) is fsm
    if [one.partition("/")[2] for one in catalogue.names()].count(fsm.name) == 1:
        assert catalogue.machine(fsm.name) is fsm


def test_names_are_unique_since_traces_go_by_them():
    assert len(set(catalogue.names())) == len(catalogue.names())


def test_no_machine_is_missing():
    """Every machine that a module of a protocol declares, by itself or in a process."""
    declared = set()
    for folder in FOLDERS:
        path = Path(statemachines.__file__).parent / folder
        for found in pkgutil.iter_modules([str(path)]):
            module = import_module(f"statemachines.{folder}.{found.name}")
            declared |= {(value.protocol, value.name) for value in vars(module).values() if isinstance(value, Fsm)}
    listed = {(protocol.name, name) for protocol in OURS for name in (*protocol.machines, *protocol.processes)}
    assert declared == listed
    assert ("shared_subscriptions", "leader") in declared


@pytest.mark.parametrize("name", catalogue.names())
def test_every_clause_that_a_table_names_is_on_the_page(name):
    fsm = catalogue.machine(name)
    named = {line.clause for line in fsm.lines} | {invariant.clause for invariant in fsm.invariants}
    assert named <= set(catalogue.clauses(catalogue.protocol_of(name).name))


@pytest.mark.parametrize("protocol", OURS, ids=lambda protocol: protocol.name)
def test_every_clause_has_a_text_and_a_source(protocol):
    clauses = catalogue.clauses(protocol.name)
    assert clauses
    assert [clause.id for clause in clauses.values() if not (clause.text and clause.source and clause.part)] == []


@pytest.mark.parametrize("protocol", OURS, ids=lambda protocol: protocol.name)
def test_no_clause_has_two_texts(protocol):
    parsed = list(parse_clauses(catalogue.page(protocol.name).read_text(encoding="utf-8")))
    assert len(parsed) == len({clause.id for clause in parsed})


@pytest.mark.parametrize("protocol", OURS, ids=lambda protocol: protocol.name)
def test_the_page_is_shipped_in_the_package(protocol):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    included = settings["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included[f"spec/{protocol.name}"] == f"statemachines/{protocol.name}"


def test_a_page_in_the_package_comes_first(tmp_path, monkeypatch):
    (tmp_path / "clauses.md").write_text(PAGE, encoding="utf-8")
    monkeypatch.setattr(catalogue, "files", lambda package: tmp_path)
    assert catalogue.page("shared_subscriptions") == tmp_path / "clauses.md"


def test_a_page_that_is_nowhere_is_an_error_that_names_the_places(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "files", lambda package: tmp_path / "a")
    with pytest.raises(ConfigurationError, match=r"is missing: neither .*a nor .*spec/shared_subscriptions has it"):
        catalogue.page("shared_subscriptions")
    with pytest.raises(ConfigurationError, match=r"its page properties\.md is missing"):
        catalogue.page("shared_subscriptions", "properties.md")


def test_clauses_may_take_several_lines_and_hold_brackets():
    assert list(parse_clauses(PAGE)) == [
        Clause("DR-01", "Door (of a house)", "A door that is pushed opens (or breaks).", '"The door", part 2; D-01'),
        Clause("DR-02", "Door (of a house)", "A late push changes nothing.", "as DR-01"),
        Clause("DR-03", "Door (of a house)", "Nobody knows where this comes from.", ""),
    ]


def test_an_unknown_machine_is_an_error_that_says_what_was_meant_perhaps():
    with pytest.raises(ConfigurationError, match=r"machine = 'borower': unknown; did you mean 'borrower'\? there are:"):
        catalogue.machine("borower")
    with pytest.raises(ConfigurationError, match=r"protocol = 'x': unknown; there are: .*cursor_recovery, .*or give m"):
        registry.protocol("x")


@pytest.mark.parametrize("name", catalogue.names())
def test_a_summary_is_one_line_about_the_machine(name):
    summary = catalogue.summary(name)
    assert summary
    assert "source:" not in summary
    assert "\n" not in summary
    assert not summary.lower().startswith(name.partition("/")[2] + ":")


def test_children_are_in_the_catalogue_too():
    for name in catalogue.names():
        for member in catalogue.machine(name).family():
            assert catalogue.machine(member.full_name) is member


def test_the_machines_of_a_protocol_come_in_its_order():
    assert [fsm.name for fsm in catalogue.machines("shared_subscriptions")][:2] == ["borrower", "stream"]
