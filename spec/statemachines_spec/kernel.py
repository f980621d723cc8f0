"""Kernel: the compiled inner loops of the walker (numba).  What they mean stands in `moves`, in plain Python.

All of it is one file, since what numba keeps compiled follows changes of the file it is in, and of no other.
Everything is integers in few arrays, since numba's time to compile grows with their number.  A state whose entries are
not all known yet is put aside as a whole: none of its transitions counts until Python has filled the entries in and the
state is expanded again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

MOVES_MAX = 1024
"""Transitions out of one state, at most."""
BATCH = 256
"""Successors that are looked up together, so that the memory accesses overlap."""
SENDS_MAX = 32
"""Messages sent within one transition, at most."""
CALLS_MAX = 64
"""Calls within one transition, at most (as in `moves`)."""
MISSING_MAX = 1 << 13
"""Entries that are asked for at a time."""

DONE, FILL, GROW, CHUNK, CROWDED = range(5)
"""Why the walk came back: nothing left; entries are missing; the table is full; it is time; a state has too many
transitions, messages or calls."""

COUNT, AT, END, TRANSITIONS, CUTS, TERMINAL, MISSING, REDO, EDGES, WORK, UNTIL, LIMIT = range(12)
"""Places of the control array: states so far, next to expand, end of the work, tallies, entries missing, states put
aside, edge hash, whether the work is a list of states, when to come back, how many states there is room for."""
CONTROLS = 12

WIDTH, BUDGETS, PLACES, LOSES, DOUBLES, ORDERED, HASHING, WORDS, RENAMINGS = range(9)
"""Places of `shape`: components, budgets, places of the network; what the network does; whether edges are hashed;
words of a state; how many renamings there are (1 without symmetry)."""

FIELDS, AFTER, OTHER, SENDS, QUEUE = range(5)
"""Rows of the working space."""

STATE, DIGEST, HITS, STEP_STATE, STEP_DIGEST = range(5)
"""Rows of what was found, by property: state that breaks it (index + 1) and its digest, hits; the same for steps."""

U = np.uint64
MULTIPLY, FOLD, BUDGET, SOURCE, TARGET, MIX = (
    U(0x9E3779B97F4A7C15),
    U(0xD6E8FEB86659FD93),
    U(0x9E3779B97F4A7C15),
    U(0xBF58476D1CE4E5B9),
    U(0x94D049BB133111EB),
    U(0xD6E8FEB86659FD93),
)
ZERO, ONE, TWO, HALF, SIDE = U(0), U(1), U(2), U(32), U(29)
LOCAL_BITS, ENTRY_BITS, ENTRY_MASK = U(22), U(26), U((1 << 26) - 1)


class Tables(NamedTuple):
    """The entries as arrays.

    `layout` by field: word, shift, mask; `pairs`: open addressing, event << 48 | local << 26 | entry + 1 (0 in place of
    the entry: asked for); `entry`: next local state, bounds of its sends and of its calls in `pool`, broken step
    property; `local` by component and number: bounds of its inputs, pending deadlines, parts of the properties;
    `input`: event, budget, wait, entry + 1; `block` by wait and pending; `message`: digest, dest, lossy, channel;
    `reads` by property: how many components, which; `table` by property: whether "always" (1) and only where no message
    is in flight (2), then every combination;
    `image` by component, local state and renaming: the renamed one; behind the components likewise the messages, then
    by component where it goes; `image_digest`: the digests of the first two.
    """

    shape: Any
    layout: Any
    pairs: Any
    entry: Any
    pool: Any
    local: Any
    input: Any
    block: Any
    digest: Any
    message: Any
    reads: Any
    table: Any
    image: Any
    image_digest: Any


def compiled(function: F) -> F:
    """Compiled, and kept beside this module's bytecode where that can be written."""
    # Nothing here makes or keeps an array: without reference counts it runs twice as fast, and compiles so too.
    options: dict[str, Any] = {"error_model": "numpy", "_nrt": False}
    try:
        made: F = njit(cache=True, **options)(function)
    except RuntimeError:
        made = njit(**options)(function)
    return made


