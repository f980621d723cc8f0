"""The plugin of pytest: options for the tests of this package, and the texts `steps/*.txt` (`testing/steps.py`), each
block of which is a test.  What is no plugin of pytest is imported when it is needed.

pytest --gapless-seed 7 --gapless-trace-dir out/failed
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest


class PluginOptions:
    """What was said on the command line of pytest: `seed` draws the runs of a `ConformanceTest`; the script of a run
    that fails is kept in `trace_dir` (None: nowhere)."""

    seed: int = 0
    trace_dir: Path | None = None


OPTIONS = PluginOptions()


def pytest_addoption(parser: Any) -> None:
    """The options."""
    group = parser.getgroup("gapless", "conformance tests of gapless")
    group.addoption("--gapless-seed", type=int, default=0, metavar="N", help="What draws the runs (0).")
    group.addoption(
        "--gapless-trace-dir", type=Path, default=None, metavar="DIR", help="Where the script of a failing run is kept."
    )
    group.addoption("--gapless-rewrite", action="store_true", help="Write what happens into steps/*.txt, whole.")


def pytest_configure(config: Any) -> None:
    """Keep what was said."""
    OPTIONS.seed = config.getoption("--gapless-seed")
    OPTIONS.trace_dir = config.getoption("--gapless-trace-dir")
    if config.getoption("--gapless-rewrite") and os.environ.get("CI"):
        raise pytest.UsageError("--gapless-rewrite would make whatever happens expected; where CI is set it is refused")


def pytest_report_header(config: Any) -> str | None:
    """The seed, where one was given."""
    seed = config.getoption("--gapless-seed")
    return f"gapless: seed {seed}" if seed else None


def pytest_collect_file(file_path: Path, parent: Any) -> Any:
    """A steps text: it uses some module, as other texts in folders of that name do not."""
    if file_path.suffix == ".txt" and file_path.parent.name == "steps" and "\nuse " in f"\n{file_path.read_text()}":
        return StepsTexts.from_parent(parent, path=file_path)
    return None


class StepsTexts(pytest.File):
    """A file of steps; modules beside its folder may be used by name."""

    def collect(self) -> Iterator[Any]:
        """A test for each block that has runs."""
        steps_text = import_module("statemachines.testing.steps")
        beside = str(self.path.parents[1])
        if beside not in sys.path:
            sys.path.insert(0, beside)
        steps = steps_text.StepsFile(self.path)
        if self.config.getoption("--gapless-rewrite"):
            steps.rewrite()
            steps = steps_text.StepsFile(self.path)
        for block in steps.blocks:
            if any(map(steps_text.is_run, block.lines)):
                yield StepsTest.from_parent(self, name=block.title or self.path.stem, steps=steps, block=block)


class StepsTest(pytest.Item):
    """One block of a file of steps."""

    def __init__(self, *, steps: Any, block: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.steps, self.block = steps, block

    def runtest(self) -> None:
        """What happens is what the block says."""
        difference = self.steps.find_difference(self.block)
        if difference:
            pytest.fail(f"{difference}\nif this is right: pytest --gapless-rewrite {self.path}", pytrace=False)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Where it stands."""
        return self.path, self.block.number - 1, self.name
