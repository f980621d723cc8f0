"""The change that a commit of a whole state is."""

from statemachines.kernel import Map
from statemachines.persistent_sessions.request import SessionState, StateChange

NOTHING = SessionState()


def change_to(after, before=NOTHING):
    """What makes `after` of `before`."""
    first = next(
        count
        for count in range(len(before.queued) + 1)
        if before.queued[count:] == after.queued[: len(before.queued) - count]
    )
    return StateChange(
        Map({writer: at for writer, at in after.taken.items() if before.taken.get(writer) != at}),
        tuple(sorted(packet for packet in before.packets if packet not in after.packets)),
        tuple(one for packet, one in sorted(after.packets.items()) if before.packets.get(packet) != one),
        first,
        after.queued[len(before.queued) - first :],
        after.places,
    )
