"""Options of the tests."""

from __future__ import annotations

import os

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite", action="store_true", help="write what tests/interaction/*.txt expects anew, from what happens now"
    )


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--rewrite") and os.environ.get("CI"):
        raise pytest.UsageError("--rewrite would make every interaction expected; where CI is set it is refused")
