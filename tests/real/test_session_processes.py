"""Nodes of sessions as processes: names, ends, what is wrong with what they are given, sessions on disk."""

from __future__ import annotations

import asyncio

import pytest
from node_processes import PATIENCE_S

from statemachines import cli


def run(body):
    async def bounded():
        async with asyncio.timeout(PATIENCE_S):
            await body

    asyncio.run(bounded())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--store", "s.db"), "Missing option '--name'"),
        (("--store", "s.db", "--name", "a b"), "node = 'a b'"),
        (("--store", "s.db", "--name", "a", "--listen", "nowhere"), "HOST:PORT"),
        (("--store", "s.db", "--name", "a", "--peers", "x"), "HOST:PORT"),
        (("--store", "mysql://x", "--name", "a"), "must be a path, sqlite:///PATH or postgresql://"),
        (("--store", "s.db", "--name", "a", "--marker-ms", "20000"), "marker_ms = 20000: less than resume_ms"),
        (("--store", "s.db", "--name", "a", "--secret-file", "missing"), "missing"),
    ],
)
def test_what_cannot_be_is_said_and_is_wrong_usage(tmp_path, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(tmp_path)
    assert cli.run(["node", "sessions", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.replace("│", " ").split())
    assert "Traceback" not in error
