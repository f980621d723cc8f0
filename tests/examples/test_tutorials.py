"""docs/tutorials and operating: each page is followed in an empty folder; its commands say what it says."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from shutil import copy

import pytest
from page_listings import find_difference, read_commands

from statemachines.testing.process_harness import free_port

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs/tutorials").glob("*.md"))
FOLLOWED = [*PAGES, ROOT / "docs/operating.md"]
"""Pages whose commands are run as they stand."""
STEP = re.compile(r" *\d+\. ")
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
EARLY = re.compile(r"^cannot reach .*; trying again until it answers\n", re.M)
"""What a client says that is sooner than its node, which it may be or not."""
CODES = {
    "gapless judge jobs.ndjson": (1, 3),
    "gapless conform": (0, 1),
    "gapless check": (0, 1),
    "gapless replay": (1,),
}
"""Beginning of a command -> the exit codes that its page is about; else 0."""


def follow(page, folder):
    """Write the files of the page, and run its commands; (command, what it must say, what it says, exit code)."""
    port = free_port()
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "LEADER": f"127.0.0.1:{port}",
        "NODES": f"127.0.0.1:{port},127.0.0.1:{free_port()}",
    }
    for name in re.findall(r"\.\./examples/(\w+\.py)", page.read_text(encoding="utf-8")):
        copy(ROOT / "examples" / name, folder)
    for language, name, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if name:
            (folder / name).write_text(text)
        elif language == "console":
            for command, lines in read_commands(text):
                done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, text=True, timeout=120, check=False)  # fmt: skip
                shown = [line for line in lines if not EARLY.match(f"{line}\n")]
                yield command, shown, EARLY.sub("", done.stdout), done.returncode


@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_every_command_says_what_the_page_says(page, tmp_path):
    count = 0
    for command, lines, said, code in follow(page, tmp_path):
        expected = next((codes for begin, codes in CODES.items() if command.startswith(begin)), (0,))
        expected = (1,) if "out_of_scope" in command else expected
        assert code in expected, said
        assert find_difference(lines, said) == "", said
        assert [line for line in lines if STEP.match(line) and line not in said] == [], "a step has its number"
        count += 1
    assert count >= 1


def test_the_tables_on_the_page_of_a_protocol_are_those_of_the_example():
    listings = [text for language, name, text in BLOCK.findall((ROOT / "docs/tutorials/protocol.md").read_text())
                if language == "python"]  # fmt: skip
    example = (ROOT / "examples/desk.py").read_text()
    assert len(listings) == 2
    assert [text for text in listings if text not in example] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_tutorial_has_at_most_80_lines(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 80


@pytest.fixture
def edited_desk(tmp_path, monkeypatch):
    """Checks the protocol of the tutorial with one text in place of another, as a reader may edit it."""
    monkeypatch.chdir(tmp_path)

    def check(text, other, *options):
        example = (ROOT / "examples/desk.py").read_text()
        assert text in example
        (tmp_path / "edited_desk.py").write_text(example.replace(text, other))
        words = [Path(sys.executable).parent / "gapless", "check", "edited_desk:NUMBERED", *options]
        return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)

    return check


def test_a_search_that_ends_early_names_the_component_with_most_entries(edited_desk):
    done = edited_desk("TURNS = 2", "TURNS = 3", "--states-max", "1500")
    assert (done.returncode, done.stderr) == (3, "")
    assert "most entries: desk, " in done.stdout
    assert "what only grows needs a bound" in done.stdout


def test_every_extra_of_the_package_is_on_the_page_about_installing():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    extras = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs/install.md").read_text(encoding="utf-8"), re.M)
    assert sorted(extras) == sorted(set(settings) - {"dev", "bench"})
    tutorials = re.search(r"\| `tutorials` \| (.*) \|", (ROOT / "docs/install.md").read_text(encoding="utf-8"))
    assert settings["tutorials"] == ["gapless[sim,spec,testing,reports]"]
    assert sorted(re.findall(r"`(\w+)`", tutorials[1])) == sorted(["sim", "spec", "testing", "reports"])


@pytest.mark.parametrize(
    ("text", "other", "told"),
    [
        ("*seen: sum(seen) <= 1", ": True", "property 'one works' = (0, 0): its function raises TypeError"),
        ("record: record.turn, TURNS", "record: record.trn, TURNS", "view of w1 = WorkerRecord("),
    ],
)
def test_a_function_of_a_declaration_that_raises_is_named(edited_desk, text, other, told):
    done = edited_desk(text, other)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert told in done.stderr
