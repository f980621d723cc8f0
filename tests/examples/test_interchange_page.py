"""docs/interchange.md: every command is run where the example is, and says what it says there."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import networkx as nx
import pytest
from page_listings import read_commands

from statemachines.cli import run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "interchange.md"
BLOCK = re.compile(r"^```(json|console)(?: (\S+))?\n(.*?)^```$", re.M | re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    shutil.copy(ROOT / "examples" / "two_phase_commit.py", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("two_phase_commit", None)


def test_every_listing_runs_and_every_command_says_what_the_page_says(folder, capsys):
    count = 0
    for language, name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "json":
            (folder / name).write_text(text)
            continue
        for command, lines in read_commands(text):
            command, _, file = command.partition(" > ")
            code = run(shlex.split(command)[1:])
            output = capsys.readouterr()
            if file:
                (folder / file).write_text(output.out)
            broken = "--itf early" in command or any(line.startswith("VIOLATED") for line in lines)
            assert code == int(broken), output.err
            assert [line for line in lines if line not in output.out + output.err] == []
            count += 1
    assert count == 8
    assert len(nx.read_graphml(folder / "manager.graphml")) == 4
    assert len(nx.read_graphml(folder / "states.graphml")) == 288
