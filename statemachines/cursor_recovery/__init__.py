"""The shared-memory circular queue and the recovery of its stale cursors (source: cursor recovery).

Here is how a writer publishes and recovers, one memory access a step; readers are still to come.
"""

from statemachines.cursor_recovery.writer import WRITER

MACHINES = (WRITER,)
"""The machines of the protocol."""
