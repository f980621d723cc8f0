"""What tests of real nodes are made of: processes that are killed, a network that fails, servers, hostile input.

`ProcessHarness` starts `gapless node` processes, `FaultProxy` stands between two nodes, `postgres` is a private server.
They need no test framework.
"""

from statemachines.testing.fault_proxy import FaultProxy as FaultProxy
from statemachines.testing.process_harness import ProcessHarness as ProcessHarness
