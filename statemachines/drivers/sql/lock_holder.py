"""Lock holder: which process has a SQLite database locked for writing, as Linux tells it.

The table of locks is read, never the files: to close one of them would give up every lock that this process has on it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from statemachines.drivers.sql.shown_url import without_secrets
from statemachines.plain_text import plain_line

LOCKS: Final = Path("/proc/locks")
WRITE_LOCK: Final = 120
"""The byte of the shared-memory file that whoever writes in write-ahead mode has locked."""
COMMAND_MAX: Final = 100
"""Characters of a command line that are told."""


def lock_holder(path: Path) -> str:
    """`process 4711 (python -m app), which is stopped`, or "" where nobody has it, or the system does not say."""
    try:
        file = os.stat(f"{path}-shm")
        lines = LOCKS.read_text().splitlines()
    except OSError:
        return ""
    wanted = f"{os.major(file.st_dev):02x}:{os.minor(file.st_dev):02x}:{file.st_ino}"
    for line in lines:
        # 2: POSIX  ADVISORY  WRITE 4711 fe:00:2149059 120 120
        words = line.split()
        if words[1:2] == ["POSIX"] and words[5:8] == [wanted, *[str(WRITE_LOCK)] * 2]:
            return _describe_process(words[4])
    return ""


def _describe_process(number: str) -> str:
    """A process by its number and what it was started as, but for passwords."""
    try:
        command = Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        command = ""
    shown = f" ({plain_line(without_secrets(command)[:COMMAND_MAX])})" if command else ""
    return f"process {number}{shown}{', which is stopped' if _is_stopped(number) else ''}"


def _is_stopped(number: str) -> bool:
    """Whether it stands still by a signal: it gives up no lock then."""
    try:
        status = Path(f"/proc/{number}/stat").read_text(errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[:1] == ["T"]
