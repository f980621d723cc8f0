"""The shared-memory circular queue and the recovery of its stale cursors (source: cursor recovery).

A writer publishes and a reader takes, one memory access a step; both free what the dead have left.  Cursor and block
are what an observer sees of it.
"""

from statemachines.kernel.protocol import Protocol

PROTOCOL = Protocol(
    name="cursor_recovery",
    prefix="CR",
    about="a queue in shared memory, whose cursors are recovered when a process dies at any step",
    machines={
        "writer": "statemachines.cursor_recovery.writer:WRITER",
        "reader": "statemachines.cursor_recovery.reader:READER",
        "cursor": "statemachines.cursor_recovery.cursor:CURSOR",
        "memory_block": "statemachines.cursor_recovery.observers:BLOCK",
    },
    page="statemachines.cursor_recovery:clauses.md",
    areas={
        "sim": "statemachines_sim.cursor_recovery:SIM",
        "reports": "statemachines_reports.cursor_recovery:REPORTS",
        "spec": "statemachines_spec.cursor_recovery:SPEC",
        "testing": "statemachines.testing.cursor_recovery:TESTING",
        "demo": "statemachines.demo.cursor_recovery:DEMO",
    },
)
