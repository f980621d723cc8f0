"""Kernel: the compiled inner loops of the walker (numba).  What they mean stands in `moves`, in plain Python.

All of it is one file, since what numba keeps compiled follows changes of the file it is in, and of no other.
Everything is integers in few arrays, since numba's time to compile grows with their number.  A packed state is a sum
over its fields, and so is its digest: a successor is reckoned from what changes.  A state whose entries are not all
known yet is put aside as a whole: none of its transitions counts until Python has filled the entries in and the state
is expanded again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit

from statemachines_spec.explorer.network import IN_FLIGHT_MAX

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
RECENT = 1 << 14
"""Places of the cache of states that are in the table."""

DONE, FILL, GROW, CHUNK, CROWDED = range(5)
"""Why the walk came back: nothing left; entries are missing; the table is full; it is time; a state has too many
transitions, messages or calls."""

(
    COUNT, AT, END, TRANSITIONS, CUTS, TERMINAL, MISSING, REDO, EDGES, WORK, UNTIL, LIMIT, SEEKS, BEST, LOOKUPS,
    SHARD, SHARDS, OUT, OUT_LIMIT,
) = range(19)  # fmt: skip
"""Places of the control array: states so far, next to expand, end of the work, tallies, entries missing, states put
aside, edge hash, whether the work is a list of states, when to come back, how many states there is room for; whether
the states that lead to SOUGHT are looked for, and the best so far (index + 1); how many entries were used; which shard
this is, of how many; states that wait for other shards, and how many may.  Behind them: how many wait for each."""
CONTROLS = 19

WIDTH, BUDGETS, PLACES, LOSES, DOUBLES, ORDERED, HASHING, WORDS, RENAMINGS = range(9)
"""Places of `shape`: components, budgets, places of the network; what the network does; whether edges are hashed;
words of a state; how many renamings there are (1 without symmetry)."""

FIELDS, AFTER, SENDS, FRESH, QUEUE, BEFORE = range(6)
"""Rows of the working space: the state that is expanded, messages in flight after a move, messages sent, the new ones
among them, the events of one transition, local states before each of them."""

EVENT, ENTRY, SPENDS, GONE = range(4)
"""Columns of the list of moves: event (0: a message is lost), its entry (0: to be looked up; -1: missing), budget that
is spent (-1: none), place of the message (ALL: none)."""

# What is compiled is kept beside this file, and made anew only when this file changes.  So what it takes from elsewhere
# is said here, too: with a kept walker of another number, counterexamples are lost.
if IN_FLIGHT_MAX != 16:
    raise AssertionError(f"IN_FLIGHT_MAX is {IN_FLIGHT_MAX} now: change the number here as well")

ALL, REST, WHOLE, NEXT, SOUGHT = range(IN_FLIGHT_MAX, IN_FLIGHT_MAX + 5)
"""Rows of `parts`, each two words and a digest: before ALL, by place, the network without its message; ALL of the
network; the state without network; all of the state; a move's network; the state that is sought, with the digest of
the best so far."""
PARTS = IN_FLIGHT_MAX + 5

EDGE, CUT, LOOP, USED = range(4)
"""Tallies of one state: sum over its edges, transitions that are cut, transitions that lead back to it, entries that
its transitions took (one, and one for each call)."""
SUMS = 4

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


class WalkerTables(NamedTuple):
    """The entries as arrays.

    `layout` by field: word, shift, mask, then what one adds to either word; `entry`: next local state, where in `pool`
    its sends begin (its calls follow), sends | calls << 16, broken step property; `cell`, by the row of a message or
    call + local state: number of the entry (0: there is none; -1: asked for); `local` by component and number: bounds
    of its inputs, pending deadlines, parts of the properties; `input`: event, budget, wait, number of the entry;
    `block` by wait and pending; `digest` by component and local state, last the messages'; `message`: component it is
    for, lossy, channel, row in `cell`; `reads` by property: how many components, which; `table` by property: whether
    "always" (1) and only where no message is in flight (2), then every combination; `image` by component, local state
    and renaming: the renamed one; behind the components likewise the messages, then by component where it goes;
    `image_digest`: the digests of the first two.
    """

    shape: Any
    layout: Any
    entry: Any
    pool: Any
    cell: Any
    local: Any
    input: Any
    block: Any
    digest: Any
    message: Any
    reads: Any
    table: Any
    image: Any
    image_digest: Any


class WalkerSpace(NamedTuple):
    """What the kernel works in.

    `states`: all so far, packed; `table`: the same, by hash; `recent`: some of them, by hash; `missing`: event and
    local state of entries asked for; `redo`: states put aside; `work`: states to expand; `keys`: the batch, two
    words and a digest, then a place in the table each; `out`: by shard, the states that it is to take in; `control`,
    `room`, `moves`, `parts`, `sums`, `found`: by the names above.
    """

    states: Any
    table: Any
    recent: Any
    control: Any
    missing: Any
    redo: Any
    work: Any
    keys: Any
    out: Any
    room: Any
    moves: Any
    parts: Any
    sums: Any
    found: Any


def compile_inner(**more: Any) -> Callable[[F], F]:
    """Compiled.  Nothing here makes or keeps an array: without reference counts it runs faster, and compiles so too."""

    def compile_now(function: F) -> F:
        options: dict[str, Any] = {"error_model": "numpy", "_nrt": False, **more}
        try:
            made: F = njit(**options)(function)
        except RuntimeError:  # there is no place to keep it
            made = njit(**{**options, "cache": False})(function)
        return made

    return compile_now


outer = compile_inner(cache=True, nogil=True)
"""Called from Python, by several threads at once; kept beside this module's bytecode where that can be written."""

