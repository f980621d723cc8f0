"""The list of our own commands: where each stands, and its line in `gapless --help`; none is imported."""

from __future__ import annotations

from typing import Final, NamedTuple


class ListedCommand(NamedTuple):
    """`place`: `module:ATTRIBUTE` of a function, or of a typer app; `summary`: the first paragraph of its help."""

    place: str
    summary: str
    group: str
    """What one wants of it: a heading of the help."""
    extra: str = ""
    """Of this distribution, that it needs."""
    takes_others: bool = False
    """It is given options that it does not declare, too."""


COMMANDS: Final = {
    "demo": ListedCommand(
        "statemachines.commands.demo:demo",
        "Watch a protocol do its main job in real processes; then simulate, judge and draw.",
        "Run",
        takes_others=True,
    ),
    "node": ListedCommand(
        "statemachines.commands.node:app",
        "Run a node as a process, in a role of some protocol: ROLE, or PROTOCOL/ROLE.",
        "Run",
    ),
    "password": ListedCommand(
        "statemachines.commands.password:password",
        "Print a line for a password file: the user, and a hash of the password.",
        "Run",
    ),
    "show": ListedCommand(
        "statemachines.commands.show:show",
        "Show a machine: its table, its timers, and the clauses that its rows carry out.",
        "Look",
    ),
    "explore": ListedCommand(
        "statemachines.commands.explore:explore",
        "Write a page on which a reader steps through a system: its parties, what can happen now, click, back.",
        "Look",
        "spec",
    ),
    "export": ListedCommand(
        "statemachines.commands.export:export",
        "Write one run as a file for another tool.",
        "Look",
        "reports",
    ),
    "simulate": ListedCommand(
        "statemachines.commands.simulation:simulate",
        "Run one scenario with one seed; a failure is shrunk and kept as a file that `replay` repeats.",
        "Simulate",
        "sim",
    ),
    "replay": ListedCommand(
        "statemachines.commands.simulation:replay",
        "Repeat a run from its file, byte for byte, or follow a script; exit code 1 if it fails again.",
        "Simulate",
        "sim",
    ),
    "campaign": ListedCommand(
        "statemachines.commands.campaign:campaign",
        "Run many seeds of a scenario over local processes or on Spark, and print what they came to.",
        "Simulate",
        "sim",
    ),
    "env-archive": ListedCommand(
        "statemachines.commands.environment:write_archive",
        "Write an archive of this environment with its interpreter, for executors without the driver's Python.",
        "Simulate",
        "reports",
    ),
    "check": ListedCommand(
        "statemachines.commands.check:check",
        "Explore a protocol exhaustively: every interleaving, loss, copy and fault within bounds that are printed.",
        "Check a design",
        "spec",
    ),
    "adopt": ListedCommand(
        "statemachines.commands.adopt:adopt",
        "Search a plain `transitions` machine: every trigger in every state, until a promise breaks.",
        "Check a design",
    ),
    "mutate": ListedCommand(
        "statemachines.commands.mutate:mutate",
        "Put small mistakes into a protocol's machines, one at a time, and see what exploration notices.",
        "Check a design",
        "spec",
    ),
    "itf": ListedCommand(
        "statemachines.commands.itf:itf",
        "Follow a trace of Quint or Apalache (ITF) in a closed system, or judge it by the table of a machine.",
        "Check a design",
        "spec",
    ),
    "analyze": ListedCommand(
        "statemachines.commands.analysis:analyze",
        "Judge every step of a trace; measure it, and write tables (Parquet), summary.json and a page (index.html).",
        "Judge what ran",
        "reports",
    ),
    "judge": ListedCommand(
        "statemachines.commands.judge:judge",
        "Judge logs of a system that is not ours: at level states, events or deliveries, as the mapping says.",
        "Judge what ran",
        "reports",
    ),
    "damage": ListedCommand(
        "statemachines.commands.damage:damage",
        "Damage a right trace in one place that a seed draws, to see whether the judges notice.",
        "Judge what ran",
        "reports",
    ),
    "conform": ListedCommand(
        "statemachines.commands.conform:conform",
        "Test an implementation in any language: JSON lines on its standard input and output, or over the wire.",
        "Test an implementation",
        "testing",
    ),
    "schema": ListedCommand(
        "statemachines.commands.conform:schema",
        "Print the JSON Schema of the lines that `gapless conform` speaks, for the roles of a protocol.",
        "Test an implementation",
    ),
    "bench": ListedCommand(
        "statemachines.commands.bench:bench",
        "Measure against baselines, in turns; exit code 1 if a target is missed.",
        "Measure",
        "bench",
    ),
}
