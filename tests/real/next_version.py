"""A program of the next version of the wire: this one, with a further field in some messages.

It is a copy of the package with changed lines, so two versions talk as two releases do: each process runs one of them.
"""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import statemachines
from statemachines.wire import VERSION

NEXT = VERSION + 1
MESSAGES = "{}/message.py"
FIELDS = {
    ("Live", MESSAGES.format("persistent_sessions")): "since_ns: Instant = 0",
    ("Delivered", "persistent_sessions/message.py"): "head: Head | None = None",
    ("PublishStored", "persistent_sessions/message.py"): "n: Number",
    ("LeaveWanted", "persistent_sessions/message.py"): "expiry_ms: Expiry",
    ("Ping", MESSAGES.format("shared_subscriptions")): "reports: tuple[Report, ...] = ()",
    ("Grant", MESSAGES.format("shared_subscriptions")): "repeats: Number = 0",
    ("Report", MESSAGES.format("shared_subscriptions")): 'reason: Reason = ""',
}
"""A message and its file -> its last field, behind which the next version has one more."""
ADDED = "next"
"""What that field holds where nobody says otherwise."""


def make_next_version(folder, oldest=VERSION):
    """The words that begin a command of the next version, whose program lies in `folder`."""
    package = folder / "statemachines"
    shutil.copytree(Path(statemachines.__file__).parent, package)
    change(package / "wire.py", rf"^VERSION: Final = {VERSION}$", f"VERSION: Final = {NEXT}")
    change(package / "wire.py", rf"^OLDEST: Final = {VERSION}$", f"OLDEST: Final = {oldest}")
    for (name, file), last in FIELDS.items():
        place = rf"^(class {name}\((?:(?!^class ).)*?^    {re.escape(last)})$"
        change(package / file, place, rf'\1\n    added: str = "{ADDED}"')
    return ("env", f"PYTHONPATH={folder}", sys.executable, "-P", "-m", "statemachines")


def change(path, pattern, replacement):
    """Change the one place that matches."""
    text, count = re.subn(pattern, replacement, path.read_text(), flags=re.MULTILINE | re.DOTALL)
    assert count == 1, (path, pattern, count)
    path.write_text(text)
