"""Bad input to the command: one or two lines that name the thing and the mend, exit code 2, nothing half-written."""

from __future__ import annotations

import re
import socket
import sqlite3
from pathlib import Path

import pytest

from statemachines import cli


def refused(capsys, tmp_path, *arguments):
    """Run a command that must be refused; what it said on stderr."""
    before = sorted(path.name for path in tmp_path.rglob("*"))
    assert cli.run([str(argument) for argument in arguments]) == cli.Exit.USAGE
    said = capsys.readouterr()
    assert said.err.startswith(("error: ", "Usage: "))
    assert said.err.count("\n") <= 12
    assert "Traceback" not in said.err
    after = sorted(path.name for path in tmp_path.rglob("*") if not path.name.endswith((".life", "-wal", "-shm")))
    assert [name for name in after if name not in before] in ([], ["messages.db"]), "nothing half-written"
    return said.err


def test_a_malformed_subscription(capsys, tmp_path):
    said = refused(capsys, tmp_path, "node", "consumer", "orders/#", "--store", tmp_path / "messages.db")
    assert "must be $shared/GROUP/FILTER" in said
    said = refused(capsys, tmp_path, "node", "consumer", "$shared/g/a#", "--store", tmp_path / "messages.db")
    assert "'#' must be the whole last level" in said


def test_a_malformed_address(capsys, tmp_path):
    arguments = ("node", "consumer", "$shared/g/#", "--store", tmp_path / "messages.db", "--leader", "nowhere")
    assert "must be HOST:PORT" in refused(capsys, tmp_path, *arguments)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("ping_timeout_ms = 100", "4 * max_delay = 1600: must be less than ping_timeout = 100"),
        ("validity_ms = 3000", "must be less than validity"),
        ("pings = 3", "pings"),
        ("ping_interval_ms = 'soon'", "ping_interval_ms"),
        ("claim_ttl_ms = ", "is not a configuration"),
    ],
)
def test_a_configuration_that_breaks_a_rule(capsys, tmp_path, text, says):
    config = tmp_path / "config.toml"
    config.write_text(text)
    assert says in refused(capsys, tmp_path, "node", "leader", "--store", tmp_path / "messages.db", "--config", config)
    missing = tmp_path / "none.toml"
    said = refused(capsys, tmp_path, "node", "leader", "--store", tmp_path / "messages.db", "--config", missing)
    assert "cannot be read" in said


def test_a_start_that_is_neither(capsys, tmp_path):
    arguments = ("node", "consumer", "$shared/g/#", "--store", tmp_path / "messages.db", "--start", "yesterday")
    assert "must be now or beginning" in refused(capsys, tmp_path, *arguments)