@compiled
def pair_place(pairs: Any, key: Any) -> Any:
    """Where the pair `event << 22 | local` is, or the empty place where it belongs."""
    mask = U(pairs.size - 1)
    place = (key * MULTIPLY) >> U(20) & mask
    while pairs[place] != ZERO and pairs[place] >> ENTRY_BITS != key:
        place = (place + ONE) & mask
    return place


@compiled
def add_pairs(pairs: Any, keys: Any, first: int) -> None:
    """Put the pairs of entries `first`, `first` + 1 ... into their map."""
    for number in range(keys.size):
        pairs[pair_place(pairs, keys[number])] = keys[number] << ENTRY_BITS | U(first + number + 1)


@compiled
def unpack(layout: Any, states: Any, index: int, fields: Any) -> None:
    """The fields of a packed state."""
    for number in range(layout.shape[0]):
        word = states[index, np.int64(layout[number, 0])]
        fields[number] = np.int64(word >> layout[number, 1] & layout[number, 2])


@compiled
def digest_of(t: Any, fields: Any) -> Any:
    """64 bits of what a state means."""
    total = ZERO
    width, budgets = t.shape[WIDTH], t.shape[BUDGETS]
    for number in range(width):
        total += t.digest[number, fields[number]]
    for number in range(budgets):
        total += U(fields[width + number] + 1) * (BUDGET + TWO * U(number))
    behind, before = ZERO, ZERO
    for place in range(width + budgets, width + budgets + t.shape[PLACES]):
        message = fields[place]
        if message == 0:
            break
        channel = t.message[message, 3]
        behind = behind + ONE if t.shape[ORDERED] and channel == before else ZERO
        before = channel
        total += t.message[message, 0] * (TWO * behind + ONE)
    return total


@compiled
def emit(t: Any, fields: Any, source: Any, keys: Any, made: int, sums: Any) -> int:
    """One successor into the batch; a full batch takes no more (`walk` notices)."""
    if made == keys.shape[0]:
        return made
    first, second = ZERO, ZERO
    for number in range(t.layout.shape[0]):
        value = U(fields[number]) << t.layout[number, 1]
        if t.layout[number, 0] == ZERO:
            first |= value
        else:
            second |= value
    keys[made, 0], keys[made, 1] = first, second
    if t.shape[HASHING]:
        value = source * SOURCE + digest_of(t, fields) * TARGET
        value ^= value >> HALF
        value *= MIX
        sums[0] += value ^ value >> SIDE
    return made + 1


@compiled
def place_in(t: Any, fields: Any, used: int, message: int) -> None:
    """Insert a message into the places of the network: behind those of its channel, or by number."""
    net = t.shape[WIDTH] + t.shape[BUDGETS]
    place = net + used
    while place > net:
        before = fields[place - 1]
        if t.shape[ORDERED]:
            if t.message[before, 3] <= t.message[message, 3]:
                break
        elif before <= message:
            break
        fields[place] = before
        place -= 1
    fields[place] = message


@compiled
def without_known(t: Any, fields: Any, used: int, sends: Any, sent: int) -> int:
    """In a duplicating network a copy of what is there is nothing new."""
    net = t.shape[WIDTH] + t.shape[BUDGETS]
    fresh = 0
    for number in range(sent):
        message = sends[number]
        known = False
        for earlier in range(fresh):
            known |= sends[earlier] == message
        if t.message[message, 2] != ZERO:
            for place in range(net, net + used):
                known |= fields[place] == message
        if not known:
            sends[fresh] = message
            fresh += 1
    return fresh


