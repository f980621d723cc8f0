"""Sequence windows over real zenoh, on loopback: every scene in a process of its own, killed where it hangs."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import sequenced_scenes
from scene_server import SceneServer

HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def server() -> Iterator[SceneServer]:
    server = SceneServer("sequenced_scenes.py", folder=HERE)
    yield server
    server.close()


@pytest.mark.parametrize("name", sorted(sequenced_scenes.SCENES))
def test_sequenced_over_real_zenoh(server: SceneServer, name: str) -> None:
    """It ends by itself, interpreter and all, and holds."""
    assert server.play(name) == "held\n"