inner = compile_inner(forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)
"""Part of its callers: the tables are a hundred words, which a real call would have to hand over every time."""


@inner
def note(w: Any, event: int, local: int) -> None:
    """Ask Python for an entry."""
    w.missing[w.control[MISSING], 0] = event
    w.missing[w.control[MISSING], 1] = local
    w.control[MISSING] += 1


@inner
def network_of(t: Any, messages: Any, count: int) -> Any:
    """Words and digest of the first `count` messages in flight."""
    width = t.shape[WIDTH]
    net = width + t.shape[BUDGETS]
    first, second, total, behind, before = ZERO, ZERO, ZERO, ZERO, 0
    for place in range(count):
        message = messages[place]
        first += U(message) * t.layout[net + place, 3]
        second += U(message) * t.layout[net + place, 4]
        if t.shape[ORDERED]:
            channel = t.message[message, 2]
            behind = behind + TWO if channel == before else ZERO
            before = channel
        total += t.digest[width, message] * (behind + ONE)
    return first, second, total


@inner
def count_in_flight(t: Any, fields: Any) -> int:
    """How many messages are in flight."""
    net = t.shape[WIDTH] + t.shape[BUDGETS]
    used = 0
    while used < t.shape[PLACES] and fields[net + used]:
        used += 1
    return used


@inner
def digest_of(t: Any, fields: Any) -> Any:
    """64 bits of what a state means, without its network."""
    width = t.shape[WIDTH]
    total = ZERO
    for number in range(width):
        total += t.digest[number, fields[number]]
    for number in range(t.shape[BUDGETS]):
        total += U(fields[width + number] + 1) * (BUDGET + TWO * U(number))
    return total


@inner
def unpack(layout: Any, states: Any, index: int, fields: Any) -> None:
    """The fields of a packed state."""
    for number in range(layout.shape[0]):
        word = states[index, np.int64(layout[number, 0])]
        fields[number] = np.int64(word >> layout[number, 1] & layout[number, 2])


@inner
def copy_without(t: Any, w: Any, used: int, gone: int) -> int:
    """The messages in flight without that in one place (ALL: with all of them) into AFTER; how many."""
    net = t.shape[WIDTH] + t.shape[BUDGETS]
    count = 0
    for place in range(used):
        w.room[AFTER, count] = w.room[FIELDS, net + place]
        count += place != gone
    return count


