"""How each promise is broken (tools/clauses.py): a rule that it rests on is not kept."""

from msgspec.structs import replace
from mutants import swap, without, without_choice, wrap

from statemachines.cursor_recovery import writer
from statemachines.cursor_recovery.memory import CELL, CompareAndSwap, Memory
from statemachines.cursor_recovery.reader import READER
from statemachines.cursor_recovery.writer import WRITER, QueueWriterRecord
from statemachines.drivers.cursor_recovery import turns
from statemachines.drivers.cursor_recovery.bell import Bell


def swaps_anything(apply):
    """A compare-and-swap does not compare."""

    def careless(self, state, request, now_ns):
        if isinstance(request, CompareAndSwap):
            request = replace(request, expected=state.get(request.address, 0))
        return apply(self, state, request, now_ns)

    return careless


BREAKS = {
    "CR-60": without_choice("cursor_recovery", "CR-60"),
    "CR-33": without(WRITER, "CR-10"),  # no look whether there is room
    "CR-34": wrap(Memory, "apply", swaps_anything),
    "CR-35": wrap(QueueWriterRecord, "address", lambda address: lambda self, offset: address(self, offset + CELL)),
    "CR-36": swap(writer, "checksum", lambda position, size, payload: 0),
    "CR-37": swap(writer, "commit_word", lambda position: (1, 1)),
    "CR-54": wrap(Memory, "apply", swaps_anything),
    "CR-55": without(READER, "CR-46"),  # nobody looks for the next block
    "CR-38": without(WRITER, "CR-07"),  # what is stale is never freed
    "CR-57": swap(turns, "_is_over", lambda holder: False),  # a turn that was broken off lasts
    "CR-58": swap(Bell, "ring", lambda bell: True),  # nobody is told that the queue was removed
}
