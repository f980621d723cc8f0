"""A command that is told to end (SIGTERM, Ctrl-C) ends with all its processes, and what it has done is there.

Signals: a publisher that has not stored all says how much it has, and Ctrl-C in the first second is one line.
"""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing, suppress
from pathlib import Path

import pytest
from long_cases import mark_long
from waiting import until

from statemachines import cli, interrupts
from statemachines.interrupts import INTERRUPTED

GAPLESS = [sys.executable, "-m", "statemachines"]
PATIENCE_S = 120.0


def processes_of(session):
    """The command lines of the processes of a session that live."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            if os.getsid(int(entry.name)) == session and state != "Z":
                found.append((entry / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it has ended meanwhile
    return found


class Command:
    """A command in a session of its own."""

    def __init__(self, *arguments, folder):
        self.errors = (folder / "errors").open("w+")
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # who ignores it has children who do
        try:
            self.process = subprocess.Popen(
                [*GAPLESS, *arguments],
                cwd=folder,
                start_new_session=True,
                stdout=subprocess.PIPE,
                stderr=self.errors,
                text=True,
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if processes_of(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()
        self.errors.close()

    def end(self, number):
        """Its exit code and what it said, once all of its processes are gone; the signal is to it alone."""
        assert self.process.poll() is None, "it had not ended by itself"
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        until(lambda: not processes_of(self.process.pid), f"left: {processes_of(self.process.pid)}")
        self.errors.seek(0)
        return code, self.errors.read()


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_a_campaign_that_is_told_to_end_gives_what_is_there(tmp_path, number):
    trace = tmp_path / "trace"
    own = "shared_subscriptions"
    few = ("phases.safety_s=1", f"{own}.load.messages=20", f"{own}.members.join_s=[]", f"{own}.members.leave_s=[]")
    short = [part for value in few for part in ("--set", value)]
    many = ("campaign", "quiet", "--seeds", "100000", *short, "--trace", str(trace))
    with Command(*many, folder=tmp_path) as command:
        until(lambda: list(trace.glob("trace-*.parquet")), "no part of the trace appeared")
        code, errors = command.end(number)
    assert code == cli.Exit.INCONCLUSIVE
    assert "of 100000 seeds" in errors
    assert "Traceback" not in errors
    out = tmp_path / "out"
    assert cli.run(["analyze", str(trace), "--engine=local", "--out", str(out)]) == cli.Exit.HELD
    assert json.loads((out / "summary.json").read_text())["runs"] >= 20


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT])
def test_mutants_that_are_interrupted_are_not_waited_for(tmp_path, number):
    with Command(
        "mutate", "cursor_recovery", "--systems", "few", "--jobs", "2", "--out", str(tmp_path / "m"), folder=tmp_path
    ) as command:
        until(lambda: len(processes_of(command.process.pid)) >= 4, "no worker has begun")
        code, errors = command.end(number)
    assert code == cli.Exit.INCONCLUSIVE
    assert "Traceback (most recent call last)" not in errors


@pytest.mark.parametrize("number", mark_long((signal.SIGTERM, signal.SIGINT), "SIGINT", name=lambda one: one.name))
def test_an_analysis_that_is_told_to_end_while_spark_starts_leaves_no_java(tmp_path, number):
    trace, few = tmp_path / "trace", "shared_subscriptions.load.messages=20"
    assert cli.run(["campaign", "quiet", "--seeds", "1", "--set", few, "--trace", str(trace)]) == cli.Exit.HELD
    with Command("analyze", str(trace), "--engine=spark", "--out", str(tmp_path / "out"), folder=tmp_path) as command:
        until(lambda: len(processes_of(command.process.pid)) >= 2, "Spark has not begun")
        code, errors = command.end(number)
    assert code == cli.INTERRUPTED, errors
    assert "does not start" not in errors


def test_a_check_that_is_interrupted_while_it_judges_obligations_begins_no_other_system(monkeypatch, capsys):
    from statemachines_spec.liveness import judge

    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(judge, "live", interrupted)
    assert cli.run(["check", "missed_samples", "--liveness", "--engine", "plain"]) == cli.Exit.INCONCLUSIVE
    said = capsys.readouterr().out
    assert said.count("PARTIAL (interrupted): nothing is claimed of obligations") == 1
    assert said.count(" states, ") == 1, "systems that were explored"


def test_a_demo_that_is_told_to_end_leaves_no_node(tmp_path):
    with Command("demo", "shared_subscriptions", "--out", str(tmp_path / "out"), folder=tmp_path) as command:
        until(lambda: any("node consumer" in one for one in processes_of(command.process.pid)), "no consumer has begun")
        code, errors = command.end(signal.SIGTERM)
    assert code == 130
    assert "ends on SIGTERM" in errors


def test_a_second_sigterm_ends_at_once():
    program = (
        "import os, signal, time\n"
        "from statemachines.interrupts import end_on_sigterm\n"
        "end_on_sigterm()\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(60)\n"
        "finally:\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    time.sleep(60)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == -signal.SIGTERM


def test_who_is_forked_ends_as_it_would_have():
    program = (
        "import os, signal, time\n"
        "from statemachines.interrupts import end_on_sigterm\n"
        "end_on_sigterm()\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    time.sleep(60)\n"
        "    os._exit(0)\n"
        "os.kill(child, signal.SIGTERM)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.stdout == f"{-signal.SIGTERM}\n"


@pytest.mark.parametrize("command", ["node", "simulate"])
def test_a_node_that_does_not_live_yet_ends_at_once_and_says_nothing(command):
    program = (
        "import os, signal, sys\n"
        "from statemachines import cli\n"
        f"sys.argv = ['gapless', {command!r}]\n"
        "cli.run = lambda: os.kill(os.getpid(), signal.SIGTERM)\n"
        "cli.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.returncode, "ends on SIGTERM" in done.stderr) == {
        "node": (-signal.SIGTERM, False),
        "simulate": (-signal.SIGINT, True),
    }[command]


def test_a_thread_that_never_began_is_not_waited_for(monkeypatch):
    """`enumerate` has it from the first step of `start` on."""
    monkeypatch.setattr(threading, "enumerate", lambda: [threading.main_thread(), threading.Thread(target=print)])
    interrupts.leave_threads(0)


def test_ctrl_c_in_a_callback_of_a_c_library_is_not_lost():
    """As while numba compiles: what a callback raises is only printed, and the command would go on."""
    program = (
        "import ctypes, signal, sys, time\n"
        "from statemachines import interrupts\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "interrupts.end_early(); interrupts.begin_work()\n"
        "callback = ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))\n"
        "try:\n"
        "    callback()\n"
        "    time.sleep(60)\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S)
    assert (done.stdout, done.stderr, done.returncode) == ("interrupted\n", "", 0)


STARTS = {
    "check": ("check", "cursor_recovery", "--system", "few", "--engine", "compiled"),
    "explore": ("explore", "cursor_recovery", "--system", "few", "--engine", "compiled", "--html", "page.html"),
    "simulate": ("simulate", "quiet", "--seed", "1"),
    "analyze": ("analyze", "trace", "--engine=local", "--out", "out"),
    "node": ("node", "leader", "--store", "store.db"),
}
SPAN_S = {"check": 8.0, "explore": 8.0}
MOMENTS = (1, 5)
"""So many are tried; in `make soak` more, and those of `explore`, which begins as `check` does."""


@pytest.mark.parametrize("moments", mark_long(MOMENTS, "5"))
@pytest.mark.parametrize("name", mark_long([*STARTS], "explore"))
def test_ctrl_c_at_any_moment_of_the_first_seconds_ends_a_command_without_a_traceback(
    tmp_path, monkeypatch, name, moments
):
    """The moments are drawn over what the command takes to begin, which differs between machines; numba compiles anew
    each time."""
    if name == "analyze":
        few = "shared_subscriptions.load.messages=20"
        assert cli.run(["campaign", "quiet", "--seeds", "1", "--set", few, "--trace", str(tmp_path / "trace")]) == 0
    chance = random.Random(name)
    for moment in range(moments):
        monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / f"cache{moment}"))
        with Command(*STARTS[name], folder=tmp_path) as command:
            with suppress(subprocess.TimeoutExpired):
                command.process.wait(chance.uniform(0.05, SPAN_S.get(name, 2.5)))
            if command.process.poll() is None:
                code, errors = command.end(signal.SIGINT)
                assert code in {0, cli.Exit.INCONCLUSIVE, cli.INTERRUPTED, -signal.SIGINT}, errors
                assert "Traceback" not in errors
                assert "Exception ignored" not in errors


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


@pytest.mark.long
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