@inner
def take_apart(t: Any, w: Any, index: int, used: int) -> None:
    """Fill in the parts of the state in FIELDS."""
    for turn in range(used + 1):
        gone = turn if turn < used else ALL
        count = copy_without(t, w, used, gone)
        w.parts[gone, 0], w.parts[gone, 1], w.parts[gone, 2] = network_of(t, w.room[AFTER], count)
    w.parts[WHOLE, 0] = w.states[index, 0]
    w.parts[WHOLE, 1] = w.states[index, 1] if t.shape[WORDS] == 2 else ZERO
    w.parts[REST, 2] = digest_of(t, w.room[FIELDS])
    w.parts[WHOLE, 2] = w.parts[REST, 2] + w.parts[ALL, 2]
    w.parts[REST, 0] = w.parts[WHOLE, 0] - w.parts[ALL, 0]
    w.parts[REST, 1] = w.parts[WHOLE, 1] - w.parts[ALL, 1]


@inner
def emit(t: Any, w: Any, first: Any, second: Any, value: Any, made: int) -> int:
    """One successor, by its words and digest, into the batch; a full batch takes no more (`walk` notices)."""
    if t.shape[HASHING]:
        mixed = w.parts[WHOLE, 2] * SOURCE + value * TARGET
        mixed ^= mixed >> HALF
        mixed *= MIX
        w.sums[EDGE] += mixed ^ mixed >> SIDE
    if first == w.parts[WHOLE, 0] and second == w.parts[WHOLE, 1]:
        w.sums[LOOP] += ONE  # it leads back to where it began: nothing to look up
        return made
    if made == w.keys.shape[0]:
        return made
    w.keys[made, 0], w.keys[made, 1], w.keys[made, 2] = first, second, value
    return made + 1


@inner
def place_in(t: Any, messages: Any, used: int, message: int) -> None:
    """Insert a message among those in flight: behind those of its channel, or by number."""
    place = used
    while place > 0:
        before = messages[place - 1]
        if t.shape[ORDERED]:
            if t.message[before, 2] <= t.message[message, 2]:
                break
        elif before <= message:
            break
        messages[place] = before
        place -= 1
    messages[place] = message


@inner
def fresh_of(t: Any, w: Any, left: int, sent: int) -> int:
    """The messages sent that are new: in a duplicating network a copy of what is there is not."""
    fresh = w.room[FRESH]
    count = 0
    for number in range(sent):
        message = w.room[SENDS, number]
        known = False
        if t.shape[DOUBLES]:
            for earlier in range(count):
                known |= fresh[earlier] == message
            if t.message[message, 1]:
                for place in range(left):
                    known |= w.room[AFTER, place] == message
        fresh[count] = message
        count += not known
    return count


@inner
def may_stay(t: Any, fresh: Any, sent: int, choice: int, free: int) -> bool:
    """Whether just the messages of `choice` (bits) may find room, and the others be lost."""
    have, allowed = 0, True
    for number in range(sent):
        if choice >> number & 1:
            have += 1
        else:
            allowed &= t.shape[LOSES] != 0 and t.message[fresh[number], 1] != 0
    return allowed and have == free


@inner
def spread(t: Any, w: Any, gone: int, used: int, sent: int, first: Any, second: Any, value: Any, made: int) -> int:
    """The successors for every choice of the messages that stay.  `first`, `second`, `value`: words and digest of the
    state without network; `gone`: the place that gets free, or ALL."""
    left = used if gone == ALL else used - 1
    if sent:
        copy_without(t, w, used, gone)
        sent = fresh_of(t, w, left, sent)
    every, free = (1 << sent) - 1, t.shape[PLACES] - left
    choice = every if sent <= free else 0
    row = gone
    while choice <= every:
        if sent <= free or may_stay(t, w.room[FRESH], sent, choice, free):
            if sent:
                count = copy_without(t, w, used, gone)
                for number in range(sent):
                    if choice >> number & 1:
                        place_in(t, w.room[AFTER], count, w.room[FRESH, number])
                        count += 1
                row = NEXT
                w.parts[row, 0], w.parts[row, 1], w.parts[row, 2] = network_of(t, w.room[AFTER], count)
            made = emit(t, w, first + w.parts[row, 0], second + w.parts[row, 1], value + w.parts[row, 2], made)
        choice += 1
    return made


