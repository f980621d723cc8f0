"""What docs/test_your_implementation.md shows runs, and its tables have every message and field that there is."""

import re
import runpy
import sys
from pathlib import Path

import pytest

from statemachines import cli
from statemachines.kernel import name_of
from statemachines.testing.conformance.interface import INTERFACE
from statemachines.testing.conformance.role import role_of

PAGE = (Path(__file__).parents[2] / "docs" / "test_your_implementation.md").read_text()
ROLES = {
    "## The Borrower": "shared_subscriptions/borrower",
    "## The Writer": "persistent_sessions/writer",
    "## The owner of a session": "persistent_sessions/session",
    "## The Leader": "shared_subscriptions/leader",
}


def section(title):
    """What the page says under a title."""
    begin = PAGE.index(f"\n{title}\n") + len(title) + 2
    return PAGE[begin : PAGE.find("\n## ", begin)]


def said_and_heard(role):
    alphabet = role_of(role).interface.alphabet
    return [*alphabet.takes, *alphabet.sends, *alphabet.asks, *alphabet.tells]


KINDS = [(title, kind) for title, role in ROLES.items() for kind in said_and_heard(role)]


def listing(kind, after=""):
    return re.search(rf"```{kind}\n(.*?)```", PAGE[PAGE.index(after) :], re.DOTALL)[1]


@pytest.mark.long
def test_the_first_listing_fails_as_the_page_says(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_borrower.js").write_text(listing("javascript"))
    monkeypatch.chdir(tmp_path)
    command = re.search(r"^    gapless (conform borrower .*)$", PAGE, re.MULTILINE)[1].split()
    assert cli.run(command) == 1
    assert capsys.readouterr().out == listing("text")
    repeat = listing("text").splitlines()[-1].split("gapless ")[1].split()
    assert cli.run(repeat) == 1
    assert capsys.readouterr().out.splitlines()[:7] == listing("text").splitlines()[:7]


@pytest.mark.parametrize("after", ["## In Python", "Without a test runner"])
def test_the_listings_in_python_print_what_the_page_says(tmp_path, capsys, after):
    path = tmp_path / "page_listing.py"
    path.write_text(listing("python", after))
    runpy.run_path(str(path))
    assert capsys.readouterr().out == listing("text", after)


def test_the_listing_of_the_writer_fails_as_the_page_says(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_writer.py").write_text(listing("python", "## The Writer"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=":")
    command = re.search(r"^    gapless (conform .*)$", section("## The Writer"), re.MULTILINE)[1].split()
    assert cli.run(command) == 1
    assert capsys.readouterr().out == listing("text", "## The Writer")


@pytest.mark.parametrize(("title", "kind"), KINDS, ids=lambda one: one if isinstance(one, str) else name_of(one))
def test_every_message_stands_on_the_page_with_its_fields(title, kind):
    rows = [line for line in section(title).splitlines() if line.startswith("|")]
    row = next(line for line in rows if f"`{name_of(kind)}`" in line.split("|")[1])
    fields = re.findall(r"`(\w+)`", row.split("|")[2])
    assert fields == list(kind.__struct_fields__)


SECTIONS = {
    "missed_samples/publisher": "**A publisher** gets `source`",
    "missed_samples/reliability_cache": "**A cache**",
    "missed_samples/subscriber": "**A subscriber**",
    "sequence_windows/subscriber_window": "**A receiver**",
    "sequence_windows/publisher_window": "**A publisher** gets `subject`",
    "cursor_recovery/writer": "An operation gets",
    "cursor_recovery/reader": "An operation gets",
}


@pytest.mark.parametrize("name", SECTIONS)
def test_every_message_of_a_role_stands_in_its_section_with_its_fields(name):
    interface = role_of(name).interface
    part = re.split(r"\n(?:\*\*|## )", PAGE[PAGE.index(SECTIONS[name]) :])[0]
    said = part[: part.index("\n|")]
    assert set(interface.given) <= set(re.findall(r"`(\w+)`", said))
    found = {}
    for cells in (line.split("|") for line in part.splitlines() if line.startswith("|")):
        found |= dict.fromkeys(re.findall(r"`(\w+)`", cells[1]), re.findall(r"`(\w+)`", cells[2]))
    alphabet = interface.alphabet
    for kind in (*alphabet.takes, *alphabet.sends, *alphabet.asks, *alphabet.tells):
        assert found[name_of(kind)] == list(kind.__struct_fields__)


@pytest.mark.parametrize(("title", "role"), ROLES.items())
def test_what_init_has_stands_on_the_page(title, role):
    said = re.search(r"`init` has (.*?)\.\s", section(title), re.DOTALL)[1]
    given = role_of(role).interface.given
    assert set(re.findall(r"`(\w+)`", said)) == set(given)


def test_the_version_of_the_interface_stands_on_the_page():
    assert f'"interface": {INTERFACE}' in PAGE
