"""A process that is told to end does, whatever it waits for."""

from __future__ import annotations

import gc
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest

from statemachines import cli
from statemachines.drivers import signals

PATIENCE_S = 120.0
BEGIN = "import asyncio, os, signal, threading, time\nfrom statemachines.drivers.signals import run_until_signal\n"


def ended(program):
    """Exit code and log of a program that runs `work()` and sends itself SIGTERM."""
    run = "run_until_signal(work())\nprint('in good order')\n"
    command = [sys.executable, "-c", BEGIN + program + run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout, done.stderr


def test_who_waits_for_a_thread_that_never_comes_back_ends():
    code, out, errors = ended(
        "async def work():\n"
        "    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.to_thread(threading.Event().wait)\n"
    )
    assert (code, out, errors) == (0, "", ""), "before anything that comes behind it"


def test_who_does_not_end_in_good_order_is_ended_and_it_is_said():
    code, out, errors = ended(
        "async def work():\n"
        "    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)\n"
        "    while True:\n"
        "        try:\n"
        "            await asyncio.sleep(60)\n"
        "        except asyncio.CancelledError:\n"
        "            pass\n"
    )
    assert (code, out) == (signals.GAVE_UP, "")
    assert "does not end in good order within 4 s" in errors


def test_who_ends_in_good_order_takes_its_time():
    code, out, errors = ended(
        "async def work():\n"
        "    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)\n"
        "    try:\n"
        "        await asyncio.sleep(60)\n"
        "    finally:\n"
        "        await asyncio.sleep(0.5)\n"
    )
    assert (code, out, errors) == (0, "in good order\n", "")


def test_who_is_told_twice_before_it_ends_leaves_no_task_behind():
    code, out, errors = ended(
        "async def work():\n"
        "    loop = asyncio.get_running_loop()\n"
        "    loop.call_later(0.2, lambda: [os.kill(os.getpid(), signal.SIGTERM) for _ in range(2)])\n"
        "    try:\n"
        "        await asyncio.sleep(60)\n"
        "    finally:\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        await asyncio.sleep(0.1)\n"
    )
    assert (code, out, errors) == (0, "in good order\n", "")


def test_who_has_no_file_to_read_again_goes_on_after_sighup():
    code, out, errors = ended(
        "async def work():\n"
        "    os.kill(os.getpid(), signal.SIGHUP)\n"
        "    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)\n"
        "    await asyncio.sleep(60)\n"
    )
    assert (code, out) == (0, "in good order\n")
    assert "SIGHUP: this node has no file to read again" in errors


@pytest.mark.parametrize("draining", [False, True])
def test_who_is_told_twice_does_not_die_of_the_second_while_python_ends(draining):
    """On a busy machine that takes seconds, and a demo counted it as a death."""
    act = "    on_first_signal(told.set)\n" if draining else ""
    code, out, errors = ended(
        "import atexit\n"
        "from statemachines.drivers.signals import on_first_signal\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
        "async def work():\n"
        "    told = asyncio.Event()\n"
        f"{act}"
        "    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGTERM)\n"
        "    await told.wait()\n"
    )
    assert (code, out, errors) == (0, "in good order\n", "")


def test_a_signal_that_comes_when_all_is_done_does_what_it_did_before():
    code, _out, _errors = ended(
        "import atexit\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGTERM)\n"
        "async def work():\n"
        "    await asyncio.sleep(0)\n"
    )
    assert code == -signal.SIGTERM


def test_a_node_makes_a_full_collection_rarely_and_its_caller_as_before():
    during = []

    async def work():
        during.append(gc.get_threshold())

    before = gc.get_threshold()
    signals.run_until_signal(work())
    assert during == [signals.COLLECT_EVERY]
    assert gc.get_threshold() == before != signals.COLLECT_EVERY


def test_what_ends_by_itself_ends_so():
    assert ended("async def work():\n    await asyncio.to_thread(time.sleep, 0.01)\n") == (0, "in good order\n", "")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (("group", "declare", "$shared/g/#"), cli.INTERRUPTED),
        (("node", "leader", "--listen", "127.0.0.1:0"), 0),
        (("node", "publisher", "--input", "lines.txt"), cli.INTERRUPTED),
    ],
)
def test_who_waits_for_a_locked_database_to_open_ends(tmp_path, command, code):
    """Left alone it would end with code 2, saying that the database is locked."""
    store = tmp_path / "messages.db"
    given = ("--store", str(store))
    assert cli.run(["group", "declare", "$shared/g/#", *given]) == cli.Exit.HELD
    (tmp_path / "lines.txt").write_text("one\n")
    program = (
        "import os, signal, sys, threading, time\n"
        "from statemachines import cli\n"
        "from statemachines.drivers.sql import sqlite\n"
        "sqlite.OPEN_S = 600\n"
        "_open = sqlite.SqliteDatabase._open\n"
        "def opening(self):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return _open(self)\n"
        "sqlite.SqliteDatabase._open = opening\n"
        f"sys.argv = ['gapless', *{[*command, *given]!r}]\n"
        "cli.main()\n"
    )
    with closing(sqlite3.connect(store, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
