"""Scenes over real zenoh, each run by `test_zenoh` in a process of its own:  python -m zenoh_scenes NAME"""

from zenoh_scenes import gaps, kinds, links, order, real, restarts, room, slow, strangers
from zenoh_scenes.scene import SCENES

__all__ = ["SCENES", "gaps", "kinds", "links", "order", "real", "restarts", "room", "slow", "strangers"]
