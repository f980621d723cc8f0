"""Text lines: what is published where nothing better is at hand: each file a topic, each line a message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from statemachines.drivers.shared_subscriptions.store import PAYLOAD_MAX
from statemachines.input_file import read_input
from statemachines.kernel import ConfigurationError

LINES_WANTED = 20_000
"""The project's own source is repeated up to so many lines."""

BYTES_MAX = 200 * 2**20
TOPICS_MAX = 2_000

OWN_SOURCE = Path(__file__).resolve().parents[2]

Topics = dict[str, list[bytes]]


def read(path: Path | None) -> Topics:
    """Topic -> lines of a text file or of every text file in a folder; without a path, of our own source.

    Raises `ConfigurationError` where there is nothing to read, or too much.
    """
    if path is None:
        return repeat_topics(read_folder(OWN_SOURCE, "*.py"), LINES_WANTED)
    topics = read_folder(path, "*") if path.is_dir() else {topic_of(path.name): read_lines(path)}
    topics = {topic: lines for topic, lines in topics.items() if lines}
    if not topics:
        raise ConfigurationError("input", str(path), "holds no line of text")
    return topics


def read_folder(folder: Path, pattern: str) -> Topics:
    """Every text file below `folder`, hidden ones left out."""
    topics: Topics = {}
    size = 0
    for path in sorted(folder.rglob(pattern)):
        inside = path.relative_to(folder)
        if not path.is_file() or any(part.startswith(".") or part == "__pycache__" for part in inside.parts):
            continue
        size += path.stat().st_size
        if size > BYTES_MAX or len(topics) >= TOPICS_MAX:
            rule = f"is more than {TOPICS_MAX} files or {BYTES_MAX >> 20} MiB; give a part of it"
            raise ConfigurationError("input", str(folder), rule)
        topics[topic_of(inside.as_posix())] = read_lines(path)
    return topics


def read_lines(path: Path) -> list[bytes]:
    """The lines of a text file; none of one that is not text.

    Raises `ConfigurationError` for a line that is longer than a message may be: it would be another message than it is.
    """
    data = read_input(path, "input", BYTES_MAX)
    if b"\0" in data[:65_536]:
        return []
    lines = data.splitlines()
    for number, line in enumerate(lines, 1):
        if len(line) > PAYLOAD_MAX:
            rule = f"line {number} has {len(line)} bytes, and a message has at most {PAYLOAD_MAX}; split it"
            raise ConfigurationError("input", str(path), rule)
    return lines


def topic_of(name: str) -> str:
    """A file's name as a topic: wildcards have no place in one."""
    return name.replace("+", "_").replace("#", "_").lstrip("$")


def repeat_topics(topics: Topics, wanted: int) -> Topics:
    """All of it again and again, whole, until there are `wanted` lines or a few more."""
    count = sum(len(lines) for lines in topics.values())
    times = max(1, -(-wanted // count))
    return {topic: lines * times for topic, lines in topics.items() if lines}


def in_turn(topics: Topics, batch: int) -> Iterator[tuple[str, list[bytes]]]:
    """A batch of each topic, then the next batch of each, in the order of their lines."""
    longest = max(len(lines) for lines in topics.values())
    for begin in range(0, longest, batch):
        for topic, lines in topics.items():
            if begin < len(lines):
                yield topic, lines[begin : begin + batch]
