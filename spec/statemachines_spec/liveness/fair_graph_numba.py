"""Links: the compiled loops that make the graph of what can happen without faults (numba).  What they mean stands in
`faultless_moves`, in plain Python.

All of it is one file that uses no other compiled one, since what numba keeps compiled follows changes of the file it is
in, and of no other.  A node is a row: the local state of each component, then the number of a filling of the network.
A node whose entries are not all known is given up, and expanded again when Python has filled them in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numba import njit

F = TypeVar("F", bound=Callable[..., Any])

MOVES_MAX = 1024
"""Transitions out of one node, at most."""
SENDS_MAX = 32
"""Messages sent within one transition, at most."""
CALLS_MAX = 64
"""Calls within one transition, at most (as in `moves`)."""

AHEAD_MAX = 1 << 14
"""Nodes that are looked at behind one that lacks an entry."""

DONE, CHUNK, FILL, GROW, CROWDED = range(5)
"""Why the loop came back: nothing left; it is time; entries are missing; an array is full; a node has too many
transitions, messages or calls."""

NODES, NETS, LINKS, AT, UNTIL, MISSING = range(6)
"""Places of the control array: how many there are of each, the next node to expand, when to come back, entries that
are missing."""
CONTROLS = 6

WIDTH, PLACES, ORDERED, DOUBLES, ROOM = range(5)
"""Places of `shape`: components, places of the network, what the network does, how many places are for what is sent
without being an answer."""

WAITS, DARK, LACKS, OVERFLOWS = 0, -1, -3, -4
"""What comes of an event instead of a target: nothing, since it cannot happen; who knows; an entry is missing; too many
messages or calls."""

U = np.uint64
ZERO, ONE, HALF, SIDE = U(0), U(1), U(32), U(29)
MULTIPLY, FOLD, LOW = U(0x9E3779B97F4A7C15), U(0xD6E8FEB86659FD93), U(0xFFFFFFFF)
LOCAL_BITS, ENTRY_BITS, ENTRY_MASK = U(22), U(26), U((1 << 26) - 1)


class FairTables(NamedTuple):
    """Entries and what is possible, as arrays.

    `pairs`: open addressing, event << 48 | local << 26 | entry + 1; `entry`: next local state, bounds of its sends and
    of its calls in `pool`; `local` by component and number: bounds of its inputs, pending deadlines; `kept` likewise:
    subjects (bits); `input`: event, wait; `subject` likewise: a bit, 0 (costs nothing), or all of them (who knows);
    `block` by wait and pending; `message`: dest, channel, whether it may be doubled; `carried`: subjects (bits).
    """

    shape: Any
    pairs: Any
    entry: Any
    pool: Any
    local: Any
    kept: Any
    input: Any
    subject: Any
    block: Any
    message: Any
    carried: Any


class Arrays(NamedTuple):
    """The graph while it grows: `rows` by node; `places` by filling of the network; two open-addressing tables of
    hash << 32 | number + 1; `first` link of each node; `target` and `event` by link; `missing` pairs; working space."""

    rows: Any
    places: Any
    row_table: Any
    net_table: Any
    first: Any
    target: Any
    event: Any
    missing: Any
    room: Any
    control: Any


ROW, NET, SENT, QUEUE = range(4)
"""Rows of the working space."""


def compile_cached(function: F) -> F:
    """Compiled, and kept beside this module's bytecode where that can be written."""
    options: dict[str, Any] = {"error_model": "numpy", "_nrt": False}  # nothing here makes or keeps an array
    try:
        made: F = njit(cache=True, **options)(function)
    except RuntimeError:
        made = njit(**options)(function)
    return made


# -- numbers of fillings and of nodes -----------------------------------------------------------------------------


@compile_cached
def hash_numbers(values: Any, size: int) -> Any:
    """64 bits of some numbers."""
    value = MULTIPLY
    for number in range(size):
        value = (value ^ U(values[number])) * FOLD
        value ^= value >> SIDE
    return value * MULTIPLY


@compile_cached
def look_up(table: Any, rows: Any, count: int, values: Any, size: int) -> Any:
    """The number of a row; a new one is put at the end, where there must be room."""
    value = hash_numbers(values, size)
    mark = value >> HALF << HALF
    mask = U(table.size - 1)
    place = value >> U(7) & mask
    while table[place] != ZERO:
        there = table[place]
        if there >> HALF << HALF == mark:
            number = np.int64(there & LOW) - 1
            same = True
            for column in range(size):
                same &= rows[number, column] == values[column]
            if same:
                return number
        place = (place + ONE) & mask
    table[place] = mark | U(count + 1)
    for column in range(size):
        rows[count, column] = values[column]
    return count


