"""Plain text: what others have said, fit for a terminal: no character in it moves a cursor, clears a screen, rings a
bell, turns the direction of writing, or begins a line that looks like ours."""

from __future__ import annotations

import logging
import time
from typing import Final

import msgspec

_TURNING: Final = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters that turn the direction of what follows."""
_CONTROL: Final = (*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *_TURNING)
_IN_A_LINE: Final = {code: repr(chr(code))[1:-1] for code in _CONTROL if code != ord("\t")}
_IN_JSON: Final = {code: f"\\u{code:04x}" for code in _CONTROL if code >= 0x7F}
_IN_LINES: Final = {code: text for code, text in _IN_A_LINE.items() if code != ord("\n")}


def plain_line(text: str) -> str:
    """The text as one line, its control characters escaped as Python writes them; tabs stay."""
    return text.translate(_IN_A_LINE)


def plain_lines(text: str) -> str:
    """The same, and lines stay lines."""
    return text.translate(_IN_LINES)


def plain_json(value: object) -> str:
    """As JSON in one line, control characters escaped as JSON writes them: it says the same to whoever reads it."""
    return msgspec.json.encode(value).decode().translate(_IN_JSON)


class PlainFormatter(logging.Formatter):
    """Log records, each message one line behind its time (UTC); only a traceback has lines of its own."""

    converter = staticmethod(time.gmtime)

    def __init__(self) -> None:
        super().__init__("%(asctime)s.%(msecs)03dZ %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return plain_line(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return plain_lines(super().format(record))
