"""Bad input to the command: one or two lines that name the thing and the mend, exit code 2, nothing half-written.

Wrong inputs: one line says what was wrong, what was expected and what to do; exit code 2, and nothing is made.

A disk that is full: one line that names the file, exit code 2, and nothing half-written; what was there stays.
"""

import asyncio
import errno
import os
import re
import resource
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
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


FEW = "load.messages=20"
SHORT = (
    'name = {name!r}\nprotocol = "shared_subscriptions"\n[shared_subscriptions.load]\nmessages = 20\n'
    "[phases]\nsafety_s = 5.0\nliveness_s = 5.0\n"
)
BAD = b"\xff\xfe\xff"


def refuse(capsys, *arguments):
    """Run a command that must be refused; its one line on stderr."""
    assert cli.run([str(one) for one in arguments]) == cli.Exit.USAGE
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.startswith(("error: ", "Usage: "))
    return said


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Traces of two protocols."""
    home = tmp_path_factory.mktemp("traces")
    groups, queue = ["simulate", "quiet", "--set", FEW], ["simulate", "undisturbed"]
    assert cli.run([*groups, "--trace", str(home / "groups")]) == cli.Exit.HELD
    assert cli.run([*queue, "--trace", str(home / "queue")]) == cli.Exit.HELD
    return home


def read_bad(tmp_path, data):
    path = tmp_path / "bad.toml"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    "words",
    [
        ("simulate",),
        ("replay",),
        ("check", "--certificate"),
        ("node", "leader", "--store", "s.db", "--config"),
        ("group", "declare", "$shared/g/#", "--store", "s.db", "--config"),
    ],
)
def test_a_file_that_is_not_utf8_a_folder_and_the_standard_input(capsys, tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    path = read_bad(tmp_path, b'{"a":\n"\xff"}')
    said = refuse(capsys, *words, path)
    assert "bad.toml" in said
    assert "must be UTF-8, and line 2 has the byte 0xff" in said
    if words != ("simulate",):
        assert "cannot be read: Is a directory" in refuse(capsys, *words, tmp_path)
    assert "give /dev/stdin" in refuse(capsys, *words, "-")
    assert not (tmp_path / "s.db").exists()


def test_a_log_that_is_not_utf8(capsys, tmp_path):
    (tmp_path / "a~1.ndjson").write_bytes(b'{"gapless_log":3,"node":"\xff"}\n')
    assert "a~1.ndjson" in refuse(capsys, "analyze", tmp_path, "--engine=local", "--out", tmp_path / "out")


def test_a_scenario_comes_through_a_pipe(capsys, tmp_path):
    reading, writing = os.pipe()
    os.write(writing, SHORT.format(name="piped").encode())
    os.close(writing)
    assert cli.run(["simulate", f"/dev/fd/{reading}"]) == cli.Exit.HELD
    os.close(reading)
    assert "scenario piped" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["../../evil", "a/b", "a\\u0000b", "a\\u001bb", "", "a" * 101])
def test_a_scenario_whose_name_is_no_name_of_a_file(capsys, tmp_path, name):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "{name}"\n' + SHORT.format(name="").partition("\n")[2])
    assert "letters, digits" in refuse(capsys, "simulate", path, "--trace", tmp_path / "a" / "trace")
    assert not (tmp_path / "a").exists()


def test_more_faults_than_fit_in_a_phase_and_seeds_that_no_trace_holds(capsys):
    said = refuse(capsys, "simulate", "quiet", "--set", "faults.crash=[1000,2000]")
    assert "faults.crash = [1000, 2000]: must be at most 200" in said
    for words in (("simulate", "quiet", "--seed"), ("campaign", "quiet", "--from")):
        for seed in (-1, 2**63):
            assert "Invalid value" in refuse(capsys, *words, seed)
    assert "Invalid value" in refuse(capsys, "campaign", "quiet", "--seeds", 10**12)
    assert "is not possible" in refuse(capsys, "simulate", "quiet", "--set", f"load.messages={'9' * 5_000}")


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ('"kind":"crash","at_ns":5,"for_ns":5,"target":"nobody"', "target of a fault crash = 'nobody'"),
        ('"kind":"crash","at_ns":-5,"for_ns":5,"target":"leader-1"', "at_ns = -5"),
        ('"kind":"loss","at_ns":5,"for_ns":5,"rate":5.5', "rate = 5.5"),
    ],
)
def test_a_run_file_with_a_fault_that_cannot_be(capsys, tmp_path, fault, says):
    path = tmp_path / "run.json"
    head = '{"scenario":{"name":"x","protocol":"shared_subscriptions"},"seed":%d,"schedule":[%s]}'
    path.write_text(head % (1, "{" + fault + "}"))
    assert says in refuse(capsys, "replay", path)
    path.write_text(head % (-1, ""))
    assert "run.json: seed = -1" in refuse(capsys, "replay", path)


@pytest.mark.long
def test_foreign_and_damaged_parquet_is_named(capsys, tmp_path, traces):
    def analyze():
        return refuse(capsys, "analyze", tmp_path / "t", "--engine=local", "--out", tmp_path / "out")

    (tmp_path / "t").mkdir()
    pq.write_table(pa.table({"a": [1]}), tmp_path / "t" / "trace-x.parquet")
    said = analyze()
    assert "trace-x.parquet" in said
    assert "is no trace: it lacks the columns" in said
    for kind, number in (("runs", 3), ("trace", 2)):
        for path in (traces / "groups").iterdir():
            data = bytearray(path.read_bytes())
            if path.name.startswith(kind):
                column = pq.read_metadata(path).row_group(0).column(number)
                middle = column.data_page_offset + column.total_compressed_size // 2
                # One bit of a page; what a dictionary holds stands right before the page with its numbers.
                data[column.data_page_offset - 5 if column.has_dictionary_page else middle] ^= 1
            (tmp_path / "t" / path.name.replace("quiet-0", "x")).write_bytes(data)
        assert f"{kind}-x.parquet" in analyze()


def test_traces_of_two_protocols_and_a_protocol_that_is_in_none(capsys, tmp_path, traces):
    out = ("--engine=local", "--out", tmp_path / "out")
    said = refuse(capsys, "analyze", traces / "groups", traces / "queue", *out)
    assert "is of cursor_recovery" in said
    assert "analyze each by itself" in said
    said = refuse(capsys, "analyze", traces / "groups", "--protocol", "missed_samples", *out)
    assert "--protocol = 'missed_samples': has no machine in what is analyzed" in said


def test_a_file_in_the_place_of_a_folder(capsys, tmp_path, traces):
    path = tmp_path / "file"
    path.write_text("")
    for words in (
        ("analyze", traces / "groups", "--engine=local", "--out", path),
        ("analyze", traces / "groups", "--engine=local", "--out", path / "below"),
        ("simulate", "quiet", "--trace", path),
        ("campaign", "quiet", "--seeds", "40", "--trace", path),
        ("mutate", "cursor_recovery", "--report", "--out", path),
    ):
        assert f"{words[-2]} = '{words[-1]}': cannot be a folder" in refuse(capsys, *words)


def test_a_violation_is_told_where_nothing_can_be_kept(capsys, tmp_path, monkeypatch):
    from statemachines.shared_subscriptions import plan

    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").write_text("no folder")
    path = tmp_path / "short.toml"
    path.write_text(SHORT.format(name="short") + "[shared_subscriptions.members]\nconsumers = 1\njoin_s = [4.8]\n")
    monkeypatch.setattr(plan, "take_back", lambda draft, borrower: None)
    assert cli.run(["simulate", str(path), "--seed", "1", "--set", "load.messages=200"]) == cli.Exit.VIOLATED
    said = capsys.readouterr()
    assert "VIOLATED L4" in said.out
    assert "its run file cannot be kept (run file = 'out/failures': cannot be a folder" in said.err


def test_stores_that_are_not_there_or_of_another_kind(capsys, tmp_path):
    from statemachines.drivers.persistent_sessions.store import open_session_store

    path, group = tmp_path / "no.db", ("$shared/g/#", "--store")
    assert "there is no such file" in refuse(capsys, "group", "destroy", *group, path)
    assert not path.exists()
    store = open_session_store(str(path))
    asyncio.run(store.close())
    said = refuse(capsys, "group", "declare", *group, path)
    assert "is a store of another protocol, and this needs one of groups and streams" in said
    assert cli.run(["group", "declare", *group, str(tmp_path / "groups.db")]) == cli.Exit.HELD
    said = refuse(capsys, "node", "session-collector", "--store", tmp_path / "groups.db")
    assert "this needs one of persistent sessions" in said


@pytest.mark.parametrize("subscription", ["$shared/g", "$shared/g/", "$queue/q"])
def test_a_subscription_without_a_filter_is_shown_whole(capsys, tmp_path, subscription):
    said = refuse(capsys, "node", "consumer", subscription, "--store", tmp_path / "s.db")
    assert f"subscription = '{subscription}': must be $" in said


def test_a_line_that_is_longer_than_a_message(capsys, tmp_path):
    path = tmp_path / "long.txt"
    path.write_bytes(b"short\n" + b"a" * 12_000_000)
    said = refuse(capsys, "node", "publisher", "--store", tmp_path / "s.db", "--input", path)
    assert "line 2 has 12000000 bytes, and a message has at most 1048576" in said


def test_times_that_no_database_holds(capsys, tmp_path):
    words = ("node", "sessions", "--store", tmp_path / "s.db", "--name", "a")
    for option in ("--lease-ms", "--look-ms", "--marker-ms", "--retention-ms", "--max-sessions"):
        assert "Invalid value" in refuse(capsys, *words, option, 10**30)


def test_a_campaign_lists_scenarios_as_its_help_says(capsys):
    assert cli.run(["campaign", "list"]) == cli.Exit.HELD
    assert "storm" in capsys.readouterr().out


@pytest.mark.long
def test_a_locale_without_letters_and_few_open_files(tmp_path):
    """In processes of their own, side by side: what a locale cannot print is escaped, and no limit ends in a
    traceback."""
    poor = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PATH": os.environ["PATH"]}
    gapless = f"{sys.executable} -m statemachines"
    commands = {
        f"{gapless} simulate list": (0, ""),
        f"{gapless} simulate quiet --set {FEW} --trace t\u00f6": (2, "PYTHONUTF8"),
        f"ulimit -n 12; {gapless} campaign quiet --seeds 60": (2, "allow more open files"),
        f"ulimit -n 9; {gapless} node leader --store s.db": (2, "allow more open files"),
        f"ulimit -n 5; {gapless} node zenoh-router": (2, "allow more open files"),
    }
    running = [
        subprocess.Popen(
            ["sh", "-c", one], cwd=tmp_path, env=poor, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for one in commands
    ]
    for process, (code, says) in zip(running, commands.values(), strict=True):
        _, said = process.communicate(timeout=120)
        assert "Traceback" not in said
        assert (process.returncode, says in said) == (code, True), said


async def test_a_socket_that_the_system_does_not_give(monkeypatch):
    from statemachines.drivers.shared_subscriptions.roles import LEADER
    from statemachines.drivers.tcp import TcpTransport
    from statemachines.kernel import ConfigurationError

    def no_more(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    transport = TcpTransport(life="a~1", role=LEADER, receive=print, listen=("127.0.0.1", 0))
    monkeypatch.setattr("asyncio.base_events.socket.socket", no_more)
    with pytest.raises(ConfigurationError, match="allow more open files"):
        await transport.__aenter__()
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[shared_subscriptions.members]\nconsumrs = 3",
            "key 'consumrs' in members is unknown; did you mean 'consumers'?",
        ),
        ("[network]\nfifoo = true", "key 'fifoo' in network is unknown; did you mean 'fifo'?"),
        (
            "[shared_subscriptions.configuration]\nspent = 'prak'",
            "configuration.spent = 'prak' is unknown; did you mean",
        ),
    ],
)
def test_a_mistyped_key_of_a_scenario_names_the_one_that_was_meant(capsys, tmp_path, text, told):
    path = tmp_path / "mine.toml"
    path.write_text(f'name = "mine"\nprotocol = "shared_subscriptions"\n{text}\n')
    assert told in refuse(capsys, "simulate", path)


def test_a_mistyped_key_of_a_configuration_names_the_one_that_was_meant(capsys, tmp_path):
    (tmp_path / "times.toml").write_text("validty_ms = 3000\n")
    said = refuse(capsys, "node", "leader", "--store", tmp_path / "s.db", "--config", tmp_path / "times.toml")
    assert "key 'validty_ms' is unknown; did you mean 'validity_ms'?" in said


def test_scenarios_are_listed_below_their_protocols(capsys):
    assert cli.run(["simulate", "list"]) == cli.Exit.HELD
    blocks = [block.splitlines() for block in capsys.readouterr().out.split("\n\n")]
    heads = [block[0] for block in blocks]
    assert heads == sorted(heads)
    assert any(line.startswith("  storm ") for line in blocks[heads.index("shared_subscriptions")])


GIVEN = {
    "raise ValueError('no desk')": "does not import: ValueError: no desk",
    "import sys; sys.exit(5)": "given_code.py:1, in <module>: the code that was given ends the process: sys.exit(5)",
    "import no_such_package": "given_code.py:1, in <module>: ModuleNotFoundError: No module named 'no_such_package'",
    "def system(): raise ValueError('no desk')": "given_code.py:1, in system: ValueError: no desk; that is in the code",
    "import sys\ndef system(): sys.exit(5)": "given_code.py:2, in system: the code that was given ends the process",
    "def make(): pass\ndef system(): make(1)": "in system: TypeError: make() takes 0 positional arguments but 1",
    "from statemachines_spec import *\ndef mk_own(): pass\nsystem = CheckProtocol(systems={'a': ''}, build=mk_own)": (
        "given_code.py:2, in mk_own: TypeError: mk_own() takes 0 positional arguments but 4"
    ),
}


@pytest.mark.parametrize("code", GIVEN)
def test_a_mistake_in_code_that_was_given_is_none_of_gapless(capsys, tmp_path, monkeypatch, code):
    (tmp_path / "given_code.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "given_code", raising=False)
    assert GIVEN[code] in refuse(capsys, "check", "given_code:system")


@pytest.mark.parametrize("command", ["parked", "destroy"])
def test_a_group_that_is_not_there_is_named(capsys, tmp_path, command):
    store = ("--store", tmp_path / "s.db")
    assert cli.run(["group", "declare", "$shared/orders/#", *map(str, store)]) == cli.Exit.HELD
    said = refuse(capsys, "group", command, "$shared/order/#", *store)
    assert "subscription = '$shared/order/#': unknown; did you mean '$shared/orders/#'?" in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("campaign", "storm", "--resume"), "error: --resume: needs the folder of the campaign"),
        (("simulate", "storm", "--set", "load.topics=[1,"), "is no value of TOML"),
    ],
)
def test_options_that_cannot_be(capsys, words, told):
    assert told in refuse(capsys, *words)


PATIENCE_S = 300.0


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A trace of some runs."""
    folder = tmp_path_factory.mktemp("whole") / "trace"
    few = "shared_subscriptions.load.messages=20"
    assert cli.run(["campaign", "quiet", "--seeds", "3", "--set", few, "--trace", str(folder)]) == cli.Exit.HELD
    return folder


