"""Components: strongly connected parts of a graph in arrays, and which of them a fair run can stay in for ever.

The graph: the links of node n are `first[n]` to `first[n + 1]`, each with its `event` and `target` (-1: it leads
nobody knows where).  Every function stands for itself: compiled it takes numpy arrays, `plainly` it takes lists.

Weakly fair: an event that is possible in every node of a part is taken in it.  If one is not, and a link of it leaves
the part, no fair run stays.  If all of its links lead nobody knows where, nothing can be said.  A node with nothing
left to do is a part in which a run stays.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class ComponentSpace(NamedTuple):
    """What the search works in, by node: `number` (0: not seen; else in the order they were met, as long as the part is
    not known; then minus the number of the part), `low`, `stack`, `way` and the next link `turn` of each node on it,
    `order` (nodes by part); by event: the node it was met in last (-1: none), in how many it is possible, whether it is
    taken, whether it leads anywhere; `met`: events of the part."""

    number: Any
    low: Any
    stack: Any
    way: Any
    turn: Any
    order: Any
    last: Any
    times: Any
    taken: Any
    leads: Any
    met: Any


def compile_cached(function: F) -> F:
    """Compiled, and kept beside this module's bytecode where that can be written; without numba as it is."""
    if find_spec("numba") is None:
        return function
    from numba import njit

    options: dict[str, Any] = {"error_model": "numpy", "_nrt": False}  # nothing here makes or keeps an array
    try:
        made: F = njit(cache=True, **options)(function)
    except RuntimeError:
        made = njit(**options)(function)
    return made


def plainly(function: F) -> F:
    """The same function, not compiled: for lists."""
    as_written: F = getattr(function, "py_func", function)
    return as_written


@compile_cached
def split(first: Any, target: Any, is_open: Any, roots: int, s: Any) -> int:
    """Every strongly connected part of what the first `roots` nodes lead to, over open nodes only (Tarjan, without
    recursion), into `number` and `order`, those that others lead to first.  How many nodes that are."""
    met, made, ordered = 0, 0, 0
    for root in range(roots):
        if is_open[root] == 0 or s.number[root] != 0:
            continue
        met += 1
        s.number[root] = s.low[root] = met
        s.stack[0] = s.way[0] = root
        s.turn[0] = 0
        depth, height = 1, 1
        while depth > 0:
            node = s.way[depth - 1]
            at = first[node] + s.turn[depth - 1]
            if at < first[node + 1]:
                s.turn[depth - 1] += 1
                other = target[at]
                if other < 0 or is_open[other] == 0:
                    continue
                if s.number[other] == 0:
                    met += 1
                    s.number[other] = s.low[other] = met
                    s.stack[height] = s.way[depth] = other
                    s.turn[depth] = 0
                    height += 1
                    depth += 1
                elif s.number[other] > 0 and s.number[other] < s.low[node]:
                    s.low[node] = s.number[other]
                continue
            depth -= 1
            if depth > 0 and s.low[node] < s.low[s.way[depth - 1]]:
                s.low[s.way[depth - 1]] = s.low[node]
            if s.low[node] == s.number[node]:
                made += 1
                while True:
                    height -= 1
                    s.number[s.stack[height]] = -made
                    s.order[ordered] = s.stack[height]
                    ordered += 1
                    if s.stack[height] == node:
                        break
    return ordered


@compile_cached
def judge(first: Any, target: Any, event: Any, ordered: int, worst: Any, tally: Any, s: Any) -> None:
    """Which parts a fair run can stay in.  `worst[node]`: the number of its part, if a fair run can stay there, else 0;
    `tally`: parts, those fair, those of which nothing can be said."""
    end = 0
    while end < ordered:
        begin, part, met = end, s.number[s.order[end]], 0
        while end < ordered and s.number[s.order[end]] == part:
            node = s.order[end]
            for at in range(first[node], first[node + 1]):
                one = event[at]
                if s.last[one] < 0:
                    s.met[met] = one
                    met += 1
                if s.last[one] != node:
                    s.last[one] = node
                    s.times[one] += 1
                if target[at] >= 0:
                    s.leads[one] = 1
                    if s.number[target[at]] == part:
                        s.taken[one] = 1
            end += 1
        leaves, unsaid = 0, 0
        for place in range(met):
            one = s.met[place]
            if s.times[one] == end - begin and s.taken[one] == 0:
                leaves += s.leads[one]
                unsaid += 1 - s.leads[one]
            s.last[one] = -1
            s.times[one] = s.taken[one] = s.leads[one] = 0
        tally[0] += 1
        if leaves == 0 and unsaid == 0:
            tally[1] += 1
            for place in range(begin, end):
                worst[s.order[place]] = -part
        elif leaves == 0:
            tally[2] += 1


@compile_cached
def nearest(first: Any, target: Any, depth: Any, worst: Any, distance: Any, queue: Any) -> int:
    """The least number of steps from the initial state to a node of a fair part (-1: there is none).

    `depth[node]`: the steps to it with faults, for the first nodes; it does not fall.  `distance` becomes the least
    number of steps to each node, as far as that was reckoned (else -1).
    """
    head, tail, planted, now = 0, 0, 0, 0
    while planted < len(depth) or head < tail:
        if head == tail:
            now = max(now, depth[planted])
        while planted < len(depth) and depth[planted] <= now:
            if distance[planted] < 0:
                distance[planted] = now
                queue[tail] = planted
                tail += 1
            planted += 1
        level = tail
        for place in range(head, level):
            if worst[queue[place]] != 0:
                return now
        now += 1
        while head < level:
            node = queue[head]
            head += 1
            for at in range(first[node], first[node + 1]):
                other = target[at]
                if other >= 0 and distance[other] < 0:
                    distance[other] = now
                    queue[tail] = other
                    tail += 1
    return -1


@compile_cached
def sources(first: Any, target: Any, distance: Any, wanted: int, goal: int, found: Any) -> int:
    """The nodes at the distance `wanted` that lead to `goal`, into `found`; how many."""
    count = 0
    for node in range(len(distance)):
        if distance[node] == wanted:
            for at in range(first[node], first[node + 1]):
                if target[at] == goal:
                    found[count] = node
                    count += 1
                    break
    return count
