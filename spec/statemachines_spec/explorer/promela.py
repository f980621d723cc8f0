"""Promela: a system's entries as a model for SPIN, a second judge of the walkers: it must count the same states.

The tables are C arrays; a state is the same tuple of numbers as in `moves`.  The model is one process that takes, in
one step, any of the successors of its state; SPIN searches, stores and counts.
"""

from __future__ import annotations

import re
import resource
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from statemachines.kernel import GaplessError
from statemachines_spec.explorer.purity import Entries

SUCCESSORS_MAX = 256

_CODE = r"""
#include <string.h>
typedef struct { int local, sends, sends_end, calls, calls_end; } entry_t;
typedef struct { int first, last, pending; } local_t;
typedef struct { int event, budget, wait; } input_t;
typedef struct { int dest, lossy, channel, entries; } message_t;
%(tables)s
static int found[MOST][FIELDS], count;
static int source[FIELDS], known;

static void keep(int *f) {
  if (count == MOST) { printf("too many successors\n"); exit(1); }
  memcpy(found[count++], f, sizeof(int) * FIELDS);
}
static void sorted_in(int *f, int used, int m) {
  int i = NET + used;
  while (i > NET && (ORDERED ? message[f[i - 1]].channel > message[m].channel : f[i - 1] > m)) { f[i] = f[i - 1]; i--; }
  f[i] = m;
}
static void spread(int *f, int used, int *sends, int n) {
  int fresh = 0, i, j, kept, room = PLACES - used, t[FIELDS];
  if (DOUBLES) {
    for (i = 0; i < n; i++) {
      int dup = 0;
      for (j = 0; j < fresh; j++) dup |= sends[j] == sends[i];
      if (message[sends[i]].lossy) for (j = 0; j < used; j++) dup |= f[NET + j] == sends[i];
      if (!dup) sends[fresh++] = sends[i];
    }
    n = fresh;
  }
  if (n <= room) { for (i = 0; i < n; i++) sorted_in(f, used + i, sends[i]); keep(f); return; }
  for (kept = 0; kept < 1 << n; kept++) {
    int have = 0, allowed = 1;
    for (i = 0; i < n; i++)
      if (kept >> i & 1) have++; else if (!LOSES || !message[sends[i]].lossy) allowed = 0;
    if (!allowed || have != room) continue;
    memcpy(t, f, sizeof t);
    for (i = 0, have = used; i < n; i++) if (kept >> i & 1) sorted_in(t, have++, sends[i]);
    keep(t);
  }
}
static void handle(int *f, int event, int gone, int used, int budget) {
  int t[FIELDS], queue[256], sends[256], head = 0, tail = 0, n = 0, i;
  memcpy(t, f, sizeof t);
  queue[tail++] = event;
  while (head < tail) {
    int one = queue[head++], c = message[one].dest, e = by_local[message[one].entries + t[c]];
    if (e < 0) { printf("no entry for event %%d in local state %%d\n", one, t[c]); exit(1); }
    if (entry[e].local <= 0) return;
    t[c] = entry[e].local;
    for (i = entry[e].sends; i < entry[e].sends_end; i++) sends[n++] = pool[i];
    for (i = entry[e].calls; i < entry[e].calls_end; i++) queue[tail++] = pool[i];
  }
  if (budget >= 0) t[WIDTH + budget]--;
  if (gone >= 0) {
    for (i = gone; i < NET + used - 1; i++) t[i] = t[i + 1];
    t[NET + used - 1] = 0;
    used--;
  }
  spread(t, used, sends, n);
}
static int waits(int *f, int wait) {
  int c;
  for (c = 0; c < WIDTH; c++) if (block[wait][local[start[c] + f[c]].pending]) return 1;
  return 0;
}
static int successors(int *f) {
  int c, i, p, used = 0, t[FIELDS];
  if (known && !memcmp(source, f, sizeof source)) return count;
  memcpy(source, f, sizeof source);
  known = 1;
  count = 0;
  while (used < PLACES && f[NET + used]) used++;
  for (c = 0; c < WIDTH; c++)
    for (i = local[start[c] + f[c]].first; i < local[start[c] + f[c]].last; i++) {
      if (input[i].budget >= 0 && !f[WIDTH + input[i].budget]) continue;
      if (input[i].wait && waits(f, input[i].wait)) continue;
      handle(f, input[i].event, -1, used, input[i].budget);
    }
  for (p = NET; p < NET + used; p++) {
    int m = f[p];
    if (p > NET && (f[p - 1] == m || (ORDERED && message[f[p - 1]].channel == message[m].channel))) continue;
    handle(f, m, p, used, -1);
    if (!message[m].lossy) continue;
    if (DOUBLES) handle(f, m, -1, used, -1);
    if (LOSES) {
      memcpy(t, f, sizeof t);
      for (i = p; i < NET + used - 1; i++) t[i] = t[i + 1];
      t[NET + used - 1] = 0;
      keep(t);
    }
  }
  return count;
}
"""


class SpinCounts(NamedTuple):
    """What SPIN says: states stored, transitions; and the processor time of its search in seconds."""

    states: int
    transitions: int
    seconds: float


