"""Drivers: the machines on a real loop, over real transports, with real stores; what every protocol shares.

What applications of one protocol use stands in its own package below this one.  A name is imported when it is used
first: the help of a node needs no network.
"""

from typing import TYPE_CHECKING

from statemachines.drivers.lazy_import import import_lazily

if TYPE_CHECKING:
    from statemachines.drivers.credentials import Credentials as Credentials
    from statemachines.drivers.memory import MemoryNetwork as MemoryNetwork

__getattr__ = import_lazily(
    __name__, {f"{__name__}.credentials": ("Credentials",), f"{__name__}.memory": ("MemoryNetwork",)}
)
