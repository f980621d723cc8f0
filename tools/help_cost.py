"""Measure the processor time of every command's `--help`: user and system, of the process and its children; and how
many times it is that of `python -c pass`, which says less of the machine and its other work.

python tools/help_cost.py [--times 7] [COMMAND ...]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

GAPLESS = str(Path(sys.executable).with_name("gapless"))


def measure_ms(command: list[str], times: int) -> float:
    """The least processor time of some runs of a command, in milliseconds."""
    taken = []
    for _ in range(times):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, spent = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
        taken.append(1000 * (spent.ru_utime + spent.ru_stime))
    return min(taken)


def list_commands() -> list[list[str]]:
    """Each command and each command in it, as the words after `gapless`."""
    from typer.main import get_command

    from statemachines.cli import app

    return [list(words) for words in _walk(get_command(app), ())]


def _walk(command: object, words: tuple[str, ...]) -> list[tuple[str, ...]]:
    found = [words]
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            found += _walk(command.get_command(None, name), (*words, name))
    return found


def main() -> None:
    """Print a line for each: milliseconds, times those of `python -c pass`, command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=7)
    parser.add_argument("command", nargs="*")
    given = parser.parse_args()
    for words in [given.command] if given.command else list_commands():
        base = measure_ms([sys.executable, "-c", "pass"], given.times)
        spent = measure_ms([GAPLESS, *words, "--help"], given.times)
        print(f"{spent:6.0f} ms  {spent / base:5.1f} x  gapless {' '.join([*words, '--help'])}", flush=True)


if __name__ == "__main__":
    main()
