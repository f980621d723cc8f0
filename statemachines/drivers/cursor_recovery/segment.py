"""Segment: the file in shared memory that a queue lives in: made whole or not at all, validated before it is used.

It is an mmap of a file of its own, not `multiprocessing.shared_memory`, whose resource tracker (before Python 3.13)
removes what other processes still use.  A segment gets its name only when it is complete: nobody ever attaches to one
that is half made, of two creators one wins, and one that dies leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import re
import stat
import struct
from io import FileIO
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from statemachines.cursor_recovery.layout import GUARD, GUARD_BYTES, HEADER_WORDS, WORD, Layout
from statemachines.cursor_recovery.memory import NONE, Queue, position_of
from statemachines.drivers.cursor_recovery.errors import (
    DamagedQueue,
    ExistingQueue,
    MissingQueue,
    NoRoomForQueue,
    SegmentError,
)
from statemachines.drivers.cursor_recovery.word import atomic_memory
from statemachines.kernel import ConfigurationError

DIRECTORY = Path("/dev/shm")
PREFIX = "gapless."
MAGIC = int.from_bytes(b"gapless\n", "little")
VERSION = 1
_HEADER = struct.Struct(f"<{HEADER_WORDS}Q")
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,99}")
REMAKE = "remove it (CircularQueue.unlink) and create it again"


class Header(NamedTuple):
    """What a segment says of itself, in words of 64 bits; `magic` is written last, `crc` is over all behind it."""

    magic: int
    version: int
    crc: int
    size: int
    identity: int
    capacity: int
    read_cursors: int
    write_cursors: int
    threshold_ns: int
    threshold_only: int

    def pack(self) -> bytes:
        """As it lies in the segment."""
        return _HEADER.pack(*self, *[0] * (HEADER_WORDS - len(self)))


def path_of(name: str, directory: Path | None = None) -> Path:
    """The file of a queue; `ConfigurationError` for a name that is none."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError("name", name, "1 to 100 letters, digits, '_', '-' and (not first) '.'")
    return (directory or DIRECTORY) / f"{PREFIX}{name}"


class MappedSegment:
    """A segment that this process has mapped: `path`, `queue`, `layout`, `identity`, and `fd` of the open `file`."""

    def __init__(self, path: Path, file: FileIO, header: Header, queue: Queue) -> None:
        self.path = path
        self.file = file
        self.fd = file.fileno()
        self.queue = queue
        self.layout = Layout(queue)
        self.identity = header.identity
        self.map()

    def map(self) -> None:
        """Map the file (anew, in a forked child)."""
        self.mapped = mmap.mmap(self.fd, self.layout.size)
        self.words = atomic_memory(self.mapped)

    def unmap(self) -> None:
        """Whoever still holds a word of it gets a `ValueError` at the next access."""
        self.words.close()
        self.mapped.close()

    def close(self) -> None:
        """Let go of the file; it stays for the others.  Once more does no harm."""
        self.unmap()
        self.file.close()

    @property
    def is_closed(self) -> bool:
        """This process has let go of it."""
        return self.file.closed

    @property
    def is_removed(self) -> bool:
        """The file has no name any more: who attaches now meets another queue, or none."""
        return os.fstat(self.fd).st_nlink == 0

    def damage_error(self, found: str, expected: str) -> DamagedQueue:
        """The error that names this file."""
        return DamagedQueue(self.path, found, expected, f"something else writes into this file; {REMAKE}")

    def check_guards(self) -> None:
        """Raises `DamagedQueue` where somebody has written beside the data area."""
        for name, at in (("before", self.layout.guard_before), ("behind", self.layout.guard_after)):
            if self.mapped[at : at + GUARD] != GUARD_BYTES:
                raise self.damage_error(
                    f"other bytes in the guard {name} the data area", "what the creator wrote there"
                )


# -- create ---------------------------------------------------------------------------------------------------------


def create_segment(path: Path, queue: Queue) -> None:
    """Make the segment of an empty queue under its name, whole or not at all.

    Raises `ExistingQueue` if the name is taken, `NoRoomForQueue` if the file system is full.
    """
    if path.exists():
        raise _existing(path)
    temporary, fd = _open_nameless(path)
    try:
        _fill(path, fd, queue)
        _name(path, fd, temporary)
    except FileExistsError as error:
        raise _existing(path) from error
    finally:
        os.close(fd)
        if temporary is not None:
            temporary.unlink()


