"""The plugin of pytest: two options for the tests of this package.  It imports nothing but the standard library.

pytest --gapless-seed 7 --gapless-trace-dir out/failed
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class PluginOptions:
    """What was said on the command line of pytest: `seed` draws the runs of a `ConformanceTest`; the script of a run
    that fails is kept in `trace_dir` (None: nowhere)."""

    seed: int = 0
    trace_dir: Path | None = None


OPTIONS = PluginOptions()


def pytest_addoption(parser: Any) -> None:
    """The two options."""
    group = parser.getgroup("gapless", "conformance tests of gapless")
    group.addoption("--gapless-seed", type=int, default=0, metavar="N", help="What draws the runs (0).")
    group.addoption(
        "--gapless-trace-dir", type=Path, default=None, metavar="DIR", help="Where the script of a failing run is kept."
    )


def pytest_configure(config: Any) -> None:
    """Keep what was said."""
    OPTIONS.seed = config.getoption("--gapless-seed")
    OPTIONS.trace_dir = config.getoption("--gapless-trace-dir")


def pytest_report_header(config: Any) -> str | None:
    """The seed, where one was given."""
    seed = config.getoption("--gapless-seed")
    return f"gapless: seed {seed}" if seed else None
