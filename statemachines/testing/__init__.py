"""What tests of a machine, a whole system, an implementation, or real nodes are made of (extra `testing`).

With Hypothesis: `strategies`, `machine` (any machine under any events), `system` (a whole group).  Without a test
framework: `ProcessHarness` starts `gapless node` processes, `FaultProxy` stands between two nodes, `postgres` is a
private server.
"""

from contextlib import suppress

with suppress(ModuleNotFoundError):
    # Before anything here: Hypothesis loads `strategies` by its entry point, which must not be half made by then.
    import hypothesis  # noqa: F401

from statemachines.testing.fault_proxy import FaultProxy as FaultProxy
from statemachines.testing.process_harness import ProcessHarness as ProcessHarness
