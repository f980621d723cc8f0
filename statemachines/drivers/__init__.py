"""Drivers: the machines on a real loop, over real transports, with real stores."""

from statemachines.drivers.credentials import Credentials as Credentials
from statemachines.drivers.groups import declare as declare
from statemachines.drivers.groups import destroy as destroy
from statemachines.drivers.lead import LeaderNode as LeaderNode
from statemachines.drivers.memory import MemoryNetwork as MemoryNetwork
from statemachines.drivers.publish import Publisher as Publisher
from statemachines.drivers.subscribe import Delivered as Delivered
from statemachines.drivers.subscribe import SharedSession as SharedSession
from statemachines.drivers.subscribe import SharedSubscription as SharedSubscription
