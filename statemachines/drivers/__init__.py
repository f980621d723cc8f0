"""Drivers: the machines on a real loop, over real transports, with real stores; what every protocol shares.

What applications of one protocol use stands in its own package below this one.
"""

from statemachines.drivers.credentials import Credentials as Credentials
from statemachines.drivers.memory import MemoryNetwork as MemoryNetwork
