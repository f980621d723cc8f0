"""The shared-memory circular queue and the recovery of its stale cursors (source: cursor recovery).

Here is how a writer publishes and recovers, one memory access a step; readers are still to come.
"""

from statemachines.kernel.protocol import Protocol

PROTOCOL = Protocol(
    name="cursor_recovery",
    prefix="CR",
    about="a queue in shared memory, whose cursors are recovered when a process dies at any step",
    machines={"writer": "statemachines.cursor_recovery.writer:WRITER"},
    page="statemachines.cursor_recovery:clauses.md",
    areas={"testing": "statemachines.testing.cursor_recovery:TESTING"},
)
