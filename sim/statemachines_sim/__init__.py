"""The simulator: machines of any protocol, stepped in simulated time under failures.

A protocol says what it is by a `SimProtocol`; a test puts a `World` together by hand.
"""

from statemachines_sim.cluster import OF_PROCESSES as OF_PROCESSES
from statemachines_sim.cluster import OF_STORES as OF_STORES
from statemachines_sim.cluster import Fixture as Fixture
from statemachines_sim.cluster import Role as Role
from statemachines_sim.cluster import SimCluster as SimCluster
from statemachines_sim.cluster import Tolerance as Tolerance
from statemachines_sim.cluster import Watch as Watch
from statemachines_sim.devices.query_fabric import query_fabric as query_fabric
from statemachines_sim.devices.remote_store import Batches as Batches
from statemachines_sim.devices.remote_store import remote_store as remote_store
from statemachines_sim.devices.shared_memory import shared_memory as shared_memory
from statemachines_sim.fault import Fault as Fault
from statemachines_sim.faults import FaultKind as FaultKind
from statemachines_sim.judge import Judge as Judge
from statemachines_sim.judge import Violation as Violation
from statemachines_sim.machine_process import MachineProcess as MachineProcess
from statemachines_sim.machine_process import machine_role as machine_role
from statemachines_sim.machine_process import make_single_host as make_single_host
from statemachines_sim.network import delay as delay
from statemachines_sim.network import drop as drop
from statemachines_sim.network import duplicate as duplicate
from statemachines_sim.node_life import Device as Device
from statemachines_sim.node_life import NodeLife as NodeLife
from statemachines_sim.protocol import SimProtocol as SimProtocol
from statemachines_sim.scenario import Net as Net
from statemachines_sim.scenario import Phases as Phases
from statemachines_sim.scenario import Scenario as Scenario
from statemachines_sim.scenario import Swarm as Swarm
from statemachines_sim.units import MS as MS
from statemachines_sim.units import S as S
from statemachines_sim.world import RunOutcome as RunOutcome
from statemachines_sim.world import World as World
