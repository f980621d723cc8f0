"""The texts of every protocol: one form, nothing cited that is not there, no word used before it is defined."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from statemachines import catalogue, registry
from statemachines.pages import Property, parse_decisions, parse_properties, parse_terms

ROOT = Path(__file__).parents[2]
PROTOCOLS = tuple(name for name in registry.names() if (ROOT / "spec" / name).is_dir())
"""Ours; others may be installed beside them."""
SOURCES = ("statemachines", "sim", "spec", "reports", "tools")
PARTS = ("clauses.md", "properties.md", "decisions.md", "scenarios.md")

JUDGED = frozenset({"Always", "Stepwise", "Eventually", "Sometimes", "Observer"})
"""What the explorer's properties are made with; the first argument is the name."""

EVIDENCE = "Sometimes"
"""Says that something happens at all, against empty models: it need not be about a promise."""


PAGE = """# P

## Safety

- **S1 A title.** What is
  promised.
  - terms: `a`, `b`
  - carried by: XX-01,
    XX-2
  - checked: somewhere
  - also called: `rows`
- **no property** here
"""


def text_of(protocol: str, part: str) -> str:
    return catalogue.page(protocol, part).read_text(encoding="utf-8")


def sources_of(protocol: str) -> list[Path]:
    """Every file of ours that may speak of the protocol: its own folders, and those that are of no protocol."""
    others = set(PROTOCOLS) - {protocol}
    files = [path for folder in SOURCES for path in sorted((ROOT / folder).rglob("*.py"))]
    return [path for path in files if not others & set(path.parts)]


def may_name(path: Path) -> bool:
    """To parse a file takes long, and most of them name no property."""
    return (
        re.search(rf"[\"'][SL][0-9]|\b(?:{'|'.join(sorted(JUDGED))})\(", path.read_text(encoding="utf-8")) is not None
    )


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def beginning(node: ast.expr) -> str:
    """The constant text that a string begins with ("" where it is no string)."""
    if isinstance(node, ast.JoinedStr):
        return beginning(node.values[0]) if node.values else ""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def named_in_code(protocol: str) -> set[str]:
    """What code calls a property of shared subscriptions: S1 to L10 in any string, and the names the explorer has."""
    found = set()
    for path in sources_of(protocol):
        for node in ast.walk(tree_of(path)) if may_name(path) else ():
            if matched := re.match(r"[SL][0-9]+\b", beginning(node) if isinstance(node, ast.expr) else ""):
                found.add(matched[0])
            if isinstance(node, ast.Call) and node.args and called(node) in JUDGED - {EVIDENCE}:
                found.add(beginning(node.args[0]).strip())
    return found - {""}


