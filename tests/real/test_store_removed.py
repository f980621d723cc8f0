"""The database is removed under running processes: each of them says so and ends; nobody goes on in a new file."""

from __future__ import annotations

import time

import pytest

from tests.real.outside import LeaderHost, Process
from tests.real.stored_group import declare_group


def test_processes_whose_database_was_removed_say_so_and_end(tmp_path):
    store, got = tmp_path / "messages.db", tmp_path / "got.txt"
    declare_group(store, start="now")
    lines = tmp_path / "lines.txt"
    lines.write_text("\n".join("x" for _ in range(10_000)))
    shared = ("--store", store, "--state", tmp_path)
    publishing = ("node", "publisher", *shared, "--input", lines, "--rate", 20, "--batch", 1)
    with LeaderHost(tmp_path, store) as host:
        consuming = ("node", "consumer", "$shared/g/#", *shared, "--out", got, "--leader", f"127.0.0.1:{host.port}")
        with (
            Process(tmp_path / "publisher.log", *publishing) as publisher,
            Process(tmp_path / "consumer.log", *consuming) as consumer,
        ):
            end = time.monotonic() + 60
            while not (got.exists() and got.stat().st_size):
                assert time.monotonic() < end, consumer.said
                time.sleep(0.05)
            for path in tmp_path.glob("messages.db*"):
                path.unlink()
            for process in (publisher, consumer, host):
                assert process.child.wait(60) != 0
                (line,) = [one for one in process.said.splitlines() if one.startswith("error:")]
                assert "messages.db: was removed" in line
                assert "Traceback" not in process.said
    assert not store.exists()


@pytest.mark.parametrize(("removed", "named"), [("s.db*", "s.db"), ("s.db-wal", "s.db-wal")])
def test_SS_433_a_node_of_sessions_whose_database_was_removed_says_so_and_ends(tmp_path, removed, named):
    store = tmp_path / "s.db"
    options = ("--store", store, "--name", "a", "--listen", "127.0.0.1:0", "--look-ms", 100, "--lease-ms", 300)
    with Process(tmp_path / "node.log", "node", "sessions", *options) as node:
        assert node.child.stdout.readline().startswith("listening on "), node.said
        for path in tmp_path.glob(removed):
            path.unlink()
        assert node.child.wait(60) == 2
        (line,) = [one for one in node.said.splitlines() if one.startswith("error:")]
        assert f"{named}: was removed" in line
        assert "Traceback" not in node.said
    assert store.exists() is (removed != "s.db*")
