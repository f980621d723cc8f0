"""Word: 64 bits in shared memory that every process reads and changes in one indivisible access.

The operations of a word are ordered as they are called (sequentially consistent): the machines rest on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from statemachines.kernel import ConfigurationError

if TYPE_CHECKING:
    from mmap import mmap


class Word64(Protocol):
    """One word.  Named as in `atomicshm`, whose cells serve as they are: each call more would cost an access more."""

    def load(self) -> int:
        """The value, 0 to 2**64 - 1."""
        ...

    def store(self, value: int, /) -> None:
        """Set it."""
        ...

    def cas(self, expected: int, desired: int, /) -> int:
        """Set it to `desired` if it is `expected`; what it was before, in either case."""
        ...


class AtomicMemory(Protocol):
    """The words in a mapped file, by their offset in bytes; after `close` every access raises `ValueError`."""

    def cell_u64(self, offset: int, /) -> Word64:
        """The word at a multiple of 8."""
        ...

    def load_u32(self, offset: int, /) -> int:
        """The cell of four bytes at a multiple of 4."""
        ...

    def store_u32(self, offset: int, value: int, /) -> None:
        """Set that cell."""
        ...

    def close(self) -> None:
        """Let go of the mapping."""
        ...


def atomic_memory(mapped: mmap) -> AtomicMemory:
    """The words of a mapped file; `ConfigurationError` names the extra where its package is not installed."""
    try:
        from atomicshm import AtomicView
    except ImportError as error:
        rule = "a queue in shared memory needs the extra 'shm': pip install 'gapless[shm]'"
        raise ConfigurationError("atomicshm", "not installed", rule) from error
    view: AtomicMemory = AtomicView(mapped)
    return view