@inner
def cascade(t: Any, w: Any, event: int, known: int) -> Any:
    """An event and the calls that follow: (ends, messages sent, broken, words and digest of the state after, without
    network).  `ends`: 1; 0 if it waits; -1 and -2 where it is cut or raises; -3 if an entry is missing (then it is on
    the list); -4 if there are too many.  `known`: the number of the event's entry; 0: to be looked up."""
    fields, sends, queue = w.room[FIELDS], w.room[SENDS], w.room[QUEUE]
    first, second, value = w.parts[REST, 0], w.parts[REST, 1], w.parts[REST, 2]
    queue[0] = event
    head, tail, sent, ends = 0, 1, 0, 1
    broken: Any = 0
    while head < tail:
        one = queue[head]
        component = t.message[one, 0]
        before = fields[component]
        number: Any = known
        if head or known == 0:
            cell = t.message[one, 3] + before
            number = t.cell[cell]
            if number <= 0:
                if number == 0:
                    note(w, one, before)
                    t.cell[cell] = -1
                ends = -3
                break
        after, place, many, breaks = (
            t.entry[number, 0], t.entry[number, 1], t.entry[number, 2], t.entry[number, 3]
        )  # fmt: skip
        if broken == 0 or after <= 0:
            broken = breaks
        if after <= 0:
            ends, sent = after, 0
            break
        behind, end = place + (many & 0xFFFF), place + (many & 0xFFFF) + (many >> 16)
        if sent + behind - place > SENDS_MAX or tail + end - behind > CALLS_MAX:
            ends = -4
            break
        w.room[BEFORE, head] = before
        fields[component] = after
        head += 1
        change = U(after - before)
        first += change * t.layout[component, 3]
        second += change * t.layout[component, 4]
        value += t.digest[component, after] - t.digest[component, before]
        for item in range(place, behind):
            sends[sent] = t.pool[item]
            sent += 1
        for item in range(behind, end):
            queue[tail] = t.pool[item]
            tail += 1
    w.sums[USED] += U(head + (ends <= 0))
    while head > 0:
        head -= 1
        fields[t.message[queue[head], 0]] = w.room[BEFORE, head]
    return ends, sent, broken, first, second, value


@inner
def handle(t: Any, w: Any, move: Any, used: int, index: int, made: int) -> int:
    """The successors by one move; the new count of them, or what is below -2 of `cascade`."""
    event, known, spends, gone = move[EVENT], move[ENTRY], move[SPENDS], move[GONE]
    ends, sent, broken, first, second, value = 1, 0, 0, w.parts[REST, 0], w.parts[REST, 1], w.parts[REST, 2]
    if known < 0:
        return -3
    if event:
        ends, sent, broken, first, second, value = cascade(t, w, event, known)
    if ends <= -3 or ends == 0:
        return ends if ends else made
    if broken:
        before = w.parts[WHOLE, 2]
        if w.found[STEP_STATE, broken] == ZERO or before < w.found[STEP_DIGEST, broken]:
            w.found[STEP_STATE, broken] = U(index + 1)
            w.found[STEP_DIGEST, broken] = before
    if spends >= 0:
        first -= t.layout[t.shape[WIDTH] + spends, 3]
        second -= t.layout[t.shape[WIDTH] + spends, 4]
        value -= BUDGET + TWO * U(spends)
    # A message is handed over, and in a duplicating network a copy of it, too, while it stays.
    copies = event != 0 and gone != ALL and t.shape[DOUBLES] != 0 and t.message[event, 1] != 0
    for turn in range(1 + copies):
        before = U(made) + w.sums[LOOP]
        if ends > 0:
            made = spread(t, w, ALL if turn else gone, used, sent, first, second, value, made)
        if U(made) + w.sums[LOOP] == before:
            w.sums[CUT] += ONE
    return made


