"""Scenes over real zenoh: `test_zenoh` plays each in a process of its own."""

from zenoh_scenes import gaps, kinds, links, order, real, restarts, room, slow, strangers, threads
from zenoh_scenes.scene import SCENES

__all__ = ["SCENES", "gaps", "kinds", "links", "order", "real", "restarts", "room", "slow", "strangers", "threads"]