@compile_cached
def rebuild(table: Any, rows: Any, count: int, size: int) -> None:
    """Put every row into an empty table."""
    mask = U(table.size - 1)
    for number in range(count):
        value = hash_numbers(rows[number], size)
        place = value >> U(7) & mask
        while table[place] != ZERO:
            place = (place + ONE) & mask
        table[place] = value >> HALF << HALF | U(number + 1)


@compile_cached
def node_of(t: Any, g: Any) -> Any:
    """The node in ROW with the filling in NET."""
    width = t.shape[WIDTH]
    net = look_up(g.net_table, g.places, g.control[NETS], g.room[NET], t.shape[PLACES])
    if net == g.control[NETS]:
        g.control[NETS] += 1
    g.room[ROW, width] = net
    node = look_up(g.row_table, g.rows, g.control[NODES], g.room[ROW], width + 1)
    if node == g.control[NODES]:
        g.control[NODES] += 1
    return node


@compile_cached
def plant(t: Any, g: Any, states: Any, nodes: Any, begin: int) -> Any:
    """Nodes for the states from `begin` on: local states, then messages.  How many are done: all, or the tables are
    full."""
    width, places = t.shape[WIDTH], t.shape[PLACES]
    for number in range(begin, states.shape[0]):
        if is_full(g, 1):
            return number
        for column in range(width):
            g.room[ROW, column] = states[number, column]
        for place in range(places):
            column = width + place
            g.room[NET, place] = states[number, column] if column < states.shape[1] else 0
        nodes[number] = node_of(t, g)
    return states.shape[0]


@compile_cached
def is_full(g: Any, more: int) -> Any:
    """Whether `more` of everything might not find room."""
    nodes, nets = g.control[NODES] + more, g.control[NETS] + more
    return (
        nodes >= g.rows.shape[0]
        or nets >= g.places.shape[0]
        or g.control[LINKS] + more >= g.target.size
        or 2 * nodes >= g.row_table.size
        or 2 * nets >= g.net_table.size
    )


# -- transitions ----------------------------------------------------------------------------------------------------


@compile_cached
def pair_place(pairs: Any, key: Any) -> Any:
    """Where the pair `event << 22 | local` is, or the empty place where it belongs."""
    mask = U(pairs.size - 1)
    place = (key * MULTIPLY) >> U(20) & mask
    while pairs[place] != ZERO and pairs[place] >> ENTRY_BITS != key:
        place = (place + ONE) & mask
    return place


@compile_cached
def add_pairs(pairs: Any, keys: Any, first: int) -> None:
    """Put the pairs of entries `first`, `first` + 1 ... into their map."""
    for number in range(keys.size):
        pairs[pair_place(pairs, keys[number])] = keys[number] << ENTRY_BITS | U(first + number + 1)


@compile_cached
def cascade(t: Any, g: Any, event: int) -> Any:
    """An event and the calls that follow, carried out on ROW: (1, messages sent), or (why not, 0)."""
    row, sends, queue = g.room[ROW], g.room[SENT], g.room[QUEUE]
    queue[0] = event
    head, tail, sent = 0, 1, 0
    while head < tail:
        one = queue[head]
        head += 1
        component = t.message[one, 0]
        key = U(one) << LOCAL_BITS | U(row[component])
        place = pair_place(t.pairs, key)
        number = np.int64(t.pairs[place] & ENTRY_MASK)
        if number == 0:
            if t.pairs[place] == ZERO:
                t.pairs[place] = key << ENTRY_BITS
                g.missing[g.control[MISSING], 0] = one
                g.missing[g.control[MISSING], 1] = row[component]
                g.control[MISSING] += 1
            return LACKS, 0
        entry = t.entry[number - 1]
        if entry[0] <= 0:
            return WAITS if entry[0] == 0 else DARK, 0
        row[component] = entry[0]
        if sent + entry[2] - entry[1] > SENDS_MAX or tail + entry[4] - entry[3] > CALLS_MAX:
            return OVERFLOWS, 0
        for place in range(entry[1], entry[2]):
            sends[sent] = t.pool[place]
            sent += 1
        for place in range(entry[3], entry[4]):
            queue[tail] = t.pool[place]
            tail += 1
    return 1, sent


@compile_cached
def send(t: Any, net: Any, used: int, room: int, message: int) -> int:
    """Put a message into NET: behind those of its channel, or by number; how many there are then (-1: no room).  In a
    duplicating network a copy of what is there is nothing new."""
    if t.shape[DOUBLES] and t.message[message, 2]:
        for place in range(used):
            if net[place] == message:
                return used
    if used >= room:
        return -1
    place = used
    while place > 0:
        before = net[place - 1]
        if t.shape[ORDERED]:
            if t.message[before, 1] <= t.message[message, 1]:
                break
        elif before <= message:
            break
        net[place] = before
        place -= 1
    net[place] = message
    return used + 1