@inner
def is_blocked(t: Any, fields: Any, wait: int) -> bool:
    """Whether some component has a deadline open that comes before."""
    blocked = False
    for number in range(t.shape[WIDTH]):
        blocked |= t.block[wait, t.local[number, fields[number], 2]] != 0
    return blocked


@inner
def moves_of(t: Any, w: Any, used: int) -> int:
    """List what may happen in a state; how many, or -4 if there are too many."""
    fields = w.room[FIELDS]
    width = t.shape[WIDTH]
    net = width + t.shape[BUDGETS]
    count = 0
    for number in range(width):
        for one in range(t.local[number, fields[number], 0], t.local[number, fields[number], 1]):
            budget, wait, known = t.input[one, 1], t.input[one, 2], t.input[one, 3]
            if (budget >= 0 and fields[width + budget] == 0) or (wait and is_blocked(t, fields, wait)):
                continue
            if known == 0:
                note(w, t.input[one, 0], fields[number])
                t.input[one, 3] = known = -1
            w.moves[count, EVENT], w.moves[count, ENTRY] = t.input[one, 0], known
            w.moves[count, SPENDS], w.moves[count, GONE] = budget, ALL
            count += 1
            if count + 2 * IN_FLIGHT_MAX >= MOVES_MAX:
                return -4
    for place in range(used):
        event, before = fields[net + place], fields[net + place - 1] if place else 0
        if before == event or (t.shape[ORDERED] and place and t.message[before, 2] == t.message[event, 2]):
            continue
        for lost in range(2 if t.shape[LOSES] and t.message[event, 1] else 1):
            w.moves[count, EVENT], w.moves[count, ENTRY] = 0 if lost else event, 0
            w.moves[count, SPENDS], w.moves[count, GONE] = -1, place
            count += 1
    return count


@inner
def expand(t: Any, w: Any, index: int, made: int) -> int:
    """Every transition of a state into the batch; -3 if entries are missing (all that are, are listed), -4 if there are
    too many."""
    fields = w.room[FIELDS]
    unpack(t.layout, w.states, index, fields)
    used = count_in_flight(t, fields)
    take_apart(t, w, index, used)
    count = moves_of(t, w, used)
    worst = min(count, 0)
    for turn in range(count):
        now = handle(t, w, w.moves[turn], used, index, made)
        if now < 0:
            worst = min(worst, now)
        else:
            made = now
    return worst if worst else made


@inner
def judge(t: Any, w: Any, index: int) -> None:
    """Read the properties in a state; of those that break one, keep the state with the least digest."""
    fields = w.room[FIELDS]
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
        w.found[HITS, number] += ONE
        if t.table[number, 0] & 1:
            net = t.shape[WIDTH] + t.shape[BUDGETS]
            value = digest_of(t, fields) + network_of(t, fields[net:], count_in_flight(t, fields))[2]
            if w.found[STATE, number] == ZERO or value < w.found[DIGEST, number]:
                w.found[STATE, number] = U(index + 1)
                w.found[DIGEST, number] = value


@inner
def hash_state(first: Any, second: Any) -> Any:
    """64 bits from the words of a state."""
    value = (first ^ second * FOLD) * MULTIPLY
    value ^= value >> SIDE
    return value * FOLD


@inner
def place_of(hash_: Any, size: Any) -> Any:
    """Where in a table of `size` places a state belongs."""
    return (hash_ >> HALF) * size >> HALF


@inner
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


@inner
def share(w: Any, made: int) -> int:
    """Hand over what falls to other shards, by its digest, which stays when the layout changes.  How many are left."""
    left = 0
    for number in range(made):
        first, second = w.keys[number, 0], w.keys[number, 1]
        shard = np.int64((w.keys[number, 2] >> HALF) * U(w.control[SHARDS]) >> HALF)
        if shard == w.control[SHARD]:
            w.keys[left, 0], w.keys[left, 1] = first, second
            left += 1
            continue
        slot = np.int64(hash_state(first, second) & U(RECENT - 1))
        if w.recent[slot, 0] != first or w.recent[slot, 1] != second:
            w.recent[slot, 0], w.recent[slot, 1] = first, second
            place = w.control[CONTROLS + shard]
            w.out[shard, place, 0], w.out[shard, place, 1] = first, second
            w.control[CONTROLS + shard] += 1
            w.control[OUT] += 1
    return left