@compiled
def spread(t: Any, room: Any, used: int, sent: int, source: Any, keys: Any, made: int, sums: Any) -> int:
    """The successors for every choice of the messages that stay; the same count if there is none."""
    fields, other, sends = room[AFTER], room[OTHER], room[SENDS]
    if t.shape[DOUBLES]:
        sent = without_known(t, fields, used, sends, sent)
    free = t.shape[PLACES] - used
    if sent <= free:
        for number in range(sent):
            place_in(t, fields, used + number, sends[number])
        return emit(t, fields, source, keys, made, sums)
    for kept in range(1 << sent):
        have, allowed = 0, True
        for number in range(sent):
            if kept >> number & 1:
                have += 1
            elif not t.shape[LOSES] or t.message[sends[number], 2] == ZERO:
                allowed = False
        if not allowed or have != free:
            continue
        for number in range(t.layout.shape[0]):
            other[number] = fields[number]
        have = used
        for number in range(sent):
            if kept >> number & 1:
                place_in(t, other, have, sends[number])
                have += 1
        made = emit(t, other, source, keys, made, sums)
    return made


@compiled
def cascade(t: Any, event: int, known: int, room: Any, control: Any, missing: Any) -> Any:
    """An event and the calls that follow, carried out on AFTER: (1, messages sent, broken); (0, 0, 0) if it waits;
    (-1, ...) and (-2, ...) where it is cut or raises; (-3, ...) if an entry is missing (then it is on the list); (-4,
    ...) if there are too many.  `known`: the number of the event's entry, if it stands with the input."""
    after, sends, queue = room[AFTER], room[SENDS], room[QUEUE]
    queue[0] = event
    head, tail, sent = 0, 1, 0
    broken: Any = 0
    while head < tail:
        one = queue[head]
        head += 1
        component = np.int64(t.message[one, 1])
        if known:
            number: Any = known
            known = 0
        else:
            key = U(one) << LOCAL_BITS | U(after[component])
            place = pair_place(t.pairs, key)
            number = np.int64(t.pairs[place] & ENTRY_MASK)
            if number == 0:
                if t.pairs[place] == ZERO:
                    t.pairs[place] = key << ENTRY_BITS
                    missing[control[MISSING], 0] = one
                    missing[control[MISSING], 1] = after[component]
                    control[MISSING] += 1
                return -3, 0, 0
        entry = t.entry[number - 1]
        if entry[0] <= 0:
            return np.int64(entry[0]), 0, np.int64(entry[5])
        after[component] = entry[0]
        if sent + entry[2] - entry[1] > SENDS_MAX or tail + entry[4] - entry[3] > CALLS_MAX:
            return -4, 0, 0
        for number in range(entry[1], entry[2]):
            sends[sent] = t.pool[number]
            sent += 1
        for number in range(entry[3], entry[4]):
            queue[tail] = t.pool[number]
            tail += 1
        if broken == 0:
            broken = np.int64(entry[5])
    return 1, sent, broken


@compiled
def handle(
    t: Any, event: int, known: int, gone: int, used: int, budget: int, source: Any, keys: Any, made: int, sums: Any,
    room: Any, control: Any, missing: Any, found: Any, index: int,
) -> int:  # fmt: skip
    """One event in the state in FIELDS; the new count of successors, or what is below 0 of `cascade`'s -3 and -4."""
    for number in range(t.layout.shape[0]):
        room[AFTER, number] = room[FIELDS, number]
    ends, sent, broken = cascade(t, event, known, room, control, missing)
    if ends <= -3 or ends == 0:
        return ends if ends else made
    if broken:
        value = digest_of(t, room[FIELDS])
        if found[STEP_STATE, broken] == ZERO or value < found[STEP_DIGEST, broken]:
            found[STEP_STATE, broken] = U(index + 1)
            found[STEP_DIGEST, broken] = value
    if ends < 0:
        sums[1] += ONE
        return made
    after, net = room[AFTER], t.shape[WIDTH] + t.shape[BUDGETS]
    if budget >= 0:
        after[t.shape[WIDTH] + budget] -= 1
    if gone >= 0:
        for place in range(gone, net + used - 1):
            after[place] = after[place + 1]
        after[net + used - 1] = 0
        used -= 1
    now = spread(t, room, used, sent, source, keys, made, sums)
    if now == made:
        sums[1] += ONE
    return now


