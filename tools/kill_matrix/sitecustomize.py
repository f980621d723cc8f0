"""In each Python process of a run of tests, children included: note which functions a test reaches, or plant a mistake.

`KILL_REACH`: a folder where each process leaves a file of lines `test<TAB>file<TAB>first line of a function`.
`KILL_PLACE`: a `Place` as JSON; the module of its file has the mistake.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
import threading
from importlib.machinery import SourceFileLoader
from typing import Any

from source_mistake import Place, compile_with

UNDER = tuple(os.environ.get("KILL_UNDER", "").split(os.pathsep))
reached: set[tuple[str, str, int]] = set()


def note(frame: Any, event: str, value: Any) -> None:
    """A function is called."""
    code = frame.f_code
    if code.co_filename.startswith(UNDER):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
        reached.add((test, code.co_filename, code.co_firstlineno))


def leave(folder: str) -> None:
    """What was noted."""
    with open(f"{folder}/{os.getpid()}", "a", encoding="utf-8") as file:
        file.writelines("\t".join(map(str, one)) + "\n" for one in reached)


if folder := os.environ.get("KILL_REACH"):
    sys.setprofile(note)
    threading.setprofile(note)
    atexit.register(leave, folder)
if text := os.environ.get("KILL_PLACE"):
    place = Place(*json.loads(text))
    get_code = SourceFileLoader.get_code

    def get_planted(self: Any, name: str) -> Any:
        """The code of a module, with the mistake if it is in that file."""
        if self.path.endswith(place.file):
            return compile_with(self.path, self.get_data(self.path), place)
        return get_code(self, name)

    SourceFileLoader.get_code = get_planted  # type: ignore[method-assign]
