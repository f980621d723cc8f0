"""The demo: the main job of a protocol end to end, with a verdict at the end."""
