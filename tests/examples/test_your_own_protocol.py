"""docs/your_own_protocol.md: listings are put together in an empty folder, commands say what they say there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from page_listings import read_commands

PAGE = Path(__file__).parents[2] / "docs" / "your_own_protocol.md"
BLOCK = re.compile(r"^```(python|toml|console)(?: (\S+)( \+)?)?\n(.*?)^```$", re.M | re.S)
FEW = "[pytest]\naddopts = -p no:cacheprovider -p few\n"
FEWER_EXAMPLES = "from hypothesis import settings\nsettings.register_profile('few', max_examples=8, deadline=None, " + (
    "derandomize=True, database=None)\nsettings.load_profile('few')\n"
)


def blocks():
    """(language, file name, appended, text) of each listing, in the order of the page."""
    return [found.groups() for found in BLOCK.finditer(PAGE.read_text(encoding="utf-8"))]


def run(command, folder, path):
    """A command of the page, by this Python."""
    python = sys.executable
    line = re.sub(r"^gapless ", f"{python} -m statemachines ", command)
    line = re.sub(r"^pytest ", f"{python} -m pytest -c few.ini --rootdir . ", line)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *path])}
    done = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What every command of the page says, in its order, in a folder that grows as the page has it."""
    folder = tmp_path_factory.mktemp("own")
    path = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    (folder / "few.ini").write_text(FEW)
    (folder / "few.py").write_text(FEWER_EXAMPLES)
    heard = []
    for language, name, more, text in blocks():
        if language != "console":
            kept = (folder / name).read_text() + "\n\n" if more else ""
            (folder / name).write_text(kept + text)
            continue
        for command, lines in read_commands(text):
            heard.append((command, lines, run(command, folder, path)))
    return folder, heard


@pytest.mark.long
def test_every_command_says_what_the_page_says(said):
    _, heard = said
    assert len(heard) >= 14
    wrong = [
        (command, line, output)
        for command, lines, output in heard
        for line in lines
        if " ".join(line.split()) not in " ".join(output.split())
    ]
    assert wrong == []


@pytest.mark.long
def test_the_processes_of_the_page_run_over_tcp_and_one_that_is_killed_comes_back(said):
    folder, _ = said
    base = [sys.executable, "-m", "statemachines", "node"]
    common = ["--trace", "trace"]

    def start(*arguments):
        return subprocess.Popen(
            [*base, *arguments, *common], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def wait_for(process, word):
        """A line that begins so; the end of the output is an error that shows what it said."""
        for line in process.stdout:
            if line.startswith(word):
                return line
        raise AssertionError(process.stderr.read())

    server = start("lock:PROTOCOL/server", "--listen", "127.0.0.1:0")
    running = [server]
    try:
        address = wait_for(server, "listening on ").split()[-1]
        one = start("lock:PROTOCOL/holder", "--name", "holder-1", "--server", address)
        running.append(one)
        first = wait_for(one, "Locked")
        one.kill()
        one.wait()
        again = start("lock:PROTOCOL/holder", "--name", "holder-1", "--server", address)
        running.append(again)
        assert wait_for(again, "Locked") > first
    finally:
        for process in running:
            process.terminate()
            process.communicate()
    lives = {path.name for path in (folder / "trace").glob("*.ndjson")}
    assert {"server-1~1.ndjson", "holder-1~1.ndjson", "holder-1~2.ndjson"} <= lives
    judged = run("gapless analyze trace --protocol lock:PROTOCOL --engine local", folder, [])
    assert re.search(r"tokens +properties +held +2 looked at", judged), judged
    assert "inconclusive" not in judged
