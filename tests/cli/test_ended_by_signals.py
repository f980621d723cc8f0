"""Signals: a publisher that has not stored all says how much it has, and Ctrl-C in the first second is one line."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from statemachines import cli
from statemachines.interrupts import INTERRUPTED

LINES = 5_000


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_publisher_that_is_ended_says_how_many_messages_are_stored(tmp_path, capsys, monkeypatch, number):
    """In this process: the signal comes when 1 600 messages are stored."""
    from statemachines.drivers.shared_subscriptions.publisher import Publisher

    path, store = tmp_path / "lines.txt", tmp_path / "s.db"
    path.write_text("line\n" * LINES)
    append, stored = Publisher.publish, []

    async def publish(self, topic, payloads, **head):
        done = await append(self, topic, payloads, **head)
        stored.extend(payloads)
        if len(stored) == 1_600:
            signal.raise_signal(number)
        return done

    monkeypatch.setattr(Publisher, "publish", publish)
    monkeypatch.setattr("statemachines.drivers.signals._kept", [])
    words = ["node", "publisher", "--store", str(store), "--input", str(path), "--rate", "100000"]
    assert cli.run([*words, "--state", str(tmp_path)]) == INTERRUPTED
    said = capsys.readouterr()
    count = int(re.search(r"ended by a signal: (\d+) of 5000 messages are known to be stored", said.err).group(1))
    assert count == len(stored) < LINES
    assert "published" not in said.out
    assert rows_in(store) == count


def rows_in(path):
    with closing(sqlite3.connect(path)) as sql:
        return sql.execute("SELECT sum(count) FROM streams").fetchone()[0]


def test_ctrl_c_while_modules_are_imported_is_one_line():
    """The signal comes at the first import of typer; nothing of ours runs before that but the handler."""
    program = (
        "import importlib.abc, os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "wanted, sys.argv[1:] = sys.argv[1], sys.argv[2:]\n"
        "class First(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == wanted:\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, First())\n"
        "from statemachines.entry import main\n"
        "main()\n"
    )
    runs = {"typer": ["show"], "statemachines_sim.campaign": ["campaign", "quiet"], "statemachines_bench": ["bench"]}
    running = [
        subprocess.Popen(
            [sys.executable, "-c", program, module, *words],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "NO_COLOR": "1"},
        )
        for module, words in runs.items()
    ]  # fmt: skip
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == INTERRUPTED
        assert said == "interrupted: nothing had begun yet\n"
