"""Words of the steps texts of the queue: whole blocks as one copy into the memory."""

from statemachines.cursor_recovery.block import checksum, commit_word, data_of, size_word
from statemachines.cursor_recovery.memory import CELL, CopyIn


def block_at(position, payload, messages=1):
    """The copy that leaves a whole block at a position."""
    data = data_of(payload, messages)
    size = size_word(data, messages)
    header = (size, checksum(position, size, data), *commit_word(position))
    return CopyIn(position, b"".join(word.to_bytes(CELL, "little") for word in header) + data)
