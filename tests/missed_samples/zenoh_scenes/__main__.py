"""Plays the scenes that its input names, each in a process of its own."""

from scene_server import serve_scenes

from zenoh_scenes import SCENES

if __name__ == "__main__":
    serve_scenes(SCENES)
