"""For all tests: the same examples in every run, and their options."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, database=None, deadline=None)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what tests/interaction/*.txt expects anew, from what happens now"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rewrite") and os.environ.get("CI"):
        raise pytest.UsageError("--rewrite would make every interaction expected; where CI is set it is refused")
