"""Page listings: what the console listings of a page run, and what they print."""

from __future__ import annotations

import re


def mask(text):
    """The text, its numbers as N, and its spaces as one."""
    return re.sub(r" +", " ", re.sub(r"\d[\d,.]*", "N", text))


def read_commands(text):
    """(command, lines that it must print) of a console listing; a line `...` stands for others."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        elif line != "...":
            found[-1][1].append(line)
    return found