def called(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("part", PARTS)
def test_every_protocol_has_the_same_parts(protocol, part):
    assert text_of(protocol, part).startswith("# ")
    assert catalogue.properties(protocol)
    assert catalogue.decisions(protocol)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_property_says_what_it_needs(protocol):
    for one in catalogue.properties(protocol).values():
        assert one.part in ("Safety", "Liveness"), one.id
        assert one.title, one.id
        assert one.text, one.id
        assert one.terms, one.id
        assert one.clauses, one.id
        assert one.checked, one.id


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_property_decision_or_term_is_there_twice(protocol):
    properties = [one.id for one in parse_properties(text_of(protocol, "properties.md"))]
    decisions = [one.id for one in parse_decisions(text_of(protocol, "decisions.md"))]
    texts = (text_of(protocol, "clauses.md"), text_of(protocol, "properties.md"))
    terms = [one.name for text in texts for one in parse_terms(text)]
    for found in (properties, decisions, terms):
        assert sorted(found) == sorted(set(found))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_a_property_cites_is_there(protocol):
    clauses, terms = catalogue.clauses(protocol), catalogue.terms(protocol)
    for one in catalogue.properties(protocol).values():
        assert set(one.clauses) <= set(clauses), one.id
        assert set(one.terms) <= set(terms), one.id


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_term_is_not_used_before_it_is_defined(protocol):
    """Within "Terms": whatever is set as code, and is a term, stands behind the place that defines it."""
    for part in ("clauses.md", "properties.md"):
        text = text_of(protocol, part)
        text = text[: text.index("\n|")] if "\n|" in text else text
        for term in parse_terms(text):
            assert text.index(f"`{term.name}`") == text.index(f"**`{term.name}`**") + 2, f"{part}: {term.name}"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_symbol_of_a_clause_or_property_is_a_term(protocol):
    """A word with an underscore is a symbol: a term, or a message or table entry that "Terms" shows."""
    page = text_of(protocol, "clauses.md")
    shown = set(re.findall(r"`(\w+)", page[: page.index("- **" + registry.protocol(protocol).prefix)]))
    known = set(catalogue.terms(protocol)) | shown
    said = [one.text for one in catalogue.clauses(protocol).values()]
    said += [one.text for one in catalogue.properties(protocol).values()]
    used = {word for text in said for word in re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", text)}
    assert used - known == set()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_decision_that_a_clause_or_a_program_cites_is_there(protocol):
    known = {*catalogue.decisions(protocol), *tool_decisions()}
    for part in PARTS:
        assert cited(text_of(protocol, part)) <= known, part
    for path in sources_of(protocol):
        assert cited(path.read_text(encoding="utf-8")) <= known | every_decision(), path


def cited(text: str) -> set[str]:
    return set(re.findall(r"\b(?:[A-Z]{2}-D|D-)[0-9]+\b", text))


def tool_decisions() -> set[str]:
    return {one.id for one in parse_decisions((ROOT / "spec" / "DECISIONS.md").read_text(encoding="utf-8"))}


def every_decision() -> set[str]:
    return {one for protocol in PROTOCOLS for one in catalogue.decisions(protocol)}


def test_a_number_of_a_decision_is_given_once():
    own = [one for protocol in PROTOCOLS for one in catalogue.decisions(protocol)]
    assert len(own) == len(set(own))
    assert tool_decisions().isdisjoint(own)
    assert len(tool_decisions()) > 5


def test_every_property_that_code_names_is_on_the_page_and_the_other_way_round():
    named = named_in_code("shared_subscriptions")
    assert {one for one in named if not says(one, names_of("shared_subscriptions"))} == set()
    assert set(catalogue.properties("shared_subscriptions")) - {one.split()[0] for one in named} == set()


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if "sim" in registry.protocol(name).areas])
def test_what_the_simulator_judges_is_on_the_page(protocol):
    assert set(registry.load_area(protocol, "sim").properties) <= names_of(protocol)


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if "spec" in registry.protocol(name).areas])
def test_what_the_explorer_judges_is_on_the_page(protocol):
    part = registry.load_area(protocol, "spec")
    for system in map(part.system, part.systems):
        judged = [one.name for one in system.properties if type(one).__name__ != EVIDENCE]
        judged += [one.name for one in part.obligations(system)]
        assert [name for name in judged if not says(name, names_of(protocol))] == [], system.name


def names_of(protocol: str) -> set[str]:
    """The ids of a protocol's properties, and what else tools call them."""
    properties = catalogue.properties(protocol)
    return {*properties, *(name for one in properties.values() for name in one.names)}


@pytest.mark.parametrize("protocol", [name for name in PROTOCOLS if "reports" in registry.protocol(name).areas])
def test_every_check_of_the_reports_is_what_some_property_is_also_called(protocol):
    checks = {check.name for check in registry.load_area(protocol, "reports").checks}
    assert checks
    assert checks <= names_of(protocol)


def says(name: str, known: set[str]) -> bool:
    """By its name, by what it is also called, or by how that begins ("S10 consumer-1 leader-1", "session of ...")."""
    return any(name == one or name.startswith(f"{one} ") for one in known)


def test_the_promises_of_the_smaller_protocols_are_named_by_their_tests():
    for protocol in ("missed_samples", "cursor_recovery", "persistent_sessions", "sequence_windows"):
        tests = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / protocol).rglob("*.py")))
        assert [one for one in catalogue.properties(protocol) if not re.search(rf"\b{one}\b|_{one}_", tests)] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_clause_that_a_program_or_a_test_cites_is_on_the_page(protocol):
    prefix = registry.protocol(protocol).prefix
    known = set(catalogue.clauses(protocol))
    for path in [*sources_of(protocol), *sorted((ROOT / "tests").rglob("test_*.py"))]:
        found = {f"{prefix}-{number}" for number in re.findall(rf"\b{prefix}-([0-9]+)\b", path.read_text("utf-8"))}
        assert found <= known, path


def test_a_property_is_read_with_its_lines():
    assert list(parse_properties(PAGE)) == [
        Property("S1", "Safety", "A title", "What is promised.", ("a", "b"), ("XX-01", "XX-2"), "somewhere", ("rows",))
    ]