def gapless(*arguments, room, cwd):
    """The command where no file may be larger than so many bytes, as if the disk were full then."""

    def bound():
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

    return subprocess.run(
        [sys.executable, "-B", "-m", "statemachines", *map(str, arguments)],
        cwd=cwd,
        preexec_fn=bound,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def check(done, name):
    assert done.returncode == cli.Exit.USAGE, done.stderr
    (line,) = (one for one in done.stderr.splitlines() if one.startswith("error: "))
    assert name in line
    assert "File too large" in line
    assert "Traceback" not in done.stderr


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*") if path.is_file())


@pytest.mark.long
def test_a_trace_of_a_run(tmp_path):
    few = ("--set", "shared_subscriptions.load.messages=20")
    check(gapless("simulate", "quiet", *few, "--trace", "t", room=1_000, cwd=tmp_path), "trace-quiet-")
    assert files(tmp_path) == []


@pytest.mark.long
def test_a_trace_of_a_campaign(tmp_path):
    few = ("--set", "shared_subscriptions.load.messages=20")
    check(gapless("campaign", "quiet", "--seeds", "3", *few, "--trace", "t", room=1_000, cwd=tmp_path), "quiet-")
    assert files(tmp_path) == []


@pytest.mark.long
def test_tables_summary_and_page_of_an_analysis(tmp_path, trace):
    out = tmp_path / "out"
    assert cli.run(["analyze", str(trace), "--engine=local", "--out", str(out)]) == cli.Exit.HELD
    before = {name: (out / name).read_bytes() for name in files(out)}
    sizes = {name: len(data) for name, data in before.items()}
    largest_table = max(size for name, size in sizes.items() if name.startswith("tables"))
    assert largest_table < sizes["summary.json"] < sizes["index.html"], "so each is the first that finds no room"
    rooms = {2_000: "tables", largest_table + 1: "summary.json", sizes["summary.json"] + 1: "index.html"}
    for room, name in rooms.items():
        check(gapless("analyze", trace, "--engine=local", "--out", out, room=room, cwd=tmp_path), name)
        assert files(out) == sorted(before)
        assert (out / name).is_dir() or (out / name).read_bytes() == before[name]


@pytest.mark.long
def test_a_certificate(tmp_path):
    system = ("check", "sequence_windows", "--system", "advisories", "--engine", "plain")
    check(gapless(*system, "--certify", "c", room=100, cwd=tmp_path), "advisories")
    assert files(tmp_path) == []
