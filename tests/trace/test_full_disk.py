"""A disk that is full: whoever appends says which file, and nothing is half a line that somebody takes for whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from statemachines.drivers.shared_subscriptions.consumer_file import ConsumerFile
from statemachines.kernel import GaplessError

FULL = Path("/dev/full")
"""Takes no byte, as a disk that is full."""


def test_a_consumer_whose_file_cannot_be_written_takes_nothing_for_noted():
    with pytest.raises(GaplessError, match="/dev/full: No space left on device"):
        ConsumerFile(FULL).got("s", 1, [(0, b"first")])


PUBLISH = """
import resource, sys
from statemachines import cli
from statemachines.drivers.shared_subscriptions import node_commands
node_commands.PATIENCE_S = 0.2
resource.setrlimit(resource.RLIMIT_FSIZE, (300_000, resource.RLIM_INFINITY))
sys.exit(cli.run(sys.argv[1:]))
"""
"""A publisher whose files may not grow beyond so many bytes."""
