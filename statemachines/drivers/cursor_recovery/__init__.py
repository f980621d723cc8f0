"""A queue in shared memory between processes that may die at any step (docs/queue.md)."""

from statemachines.cursor_recovery.reader import ReadOutcome as ReadOutcome
from statemachines.cursor_recovery.writer import Outcome as Outcome
from statemachines.drivers.cursor_recovery.attachment import Instruments as Instruments
from statemachines.drivers.cursor_recovery.circular_queue import CircularQueue as CircularQueue
from statemachines.drivers.cursor_recovery.circular_queue import Got as Got
from statemachines.drivers.cursor_recovery.errors import ClosedQueue as ClosedQueue
from statemachines.drivers.cursor_recovery.errors import DamagedQueue as DamagedQueue
from statemachines.drivers.cursor_recovery.errors import ExistingQueue as ExistingQueue
from statemachines.drivers.cursor_recovery.errors import Fenced as Fenced
from statemachines.drivers.cursor_recovery.errors import ForkedAmidOperation as ForkedAmidOperation
from statemachines.drivers.cursor_recovery.errors import GetTimeout as GetTimeout
from statemachines.drivers.cursor_recovery.errors import MessageTooLarge as MessageTooLarge
from statemachines.drivers.cursor_recovery.errors import MissingQueue as MissingQueue
from statemachines.drivers.cursor_recovery.errors import NoRoomForQueue as NoRoomForQueue
from statemachines.drivers.cursor_recovery.errors import PutTimeout as PutTimeout
from statemachines.drivers.cursor_recovery.errors import QueueError as QueueError
from statemachines.drivers.cursor_recovery.errors import SegmentError as SegmentError
from statemachines.drivers.cursor_recovery.errors import TooManyProcesses as TooManyProcesses
from statemachines.drivers.cursor_recovery.stats import Stats as Stats