@compiled
def is_blocked(t: Any, fields: Any, wait: int) -> bool:
    """Whether some component has a deadline open that comes before."""
    blocked = False
    for number in range(t.shape[WIDTH]):
        blocked |= t.block[wait, t.local[number, fields[number], 2]] != 0
    return blocked


@compiled
def expand(
    t: Any, keys: Any, made: int, sums: Any, room: Any, control: Any, missing: Any, found: Any, index: int
) -> int:
    """Every transition of the state in FIELDS into the batch; -3 if entries are missing (all that are, are listed), -4
    if there are too many."""
    fields = room[FIELDS]
    source = digest_of(t, fields) if t.shape[HASHING] else ZERO
    width = t.shape[WIDTH]
    net = width + t.shape[BUDGETS]
    used = 0
    while used < t.shape[PLACES] and fields[net + used]:
        used += 1
    worst = 0
    inputs = 0
    for number in range(width):
        inputs += t.local[number, fields[number], 1] - t.local[number, fields[number], 0]
    number, one = -1, 0
    last = 0
    for turn in range(inputs + 2 * used):
        if turn < inputs:
            while one == last:
                number += 1
                one, last = t.local[number, fields[number], 0], t.local[number, fields[number], 1]
            event, budget, wait, known, gone = t.input[one, 0], t.input[one, 1], t.input[one, 2], t.input[one, 3], -1
            one += 1
            if (budget >= 0 and fields[width + budget] == 0) or (wait and is_blocked(t, fields, wait)):
                continue
        else:
            place = net + (turn - inputs) // 2
            event, budget, known = np.int32(fields[place]), -1, 0
            copy = (turn - inputs) % 2 == 1
            gone = -1 if copy else place
            if copy and not (t.shape[DOUBLES] and t.message[event, 2]):
                continue
            if place > net:
                before = fields[place - 1]
                if before == event or (t.shape[ORDERED] and t.message[before, 3] == t.message[event, 3]):
                    continue
        now = handle(
            t, event, known, gone, used, budget, source, keys, made, sums, room, control, missing, found, index
        )
        if now < 0:
            worst = min(worst, now)
        else:
            made = now
    if not t.shape[LOSES]:
        return worst if worst else made
    for place in range(net, net + used):
        event, before = fields[place], fields[place - 1] if place > net else -1
        first = before != event and not (
            t.shape[ORDERED] and before > 0 and t.message[before, 3] == t.message[event, 3]
        )
        if first and t.message[event, 2]:
            other = room[OTHER]
            for number in range(t.layout.shape[0]):
                other[number] = fields[number]
            for hole in range(place, net + used - 1):
                other[hole] = other[hole + 1]
            other[net + used - 1] = 0
            made = emit(t, other, source, keys, made, sums)
    return worst if worst else made


@compiled
def judge(t: Any, found: Any, fields: Any, index: int) -> None:
    """Read the properties in a state; of those that break one, keep the state with the least digest."""
    flying = fields[t.shape[WIDTH] + t.shape[BUDGETS]] != 0
    for number in range(t.local.shape[2] - 3):
        if flying and t.table[number, 0] & 2:
            continue
        place = 1
        for turn in range(1, 1 + t.reads[number, 0]):
            component = t.reads[number, turn]
            place += t.local[component, fields[component], 3 + number]
        if t.table[number, place] == 0:
            continue
        found[HITS, number] += ONE
        if t.table[number, 0] & 1:
            value = digest_of(t, fields)
            if found[STATE, number] == ZERO or value < found[DIGEST, number]:
                found[STATE, number] = U(index + 1)
                found[DIGEST, number] = value


@compiled
def hashed(first: Any, second: Any, size: Any) -> Any:
    """Where in a table of `size` places a state belongs."""
    value = (first ^ second * FOLD) * MULTIPLY
    value ^= value >> SIDE
    value *= FOLD
    return (value >> HALF) * size >> HALF


