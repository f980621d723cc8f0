"""Scripted runs: a run as a list of steps, made from a path of the explorer, and followed by real hosts."""