def _name(path: Path, fd: int, temporary: Path | None) -> None:
    """Give the file its name; `FileExistsError` if somebody was faster."""
    if temporary is not None:
        os.link(temporary, path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:  # with `src_dir_fd` Python follows the link to the open file, without it does not
        os.link(f"/proc/self/fd/{fd}", path, src_dir_fd=folder)
    finally:
        os.close(folder)


def _existing(path: Path) -> ExistingQueue:
    return ExistingQueue(
        path, "a file of this name", "none", "attach to it, or remove it first (CircularQueue.unlink) if it is a relic"
    )


def _open_nameless(path: Path) -> tuple[Path | None, int]:
    """A file without a name, which goes with its process; where the system has no such thing, one that is hidden."""
    if hasattr(os, "O_TMPFILE"):
        with contextlib.suppress(OSError):
            return None, os.open(path.parent, os.O_TMPFILE | os.O_RDWR, 0o600)
    temporary = path.parent / f".{path.name}.{os.getpid()}.{os.urandom(8).hex()}"
    try:
        return temporary, os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise SegmentError(path, f"{error.strerror}", "a directory to write in", "choose another directory") from error


def _fill(path: Path, fd: int, queue: Queue) -> None:
    """Take the room (a file with holes would kill whoever touches one when memory is full), then write."""
    layout = Layout(queue)
    try:
        os.posix_fallocate(fd, 0, layout.size)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise NoRoomForQueue(
            path,
            f"no room ({error.strerror})",
            f"{layout.size} bytes",
            "remove other queues, or take a smaller capacity",
        ) from error
    with mmap.mmap(fd, layout.size) as mapped:
        for at in (layout.guard_before, layout.guard_after):
            mapped[at : at + GUARD] = GUARD_BYTES
        for pool, count in (("read", queue.read_cursors), ("write", queue.write_cursors)):
            for cursor in range(count):
                at = layout.offset_of(position_of(pool, cursor))
                mapped[at : at + WORD] = NONE.to_bytes(WORD, "little")
        header = _header_of(queue, layout.size)
        mapped[: _HEADER.size] = header._replace(magic=0).pack()
        mapped[:WORD] = header.magic.to_bytes(WORD, "little")


def _header_of(queue: Queue, size: int) -> Header:
    header = Header(
        magic=MAGIC,
        version=VERSION,
        crc=0,
        size=size,
        identity=int.from_bytes(os.urandom(8), "little"),
        capacity=queue.capacity,
        read_cursors=queue.read_cursors,
        write_cursors=queue.write_cursors,
        threshold_ns=queue.threshold_ns,
        threshold_only=int(queue.threshold_only),
    )
    return header._replace(crc=_crc_of(header.pack()))


def _crc_of(header: bytes) -> int:
    return crc32(header[3 * WORD :])


# -- attach ---------------------------------------------------------------------------------------------------------


def attach_segment(path: Path) -> MappedSegment:
    """The segment of that name, validated.

    Raises `MissingQueue`, or `DamagedQueue` for what is half made, truncated, damaged, or of another version.
    """
    file = _open(path)
    try:
        header = _read_header(path, file.fileno())
        segment = MappedSegment(path, file, header, _queue_of(path, header))
    except BaseException:
        file.close()
        raise
    try:
        segment.check_guards()
    except DamagedQueue:
        segment.close()
        raise
    return segment


def _open(path: Path) -> FileIO:
    try:
        file = FileIO(path, "r+", opener=lambda path, _: os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOFOLLOW))
    except FileNotFoundError:
        raise MissingQueue(path, "no such file", "a queue", "create it first (CircularQueue.create)") from None
    except OSError as error:
        raise SegmentError(
            path, f"{error.strerror}", "a queue to read and write", "run as the user that created it"
        ) from error
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise DamagedQueue(path, "something that is no regular file", "a queue", REMAKE)
    return file


def _read_header(path: Path, fd: int) -> Header:
    """The header, which is as its creator wrote it, of a file that is as long as it says."""
    raw = os.pread(fd, _HEADER.size, 0)
    size = os.fstat(fd).st_size
    if len(raw) < _HEADER.size:
        raise DamagedQueue(path, f"{size} bytes", f"a header of {_HEADER.size} bytes", REMAKE)
    header = Header._make(_HEADER.unpack(raw)[: len(Header._fields)])
    if header.magic == 0:
        raise DamagedQueue(path, "a queue half made", "one that its creator has finished", REMAKE)
    if header.magic != MAGIC:
        raise DamagedQueue(path, "a file that is no queue", f"the magic word {MAGIC:#x}", "look whose file it is")
    if header.version != VERSION:
        rule = "use one version of gapless for all processes of a queue"
        raise DamagedQueue(path, f"version {header.version}", f"version {VERSION}", rule)
    if header.crc != _crc_of(raw):
        raise DamagedQueue(path, "a header that its checksum does not fit", f"checksum {header.crc:#x}", REMAKE)
    if header.size != size:
        raise DamagedQueue(path, f"{size} bytes", f"{header.size} bytes", REMAKE)
    return header


def _queue_of(path: Path, header: Header) -> Queue:
    try:
        queue = Queue(
            capacity=header.capacity,
            read_cursors=header.read_cursors,
            write_cursors=header.write_cursors,
            threshold_ns=header.threshold_ns,
            threshold_only=bool(header.threshold_only),
        )
        size = Layout(queue).size
    except ConfigurationError as error:
        raise DamagedQueue(path, f"a header with {error}", "the shape of a queue", REMAKE) from error
    if size != header.size:
        raise DamagedQueue(path, f"a segment of {header.size} bytes", f"{size} bytes for its shape", REMAKE)
    return queue


# -- unlink ---------------------------------------------------------------------------------------------------------


def identity_of(path: Path) -> int | None:
    """The identity in the header of the file, whatever else is wrong with it; None: it has none."""
    try:
        with path.open("rb") as file:
            raw = file.read(_HEADER.size)
    except OSError:
        return None
    return Header._make(_HEADER.unpack(raw)[: len(Header._fields)]).identity if len(raw) == _HEADER.size else None
