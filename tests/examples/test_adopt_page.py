"""docs/adopt.md: its listings are put together in an empty folder, its commands say what they say there."""

import os
import re
import shlex
import subprocess
import sys
import unittest
from pathlib import Path

import pytest
from hypothesis import settings
from page_listings import read_commands

from statemachines.cli import run

PAGE = Path(__file__).parents[2] / "docs" / "adopt.md"
BLOCK = re.compile(r"^```(python|console)(?: (\S+))?\n(.*?)^```$", re.M | re.S)
CODES = {"--test": 1, 'paid >= 0" --within "paid <= 3': 1, '--holds "paid >= -2"': 3, "counted:": 2}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder, where modules of the page are imported from, and forgotten afterwards."""
    names = ("shop", "counted", "test_shop", "serve")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    before = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    yield tmp_path
    for name in names:
        sys.modules.pop(name, None)
    sys.modules.update(before)


def test_every_listing_runs_and_every_command_says_what_the_page_says(folder, capsys):
    shown = 0
    for language, name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if language == "python":
            (folder / name).write_text(text)
            continue
        for command, lines in read_commands(text):
            words = shlex.split(command)
            if words[0] == "gapless":
                code = run(words[1:])
                said = capsys.readouterr()
                assert code == next((one for part, one in CODES.items() if part in command), 0), (command, said)
                output = said.out + said.err
            else:
                environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
                done = subprocess.run([sys.executable, *words[1:]], env=environment, capture_output=True, text=True)
                output = done.stdout + done.stderr
                assert done.returncode == 0, output
            missing = [line for line in lines if line not in output]
            assert missing == [], output
            shown += 1
    assert shown == 9


def test_the_tests_of_the_page_pass(folder):
    for _, name, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if name in ("shop.py", "test_shop.py"):
            (folder / name).write_text(text)
    import test_shop

    test_shop.test_the_order_keeps_its_promises()
    test_shop.TestOrder.settings = settings(test_shop.TestOrder.settings, max_examples=8)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(test_shop.TestOrder).run(result)
    assert result.wasSuccessful(), result.failures
    assert result.testsRun == 1