@compiled
def insert(table: Any, words: Any, first: Any, second: Any, place: Any, size: Any) -> bool:
    """Put a state in; False if it was there."""
    while True:
        there = table[words * place]
        if there == first and (words == ONE or table[TWO * place + ONE] == second):
            return False
        if there == ZERO:
            table[words * place] = first
            if words == TWO:
                table[TWO * place + ONE] = second
            return True
        place += ONE
        if place == size:
            place = ZERO


@compiled
def flush(
    t: Any, keys: Any, made: int, states: Any, table: Any, control: Any, places: Any, fields: Any, found: Any
) -> None:
    """The batch into the table: first touch every place, so that the accesses overlap, then insert."""
    words = U(t.shape[WORDS])
    size = U(table.size) // words
    touched = ZERO
    for number in range(made):
        place = hashed(keys[number, 0], keys[number, 1], size)
        places[number] = place
        touched ^= table[place * words]
    places[-1] = touched  # used, or the compiler would leave the loads out
    for number in range(made):
        if insert(table, words, keys[number, 0], keys[number, 1], places[number], size):
            index = control[COUNT]
            states[index, 0] = keys[number, 0]
            if words == TWO:
                states[index, 1] = keys[number, 1]
            control[COUNT] += 1
            unpack(t.layout, states, index, fields)
            judge(t, found, fields, index)


@compiled
def rename(t: Any, fields: Any, turn: Any, other: Any) -> None:
    """A state under a renaming, into `other` (`Moves.renamed`)."""
    width = t.shape[WIDTH]
    net = width + t.shape[BUDGETS]
    for number in range(width):
        other[t.image[width + 1, number, turn]] = t.image[number, fields[number], turn]
    for number in range(width, net):
        other[number] = fields[number]
    for place in range(net, net + t.shape[PLACES]):
        other[place] = 0
    for place in range(net, net + t.shape[PLACES]):
        if fields[place] == 0:
            break
        message: Any = t.image[width, fields[place], turn]
        place_in(t, other, place - net, message)


@compiled
def digests_of(t: Any, fields: Any, digests: Any) -> None:
    """The digest under each renaming, without the budgets (`Moves._digests`)."""
    width = t.shape[WIDTH]
    net = width + t.shape[BUDGETS]
    for turn in range(t.shape[RENAMINGS]):
        digests[turn] = 0
    for number in range(width):
        for turn in range(t.shape[RENAMINGS]):
            digests[turn] += np.int64(t.image_digest[number, fields[number], turn])
    behind, before = ZERO, ZERO
    for place in range(net, net + t.shape[PLACES]):
        message = fields[place]
        if message == 0:
            break
        channel = t.message[message, 3]
        behind = behind + ONE if t.shape[ORDERED] and channel == before else ZERO
        before = channel
        for turn in range(t.shape[RENAMINGS]):
            digests[turn] += np.int64(t.image_digest[width, message, turn] * (TWO * behind + ONE))


@compiled
def compared(one: Any, other: Any, size: int) -> int:
    """Below 0 if one state comes before another by its numbers, 0 if they are the same."""
    for number in range(size):
        if one[number] != other[number]:
            return -1 if one[number] < other[number] else 1
    return 0


@compiled
def reduce(t: Any, keys: Any, made: int, room: Any) -> None:
    """In place of each successor in the batch, the state that stands for its orbit (`Moves.least`)."""
    fields, other, best, digests = room[AFTER], room[OTHER], room[SENDS], room[QUEUE]
    size = t.layout.shape[0]
    for number in range(made):
        unpack(t.layout, keys, number, fields)
        digests_of(t, fields, digests)
        least, tied, turn = U(digests[0]), 1, 0
        for one in range(1, t.shape[RENAMINGS]):
            if U(digests[one]) < least:
                least, tied, turn = U(digests[one]), 1, one
            elif U(digests[one]) == least:
                tied += 1
        if turn == 0 and tied == 1:
            continue
        rename(t, fields, turn, best)
        for one in range(turn + 1, t.shape[RENAMINGS]):
            if tied > 1 and U(digests[one]) == least:
                rename(t, fields, one, other)
                if compared(other, best, size) < 0:
                    for place in range(size):
                        best[place] = other[place]
        keys[number, 0] = keys[number, 1] = ZERO
        for place in range(size):
            keys[number, np.int64(t.layout[place, 0])] |= U(best[place]) << t.layout[place, 1]


