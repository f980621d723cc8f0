"""In each Python process of a run of tests, children included: keep which lines a test reaches, or plant a mistake.

`KILL_REACH`: a folder where each process leaves a file of coverage.py; `KILL_ROOMS`: where lines count.
`KILL_PLACE`: a `Place` as JSON; the module of its file has the mistake.
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from importlib.machinery import SourceFileLoader
from typing import Any

from source_mistake import Place, compile_with

if (folder := os.environ.get("KILL_REACH")) and "coverage" not in sys.modules:
    import coverage

    test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0]
    rooms = [f"{room}/*" for room in os.environ["KILL_ROOMS"].split(os.pathsep)]
    lines = coverage.Coverage(f"{folder}/lines", True, config_file=False, include=rooms, omit=["*/tests/*"])
    lines.start()
    if test:
        lines.switch_context(test)

    @atexit.register
    def leave() -> None:
        """What was reached."""
        lines.stop()
        lines.save()

    def pytest_runtest_logstart(nodeid: str) -> None:
        """As a plugin of pytest: which test it is."""
        lines.switch_context(nodeid)


if text := os.environ.get("KILL_PLACE"):
    place = Place(*json.loads(text))
    get_code = SourceFileLoader.get_code

    def get_planted(self: Any, name: str) -> Any:
        """The code of a module, with the mistake if it is in that file."""
        if self.path.endswith(place.file):
            return compile_with(self.path, self.get_data(self.path), place)
        return get_code(self, name)

    SourceFileLoader.get_code = get_planted  # type: ignore[method-assign]