@inner
def leave_out_known(w: Any, made: int, words: Any) -> int:
    """Leave out of the batch what is known to be in the table; touch the places of the others, so that the memory
    accesses overlap.  How many are left, with their places in the third column."""
    size = U(w.table.size) // words
    left = 0
    touched = ZERO
    for number in range(made):
        first, second = w.keys[number, 0], w.keys[number, 1]
        value = hash_state(first, second)
        slot = np.int64(value & U(RECENT - 1))
        if w.recent[slot, 0] == first and w.recent[slot, 1] == second:
            continue
        w.recent[slot, 0], w.recent[slot, 1] = first, second
        place = place_of(value, size)
        touched ^= w.table[words * place]
        w.keys[left, 0], w.keys[left, 1], w.keys[left, 2] = first, second, place
        left += 1
    w.recent[RECENT, 0] = touched  # used, or the compiler would leave the loads out
    return left


@inner
def flush(t: Any, w: Any, made: int) -> None:
    """The batch into the table; what is new becomes a state."""
    words = U(t.shape[WORDS])
    size = U(w.table.size) // words
    for number in range(leave_out_known(w, made, words)):
        if insert(w.table, words, w.keys[number, 0], w.keys[number, 1], w.keys[number, 2], size):
            index = w.control[COUNT]
            w.states[index, 0] = w.keys[number, 0]
            if words == TWO:
                w.states[index, 1] = w.keys[number, 1]
            w.control[COUNT] += 1
            unpack(t.layout, w.states, index, w.room[FIELDS])
            judge(t, w, index)


@inner
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
        place_in(t, other[net:], place - net, message)


@inner
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
        channel = t.message[message, 2]
        behind = behind + ONE if t.shape[ORDERED] and channel == before else ZERO
        before = channel
        for turn in range(t.shape[RENAMINGS]):
            digests[turn] += np.int64(t.image_digest[width, message, turn] * (TWO * behind + ONE))


@inner
def compare_states(one: Any, other: Any, size: int) -> int:
    """Below 0 if one state comes before another by its numbers, 0 if they are the same."""
    for number in range(size):
        if one[number] != other[number]:
            return -1 if one[number] < other[number] else 1
    return 0


@outer
def reduce(t: Any, w: Any, made: int) -> None:
    """In place of each successor in the batch, the state that stands for its orbit (`Moves.least`), and its digest
    without the budgets."""
    keys, fields, other, best, digests = w.keys, w.room[AFTER], w.room[FRESH], w.room[SENDS], w.room[QUEUE]
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
        keys[number, 2] = least
        if turn == 0 and tied == 1:
            continue
        rename(t, fields, turn, best)
        for one in range(turn + 1, t.shape[RENAMINGS]):
            if tied > 1 and U(digests[one]) == least:
                rename(t, fields, one, other)
                if compare_states(other, best, size) < 0:
                    for place in range(size):
                        best[place] = other[place]
        keys[number, 0] = keys[number, 1] = ZERO
        for place in range(size):
            keys[number, np.int64(t.layout[place, 0])] |= U(best[place]) << t.layout[place, 1]


@outer
def stand_for(t: Any, w: Any) -> int:
    """How many states these stand for: the sum of the sizes of their orbits."""
    fields, other, digests = w.room[AFTER], w.room[FRESH], w.room[QUEUE]
    size, many = t.layout.shape[0], t.shape[RENAMINGS]
    total = 0
    for index in range(w.control[COUNT]):
        unpack(t.layout, w.states, index, fields)
        digests_of(t, fields, digests)
        same = 1
        for turn in range(1, many):
            if digests[turn] == digests[0]:
                rename(t, fields, turn, other)
                same += compare_states(fields, other, size) == 0
        total += many // same
    return total


