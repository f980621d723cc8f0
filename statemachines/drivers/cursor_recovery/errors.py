"""Errors of a queue in shared memory: which file, what was found, what was expected, what to do."""

from __future__ import annotations

from pathlib import Path

from statemachines.kernel import GaplessError


class QueueError(GaplessError):
    """Base of what goes wrong with a queue in shared memory."""


class SegmentError(QueueError):
    """Of the file that a queue lives in: `path`, `found`, `expected`, `remedy`."""

    def __init__(self, path: Path, found: str, expected: str, remedy: str) -> None:
        self.path = path
        self.found = found
        self.expected = expected
        self.remedy = remedy
        super().__init__(f"{path}: found {found}; expected {expected}; {remedy}")

    def __reduce__(self) -> tuple[type[SegmentError], tuple[Path, str, str, str]]:
        """So that it comes back whole from another process."""
        return type(self), (self.path, self.found, self.expected, self.remedy)


class MissingQueue(SegmentError):
    """There is no such file, or it was removed while this process was attached."""


class ExistingQueue(SegmentError):
    """Somebody else has made a queue of this name."""


class DamagedQueue(SegmentError):
    """The file is not a whole queue of this version, or somebody has written over its control words."""


class NoRoomForQueue(SegmentError):
    """The file system of shared memory has no room for the segment."""


class TooManyProcesses(SegmentError):
    """Every slot is taken by a living process."""


class ClosedQueue(QueueError):
    """The queue was closed in this process."""


class ForkedAmidOperation(QueueError):
    """This is a child of a process that forked within an operation: the operation is the parent's."""


class MessageTooLarge(QueueError):
    """The block of the message is larger than the whole data area (CR-01)."""


class Fenced(QueueError):
    """Others took this writer's cursor for a dead one's (CR-16): whether the message will be delivered is not known."""


class PutTimeout(QueueError, TimeoutError):
    """No room, or no free cursor, came up in time; the message was not written."""


class GetTimeout(QueueError, TimeoutError):
    """No message came in time."""