def model(entries: Entries) -> tuple[str, str]:
    """The Promela text, and the C text `model.h`.  `entries` must be those of an exploration that was completed."""
    system = entries.system
    first = (*entries.start, *(one.limit for one in system.spendable), *(0,) * system.network.in_flight)
    code = _CODE % {"tables": _tables(entries, len(first))}
    begin = " ".join(f"now.f[{place}] = {value};" for place, value in enumerate(first))
    options = "\n".join(
        f"  :: d_step {{ c_expr {{ now.begun && successors(now.f) > {n} }} -> "
        f"c_code {{ memcpy(now.f, found[{n}], sizeof(int) * FIELDS); }} }}"
        for n in range(SUCCESSORS_MAX)
    )
    lines = "\n".join(
        (
            'c_decl { \\#include "model.h" }',
            f'c_state "int f[{len(first)}]" "Global"',
            'c_state "int begun" "Global"',
            "active proctype system() {",
            "  do",
            f"  :: d_step {{ c_expr {{ !now.begun }} -> c_code {{ {begin} now.begun = 1; }} }}",
            options,
            "  od",
            "}",
            "",
        )
    )
    return lines, code


def judge(entries: Entries, folder: Path, optimise: str = "-O0") -> SpinCounts:
    """Let SPIN count, in `folder`; raises `GaplessError` where spin or gcc is missing or fails.

    `optimise`: how gcc makes the search; a small one is done long before gcc has made it fast.
    """
    text, code = model(entries)
    (folder / "model.pml").write_text(text)
    (folder / "model.h").write_text(code)
    _run(folder, "spin", "-a", "model.pml")
    _run(folder, "gcc", optimise, "-w", "-DBFS", "-DSAFETY", "-DNOREDUCE", "-DNOCOLLAPSE", "-o", "pan", "pan.c")
    before = _processor_time()
    said = _run(folder, "./pan", "-w22", "-E")
    seconds = _processor_time() - before
    states = re.search(r"(\d+) states, stored", said)
    transitions = re.search(r"(\d+) transitions", said)
    if states is None or transitions is None or "errors: 0" not in said:
        raise GaplessError(f"SPIN did not complete its search:\n{said[-2000:]}")
    # The step that sets the first state up comes on top, and SPIN counts the state before it as a transition, too.
    return SpinCounts(int(states[1]) - 1, int(transitions[1]) - 2, seconds)


def _processor_time() -> float:
    """Seconds of the programs that were run; what SPIN prints is the time that passed, on a busy machine far more."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(folder: Path, *command: str) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise GaplessError(f"{command[0]} is not installed (Debian: apt-get install spin gcc)") from None
    if done.returncode:
        raise GaplessError(f"{' '.join(command)} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def _tables(entries: Entries, fields: int) -> str:
    system = entries.system
    network = system.network
    sizes = {
        "FIELDS": fields,
        "WIDTH": len(entries.components),
        "NET": len(entries.components) + len(system.spendable),
        "PLACES": network.in_flight,
        "LOSES": int(network.lossy),
        "DOUBLES": int(network.duplicating),
        "ORDERED": int(network.ordered),
        "MOST": SUCCESSORS_MAX,
    }
    pool: list[int] = []
    rows = [(entry.local, *_pooled(pool, entry.sends), *_pooled(pool, entry.calls)) for entry in entries.entries]
    starts, locals_, inputs = _locals(entries)
    messages, by_local = _messages(entries)
    return "\n".join(
        (
            *(f"#define {name} {value}" for name, value in sizes.items()),
            _array("entry_t", "entry", rows),
            _array("int", "pool", pool or [0]),
            _array("int", "start", starts),
            _array("local_t", "local", locals_),
            _array("input_t", "input", inputs or [(0, 0, 0)]),
            _array("message_t", "message", messages),
            _array("int", "by_local", by_local),
            f"static unsigned char block[][{len(entries.block[0])}] = {{{_rows(map(_ints, entries.block))}}};",
        )
    )


def _locals(entries: Entries) -> tuple[list[int], list[tuple[int, ...]], list[tuple[int, ...]]]:
    starts: list[int] = []
    locals_: list[tuple[int, ...]] = []
    inputs: list[tuple[int, ...]] = []
    for component in entries.components:
        starts.append(len(locals_))
        for some, pending in zip(component.inputs, component.pending, strict=True):
            locals_.append((len(inputs), len(inputs) + len(some), pending))
            inputs += [(one.event, one.budget, one.wait) for one in some]
    return starts, locals_, inputs


def _messages(entries: Entries) -> tuple[list[tuple[int, ...]], list[int]]:
    messages: list[tuple[int, ...]] = []
    by_local: list[int] = []
    for event in range(len(entries.envelopes)):
        dest = entries.dest[event]
        messages.append((dest, int(entries.lossy[event]), entries.channel[event], len(by_local)))
        many = len(entries.components[dest].locals)
        by_local += [entries.entry_of.get((event, local), -1) for local in range(many)]
    return messages, by_local


def _pooled(pool: list[int], some: tuple[int, ...]) -> tuple[int, int]:
    pool += some
    return len(pool) - len(some), len(pool)


def _array(kind: str, name: str, rows: Iterable[int | tuple[int, ...]]) -> str:
    return f"static {kind} {name}[] = {{{_rows(rows)}}};"


def _rows(rows: Iterable[int | tuple[int, ...]]) -> str:
    return ", ".join(str(row) if isinstance(row, int) else f"{{{', '.join(map(str, row))}}}" for row in rows)


def _ints(row: list[bool]) -> tuple[int, ...]:
    return tuple(int(value) for value in row)