@compiled
def stand_for(t: Any, states: Any, count: int, room: Any) -> int:
    """How many states these stand for: the sum of the sizes of their orbits."""
    fields, other, digests = room[AFTER], room[OTHER], room[QUEUE]
    size, many = t.layout.shape[0], t.shape[RENAMINGS]
    total = 0
    for index in range(count):
        unpack(t.layout, states, index, fields)
        digests_of(t, fields, digests)
        same = 1
        for turn in range(1, many):
            if digests[turn] == digests[0]:
                rename(t, fields, turn, other)
                same += compared(fields, other, size) == 0
        total += many // same
    return total


@compiled
def walk(
    t: Any, states: Any, table: Any, control: Any, missing: Any, redo: Any, work: Any, keys: Any, places: Any,
    room: Any, sums: Any, found: Any,
) -> int:  # fmt: skip
    """Expand states until the work is done or Python is needed; one of DONE, FILL, GROW, CHUNK, CROWDED."""
    made, why = 0, DONE
    while control[AT] < control[END]:
        if control[COUNT] + made + MOVES_MAX > control[LIMIT]:
            why = GROW
            break
        if control[MISSING] + MOVES_MAX > MISSING_MAX or control[REDO] == redo.size:
            why = FILL
            break
        if control[AT] >= control[UNTIL]:
            why = CHUNK
            break
        index = work[control[AT]] if control[WORK] else control[AT]
        unpack(t.layout, states, index, room[FIELDS])
        sums[0] = sums[1] = ZERO
        now = expand(t, keys, made, sums, room, control, missing, found, index)
        if now == -4 or now - made > MOVES_MAX - SENDS_MAX:
            why = CROWDED
            break
        control[AT] += 1
        if now < 0:
            redo[control[REDO]] = index
            control[REDO] += 1
            continue
        control[TRANSITIONS] += now - made
        control[CUTS] += np.int64(sums[1])
        control[EDGES] = np.int64(U(control[EDGES]) + sums[0])
        if now == made:
            control[TERMINAL] += 1
        made = now
        if made >= BATCH:
            if t.shape[RENAMINGS] > 1:
                reduce(t, keys, made, room)
            flush(t, keys, made, states, table, control, places, room[AFTER], found)
            made = 0
    if t.shape[RENAMINGS] > 1:
        reduce(t, keys, made, room)
    flush(t, keys, made, states, table, control, places, room[AFTER], found)
    return why


@compiled
def rebuild(states: Any, count: int, table: Any) -> None:
    """Put every state into an empty table."""
    words = U(states.shape[1])
    size = U(table.size) // words
    for index in range(count):
        second = states[index, 1] if words == TWO else ZERO
        insert(table, words, states[index, 0], second, hashed(states[index, 0], second, size), size)


@compiled
def source_of(
    t: Any, states: Any, first: int, last: int, target: Any, control: Any, missing: Any, keys: Any, room: Any,
    sums: Any, found: Any,
) -> int:  # fmt: skip
    """Of the states first..last - 1 that lead to `target`, the one with the least digest: its index, or -1."""
    best, least = -1, ZERO
    for index in range(first, last):
        unpack(t.layout, states, index, room[FIELDS])
        now = expand(t, keys, 0, sums, room, control, missing, found, index)
        if t.shape[RENAMINGS] > 1:
            reduce(t, keys, now, room)
        for number in range(now):
            if keys[number, 0] == target[0] and keys[number, 1] == target[1]:
                value = digest_of(t, room[FIELDS])
                if best < 0 or value < least:
                    best, least = index, value
                break
    return best
