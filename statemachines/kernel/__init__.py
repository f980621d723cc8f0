"""The vocabulary and the step: events, effects, rows, machines, nodes.

Pure: nothing here (nor in a protocol) imports a clock, chance, a socket or a logger.
"""

from statemachines.kernel.effect import Ask as Ask
from statemachines.kernel.effect import CancelTimer as CancelTimer
from statemachines.kernel.effect import Effect as Effect
from statemachines.kernel.effect import Effects as Effects
from statemachines.kernel.effect import Request as Request
from statemachines.kernel.effect import Send as Send
from statemachines.kernel.effect import SetTimer as SetTimer
from statemachines.kernel.effect import Stop as Stop
from statemachines.kernel.effect import Tell as Tell
from statemachines.kernel.errors import ConfigurationError as ConfigurationError
from statemachines.kernel.errors import DeclarationError as DeclarationError
from statemachines.kernel.errors import GaplessError as GaplessError
from statemachines.kernel.errors import InvariantViolated as InvariantViolated
from statemachines.kernel.errors import LocalProtocolError as LocalProtocolError
from statemachines.kernel.errors import ProtocolError as ProtocolError
from statemachines.kernel.errors import RemoteProtocolError as RemoteProtocolError
from statemachines.kernel.event import Answer as Answer
from statemachines.kernel.event import Call as Call
from statemachines.kernel.event import Event as Event
from statemachines.kernel.event import Message as Message
from statemachines.kernel.event import TimerFired as TimerFired
from statemachines.kernel.event import TraceColumns as TraceColumns
from statemachines.kernel.event import name_of as name_of
from statemachines.kernel.fsm import Fsm as Fsm
from statemachines.kernel.fsm import Invariant as Invariant
from statemachines.kernel.fsm import Line as Line
from statemachines.kernel.fsm import Step as Step
from statemachines.kernel.host import Host as Host
from statemachines.kernel.host import Inward as Inward
from statemachines.kernel.host import Outgoing as Outgoing
from statemachines.kernel.identity import fresh as fresh
from statemachines.kernel.identity import incarnation as incarnation
from statemachines.kernel.identity import is_fresh as is_fresh
from statemachines.kernel.identity import node_of as node_of
from statemachines.kernel.loop import HostLoop as HostLoop
from statemachines.kernel.loop import Port as Port
from statemachines.kernel.node import Node as Node
from statemachines.kernel.pmap import Fifo as Fifo
from statemachines.kernel.pmap import Map as Map
from statemachines.kernel.pmap import in_order as in_order
from statemachines.kernel.pmap import keys_in_order as keys_in_order
from statemachines.kernel.protocol import Protocol as Protocol
from statemachines.kernel.row import ANY as ANY
from statemachines.kernel.row import STAY as STAY
from statemachines.kernel.row import ChildStep as ChildStep
from statemachines.kernel.row import Delegate as Delegate
from statemachines.kernel.row import Ignore as Ignore
from statemachines.kernel.row import Refuse as Refuse
from statemachines.kernel.row import Row as Row
from statemachines.kernel.service import Service as Service
from statemachines.kernel.status import Status as Status
from statemachines.kernel.timer import Timer as Timer
