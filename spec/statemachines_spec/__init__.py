"""Specification and checking: what reads the declarations to judge them.

What a closed system is declared with, in one place:

    from statemachines_spec import Always, Crash, FsmActor, Network, Pause, ServiceActor, Sometimes, System, at_most

`explorer/` is that and the search, `liveness/` judges obligations, `script/` makes runs of real hosts of what was
found; `CheckProtocol` is what a protocol gives to all of them.
"""

from statemachines_spec.bug import Bug as Bug
from statemachines_spec.directed_system import DirectedSystem as DirectedSystem
from statemachines_spec.explorer.actor import Actor as Actor
from statemachines_spec.explorer.actor import Crash as Crash
from statemachines_spec.explorer.actor import Envelope as Envelope
from statemachines_spec.explorer.actor import LoseDisk as LoseDisk
from statemachines_spec.explorer.actor import Observer as Observer
from statemachines_spec.explorer.actor import Pause as Pause
from statemachines_spec.explorer.actor import Reaction as Reaction
from statemachines_spec.explorer.actor import Stamp as Stamp
from statemachines_spec.explorer.actor import Timing as Timing
from statemachines_spec.explorer.actor import Watch as Watch
from statemachines_spec.explorer.clock import Clock as Clock
from statemachines_spec.explorer.explore import Result as Result
from statemachines_spec.explorer.explore import explore as explore
from statemachines_spec.explorer.fsm_actor import FsmActor as FsmActor
from statemachines_spec.explorer.fsm_actor import FsmLocal as FsmLocal
from statemachines_spec.explorer.network import Network as Network
from statemachines_spec.explorer.order import Order as Order
from statemachines_spec.explorer.order import deadline_order as deadline_order
from statemachines_spec.explorer.post import MessageSet as MessageSet
from statemachines_spec.explorer.post import Post as Post
from statemachines_spec.explorer.property import Always as Always
from statemachines_spec.explorer.property import Eventually as Eventually
from statemachines_spec.explorer.property import Sometimes as Sometimes
from statemachines_spec.explorer.property import Stepwise as Stepwise
from statemachines_spec.explorer.property import View as View
from statemachines_spec.explorer.replay import replay as replay
from statemachines_spec.explorer.service_actor import ServiceActor as ServiceActor
from statemachines_spec.explorer.symmetry import Symmetry as Symmetry
from statemachines_spec.explorer.system import Budget as Budget
from statemachines_spec.explorer.system import Due as Due
from statemachines_spec.explorer.system import System as System
from statemachines_spec.explorer.system import at_most as at_most
from statemachines_spec.explorer.tick import Drift as Drift
from statemachines_spec.explorer.tick import TickClock as TickClock
from statemachines_spec.explorer.tick import drift_of as drift_of
from statemachines_spec.protocol import CheckProtocol as CheckProtocol