@compile_cached
def outcome(t: Any, g: Any, node: int, event: int, gone: int, used: int) -> Any:
    """The node that an event leads to; below 0: `DARK`, or why there is none yet; `WAITS` as -2."""
    width = t.shape[WIDTH]
    row, net = g.room[ROW], g.room[NET]
    for column in range(width):
        row[column] = g.rows[node, column]
    ends, sent = cascade(t, g, event)
    if ends <= 0:
        return -2 if ends == WAITS else ends
    filling = g.places[g.rows[node, width]]
    room = t.shape[PLACES] if gone >= 0 else t.shape[ROOM]
    have = 0
    for place in range(t.shape[PLACES]):
        net[place] = 0
    for place in range(used):
        if place != gone:
            net[have] = filling[place]
            have += 1
    for number in range(sent):
        have = send(t, net, have, room, g.room[SENT, number])
        if have < 0:
            return DARK
    return node_of(t, g)


@compile_cached
def speaks(t: Any, g: Any, node: int) -> Any:
    """The subjects that somebody speaks for in a node (bits)."""
    width = t.shape[WIDTH]
    bits = ZERO
    for number in range(width):
        bits |= t.kept[number, g.rows[node, number]]
    for place in range(t.shape[PLACES]):
        bits |= t.carried[g.places[g.rows[node, width], place]]
    return bits


@compile_cached
def is_blocked(t: Any, g: Any, node: int, wait: int) -> bool:
    """Whether some component has a deadline open that comes before."""
    blocked = False
    for number in range(t.shape[WIDTH]):
        blocked |= t.block[wait, t.local[number, g.rows[node, number], 2]] != 0
    return blocked


@compile_cached
def link(g: Any, event: int, target: int) -> None:
    """One more link."""
    at = g.control[LINKS]
    g.event[at] = event
    g.target[at] = target
    g.control[LINKS] += 1


@compile_cached
def expand_inputs(t: Any, g: Any, node: int, used: int) -> int:
    """Links for what may happen by itself; 0, or why it cannot be done."""
    worst, bits = 0, speaks(t, g, node)
    for number in range(t.shape[WIDTH]):
        local = t.local[number, g.rows[node, number]]
        for one in range(local[0], local[1]):
            event, wait = t.input[one, 0], t.input[one, 1]
            if wait and is_blocked(t, g, node, wait):
                continue
            subject = t.subject[one]
            target = DARK
            if subject + ONE != ZERO:
                if subject & bits != ZERO:
                    continue
                target = outcome(t, g, node, event, -1, used)
            if target <= LACKS:
                worst = min(worst, target)
            elif target >= DARK:
                link(g, event, target)
    return worst


@compile_cached
def expand_messages(t: Any, g: Any, node: int, used: int) -> int:
    """Links for the messages that may be handed over; 0, or why it cannot be done."""
    worst = 0
    for place in range(used):
        filling = g.places[g.rows[node, t.shape[WIDTH]]]
        event = filling[place]
        if place:
            before = filling[place - 1]
            if before == event or (t.shape[ORDERED] and t.message[before, 1] == t.message[event, 1]):
                continue
        target = outcome(t, g, node, event, place, used)
        if target <= LACKS:
            worst = min(worst, target)
        elif target >= DARK:
            link(g, event, target)
    return worst


@compile_cached
def weave(t: Any, g: Any) -> int:
    """Expand nodes, in their order, until the work is done or Python is needed.

    From a node that lacks an entry on, a few more are only looked at, so that what they lack is filled in together.
    """
    width = t.shape[WIDTH]
    control = g.control
    node, lacking = control[AT], False
    while node < control[NODES]:
        if node >= control[UNTIL] or control[MISSING] > MOVES_MAX or (lacking and node > control[AT] + AHEAD_MAX):
            break
        if is_full(g, MOVES_MAX):
            return GROW
        used = 0
        while used < t.shape[PLACES] and g.places[g.rows[node, width], used]:
            used += 1
        possible = used
        for number in range(width):
            local = t.local[number, g.rows[node, number]]
            possible += local[1] - local[0]
        if possible > MOVES_MAX:
            return CROWDED
        before = control[LINKS]
        worst = min(expand_inputs(t, g, node, used), expand_messages(t, g, node, used))
        if worst == OVERFLOWS:
            return CROWDED
        lacking |= worst < 0
        node += 1
        if lacking:
            control[LINKS] = before
        else:
            control[AT] = node
            g.first[node] = control[LINKS]
    if lacking:
        return FILL
    return DONE if node == control[NODES] else CHUNK
