"""The database is removed under running processes: each of them says so and ends; nobody goes on in a new file."""

from __future__ import annotations

import time

from tests.real.outside import LeaderHost, Process, gapless


def test_processes_whose_database_was_removed_say_so_and_end(tmp_path):
    store, got = tmp_path / "messages.db", tmp_path / "got.txt"
    assert gapless("group", "declare", "$shared/g/#", "--store", store).returncode == 0
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
    assert not store.exists()
