"""Page listings: what the console listings of a page run, and what they print."""

from __future__ import annotations


def read_commands(text):
    """(command, lines that it must print) of a console listing."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found
