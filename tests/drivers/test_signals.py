"""A process that is told to end does, whatever it waits for."""

import subprocess
import sys

PATIENCE_S = 120.0
BEGIN = "import asyncio, os, signal, threading, time\nfrom statemachines.drivers.signals import run_until_signal\n"


def ended(program):
    """Exit code and log of a program that runs `work()` and sends itself SIGTERM."""
    run = "run_until_signal(work())\nprint('in good order')\n"
    command = [sys.executable, "-c", BEGIN + program + run]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    return done.returncode, done.stdout, done.stderr


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
