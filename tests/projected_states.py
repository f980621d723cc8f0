"""Every state of a system, under canonical names that its components do or do not use."""

from statemachines_spec.explorer.entry_tables import encode_value
from statemachines_spec.explorer.moves import Moves


def projected(entries, names):
    """All states that can be reached, and the same under canonical names: what gives them, by type of a component."""
    moves = Moves(entries)
    seen = {moves.first()}
    queue = list(seen)
    for state in queue:
        for move in moves.of(state):
            if move.target is not None and move.target not in seen:
                seen.add(move.target)
                queue.append(move.target)
    return seen, {_projected(entries, state, names) for state in seen}


def _projected(entries, state, names):
    locals_named = []
    for component, local in zip(entries.components, state, strict=False):
        value = component.locals[local]
        rename = names.get(type(component.actor))
        locals_named.append(encode_value(value if rename is None else rename(component.actor, value)))
    rest = state[len(entries.components) :]
    return (*locals_named, *sorted(str(entries.envelopes[one]) for one in rest if one))
