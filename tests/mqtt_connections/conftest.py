"""What the tests of MQTT nodes have in common."""

from __future__ import annotations

import pytest


@pytest.fixture
def store(tmp_path):
    """The file of a database that is not there yet."""
    return str(tmp_path / "sessions.db")
