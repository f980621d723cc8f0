"""What tests of real nodes are made of: processes that are killed, a network that fails, frames that are none.

`ProcessHarness` starts `gapless node` processes, `FaultProxy` stands between two nodes, `frames` makes hostile input.
They need no test framework.
"""

from statemachines.testing.fault_proxy import FaultProxy as FaultProxy
from statemachines.testing.process_harness import ProcessHarness as ProcessHarness
