"""Sequence windows for applications: numbers on any transport, losses counted (docs/sequence_windows.md)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from statemachines.drivers.protocol import DriverProtocol
from statemachines.drivers.sequence_windows.datagram import DATAGRAM_MAX as DATAGRAM_MAX
from statemachines.drivers.sequence_windows.datagram import MalformedDatagram as MalformedDatagram
from statemachines.drivers.sequence_windows.datagram import MessageTooLarge as MessageTooLarge
from statemachines.drivers.sequence_windows.loss_report import LossReport as LossReport
from statemachines.drivers.sequence_windows.multicast import Group as Group
from statemachines.drivers.sequence_windows.multicast import MulticastForwarder as MulticastForwarder
from statemachines.drivers.sequence_windows.multicast import MulticastReceiver as MulticastReceiver
from statemachines.drivers.sequence_windows.multicast import MulticastSender as MulticastSender
from statemachines.drivers.sequence_windows.publisher import SequencedPublisher as SequencedPublisher
from statemachines.drivers.sequence_windows.recovery_query import RecoveryQuery as RecoveryQuery
from statemachines.drivers.sequence_windows.subscriber import Delivery as Delivery
from statemachines.drivers.sequence_windows.subscriber import Loss as Loss
from statemachines.drivers.sequence_windows.subscriber import SequencedSubscriber as SequencedSubscriber
from statemachines.drivers.sequence_windows.yaml_file import read_windows as read_windows
from statemachines.sequence_windows.late_join import Join as Join
from statemachines.sequence_windows.message import Verdict as Verdict
from statemachines.sequence_windows.publisher_table import FramesUsedUp as FramesUsedUp
from statemachines.sequence_windows.rotation import Window as Window
from statemachines.sequence_windows.windows import Windows as Windows
from statemachines.sequence_windows.windows import windows_of as windows_of

if TYPE_CHECKING:
    from statemachines.drivers.sequence_windows.held_streams import RecoveryCounts as RecoveryCounts
    from statemachines.missed_samples.recovery import Recovery as Recovery

_LATER = {
    "Recovery": "statemachines.missed_samples.recovery",
    "RecoveryCounts": "statemachines.drivers.sequence_windows.held_streams",
}


def __getattr__(name: str) -> Any:
    """What rests on missed samples is imported when it is asked for: whoever does not recover needs none of it."""
    if name in _LATER:
        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


DRIVERS = DriverProtocol(
    roles={
        "multicast-publisher": "statemachines.drivers.sequence_windows.nodes:publisher",
        "multicast-subscriber": "statemachines.drivers.sequence_windows.nodes:subscriber",
    }
)