def test_a_port_in_use(capsys, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused(capsys, tmp_path, "node", "leader", "--store", tmp_path / "messages.db", "--listen", address)
    assert address in said
    assert "choose another with --listen" in said


def other_program(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()


@pytest.mark.parametrize("node", ["leader", "publisher", "consumer"])
def test_a_database_that_is_not_ours(capsys, tmp_path, node):
    path = tmp_path / "messages.db"
    other_program(path)
    subscription = ["$shared/g/#"] if node == "consumer" else []
    assert "of another program" in refused(capsys, tmp_path, "node", node, *subscription, "--store", path)


def test_a_database_in_a_directory_that_is_not_there(capsys, tmp_path):
    said = refused(capsys, tmp_path, "node", "leader", "--store", tmp_path / "none" / "messages.db")
    assert "make it, or give another path" in said


def test_a_bad_name_of_a_node(capsys, tmp_path):
    arguments = ("node", "leader", "--store", tmp_path / "messages.db", "--name", "a b")
    assert "letters, digits" in refused(capsys, tmp_path, *arguments)


@pytest.mark.parametrize("command", ["simulate", "campaign"])
def test_an_unknown_or_malformed_scenario(capsys, tmp_path, command):
    said = refused(capsys, tmp_path, command, "strom")
    assert re.search(
        r"unknown; did you mean 'storm'\? there are \d+, such as storm, .*`gapless simulate list` lists", said
    )
    assert len(said) < 300
    assert "unknown" in refused(capsys, tmp_path, command, "../../storm")
    path = tmp_path / "mine.toml"
    path.write_text('name = "mine"\nprotocol = "shared_subscriptions"\n[shared_subscriptions.load]\nmessages = -4\n')
    said = refused(capsys, tmp_path, command, path)
    assert "mine.toml: load.messages = -4" in said


def test_what_is_no_run_file(capsys, tmp_path):
    path = tmp_path / "run.json"
    path.write_text("{}")
    assert "is not a run file" in refused(capsys, tmp_path, "replay", path)


LOG_HEAD = (
    '{"gapless_log":3,"node":"a","life":"a~1","number":1,"fingerprints":{"shared_subscriptions":"0000"},"versions":{}}'
    "\n"
)


def test_logs_with_a_broken_line(capsys, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a~1.ndjson").write_text(LOG_HEAD + "rubbish\n" + "more rubbish\n")
    said = refused(capsys, tmp_path, "analyze", logs, "--out", tmp_path / "out")
    assert "a~1.ndjson" in said
    assert "line 2" in said


def test_logs_of_another_version(capsys, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "a~1.ndjson").write_text(LOG_HEAD)
    assert "tables 0000" in refused(capsys, tmp_path, "analyze", logs, "--out", tmp_path / "out")


def test_unknown_machine_and_bench_row(capsys, tmp_path):
    assert "borower" in refused(capsys, tmp_path, "show", "borower")
    assert "dispach" in refused(capsys, tmp_path, "bench", "dispach")


def test_failures_are_kept_and_the_last_line_repeats_them(capsys, tmp_path, monkeypatch):
    from statemachines.shared_subscriptions import plan

    monkeypatch.chdir(tmp_path)
    scenario = tmp_path / "short.toml"
    scenario.write_text(
        'name = "short"\nprotocol = "shared_subscriptions"\n[shared_subscriptions.load]\nmessages = 200\n'
        "[shared_subscriptions.members]\nconsumers = 1\njoin_s = [4.8]\n"
        "[phases]\nsafety_s = 5.0\nliveness_s = 5.0\n[faults]\nduplicate = [1, 1]\n"
    )
    with monkeypatch.context() as planted:
        planted.setattr(plan, "take_back", lambda draft, borrower: None)
        assert cli.run(["simulate", str(scenario), "--seed", "1"]) == cli.Exit.VIOLATED
        said = capsys.readouterr()
        assert said.out.startswith("scenario short, seed 1\n")
        assert "VIOLATED L4" in said.out
        last = said.err.splitlines()[-1]
        assert last == "repeat it with: gapless replay out/failures/short-1.json"
        assert cli.run(["replay", "out/failures/short-1.json"]) == cli.Exit.VIOLATED
        assert "VIOLATED L4" in capsys.readouterr().out
        assert cli.run(["campaign", str(scenario), "--seeds", "2", "--processes", "1"]) == cli.Exit.VIOLATED
        assert "0 of 2 runs held" in capsys.readouterr().out
        kept = {path.name: path.read_bytes() for path in Path("out/failures").iterdir()}
        assert sorted(kept) == ["short-0.json", "short-1.json"]
        scenario.write_text(scenario.read_text().replace("messages = 200", "messages = 180"))
        for _ in range(2):  # another run under the same name is kept beside it, and the same run once
            assert cli.run(["simulate", str(scenario), "--seed", "1"]) == cli.Exit.VIOLATED
            last = capsys.readouterr().err.splitlines()[-1]
            assert last == "repeat it with: gapless replay out/failures/short-1.2.json"
        assert {path.name: path.read_bytes() for path in Path("out/failures").iterdir()}.items() > kept.items()
        assert len(list(Path("out/failures").iterdir())) == len(kept) + 1
    assert cli.run(["replay", "out/failures/short-1.json", "--trace", "out/trace", "--data"]) == cli.Exit.HELD
    assert sorted(path.name for path in (tmp_path / "out" / "trace").iterdir()) == [
        "runs-short-1.parquet",
        "trace-short-1.parquet",
    ]


def test_simulate_lists_and_speaks_json(capsys):
    assert cli.run(["simulate", "list"]) == cli.Exit.HELD
    assert "storm" in capsys.readouterr().out
    assert cli.run(["simulate", "quiet", "--seed", "1", "--json"]) == cli.Exit.HELD
    assert '"monitor":""' in capsys.readouterr().out