@inner
def seek(w: Any, made: int, index: int) -> None:
    """Whether the state leads to the one that is sought; of all that do, the one with the least digest is kept."""
    for number in range(made):
        if w.keys[number, 0] == w.parts[SOUGHT, 0] and w.keys[number, 1] == w.parts[SOUGHT, 1]:
            if w.control[BEST] == 0 or w.parts[WHOLE, 2] < w.parts[SOUGHT, 2]:
                w.control[BEST], w.parts[SOUGHT, 2] = index + 1, w.parts[WHOLE, 2]
            break


@inner
def settle(t: Any, w: Any, made: int) -> None:
    """The batch, each by what stands for its orbit, into the table or to its shard."""
    if t.shape[RENAMINGS] > 1:
        reduce(t, w, made)
    if w.control[SHARDS] > 1:
        made = share(w, made)
    flush(t, w, made)


@outer
def walk(t: Any, w: Any) -> int:
    """Expand states until the work is done or Python is needed; one of DONE, FILL, GROW, CHUNK, CROWDED."""
    made, why = 0, DONE
    while w.control[AT] < w.control[END]:
        if w.control[COUNT] + made + MOVES_MAX > w.control[LIMIT]:
            why = GROW
            break
        if w.control[MISSING] + MOVES_MAX > MISSING_MAX or w.control[REDO] == w.redo.size:
            why = FILL
            break
        if w.control[AT] >= w.control[UNTIL] or w.control[OUT] + made + MOVES_MAX > w.control[OUT_LIMIT]:
            why = CHUNK
            break
        index = w.work[w.control[AT]] if w.control[WORK] else w.control[AT]
        w.sums[EDGE] = w.sums[CUT] = w.sums[LOOP] = w.sums[USED] = ZERO
        now = expand(t, w, index, made)
        if now == -4 or now - made > MOVES_MAX - SENDS_MAX:
            why = CROWDED
            break
        w.control[AT] += 1
        if w.control[SEEKS]:
            if t.shape[RENAMINGS] > 1:
                reduce(t, w, now)
            seek(w, now, index)
            continue
        if now < 0:
            w.redo[w.control[REDO]] = index
            w.control[REDO] += 1
            continue
        out = now - made + np.int64(w.sums[LOOP])
        w.control[TRANSITIONS] += out
        w.control[CUTS] += np.int64(w.sums[CUT])
        w.control[LOOKUPS] += np.int64(w.sums[USED])
        w.control[EDGES] += np.int64(w.sums[EDGE])
        w.control[TERMINAL] += out == 0
        made = now
        if made >= BATCH:
            settle(t, w, made)
            made = 0
    settle(t, w, made)
    return why


@outer
def begin(t: Any, w: Any) -> None:
    """The first state, whose words stand in `keys`."""
    fields = w.room[FIELDS]
    unpack(t.layout, w.keys, 0, fields)
    net = t.shape[WIDTH] + t.shape[BUDGETS]
    w.keys[0, 2] = digest_of(t, fields) + network_of(t, fields[net:], count_in_flight(t, fields))[2]
    settle(t, w, 1)


@outer
def take_in(t: Any, w: Any, found: Any, count: int) -> None:
    """States that others found (`count` rows of two words); there is room for all of them."""
    for start in range(0, count, BATCH):
        made = min(BATCH, count - start)
        for number in range(made):
            w.keys[number, 0], w.keys[number, 1] = found[start + number, 0], found[start + number, 1]
        flush(t, w, made)


@outer
def rebuild(w: Any, count: int) -> None:
    """Put every state into an empty table."""
    words = U(w.states.shape[1])
    size = U(w.table.size) // words
    touched = ZERO
    for start in range(0, count, BATCH):
        end = min(count, start + BATCH)
        for index in range(start, end):
            second = w.states[index, 1] if words == TWO else ZERO
            place = place_of(hash_state(w.states[index, 0], second), size)
            w.keys[index - start, 2] = place
            touched ^= w.table[words * place]
        for index in range(start, end):
            second = w.states[index, 1] if words == TWO else ZERO
            insert(w.table, words, w.states[index, 0], second, w.keys[index - start, 2], size)
    w.keys[BATCH, 2] = touched  # used, or the compiler would leave the loads out
