"""Sequence windows for applications: numbers on any transport, losses counted (docs/sequence_windows.md).

A name is imported when it is used first: who does not recover needs nothing of missed samples, and who lists the roles
of `gapless node` needs no machine.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from statemachines.drivers.protocol import DriverProtocol

if TYPE_CHECKING:
    from statemachines.drivers.sequence_windows.datagram import DATAGRAM_MAX as DATAGRAM_MAX
    from statemachines.drivers.sequence_windows.datagram import MalformedDatagram as MalformedDatagram
    from statemachines.drivers.sequence_windows.datagram import MessageTooLarge as MessageTooLarge
    from statemachines.drivers.sequence_windows.held_streams import RecoveryCounts as RecoveryCounts
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
    from statemachines.missed_samples.recovery import Recovery as Recovery
    from statemachines.sequence_windows.late_join import Join as Join
    from statemachines.sequence_windows.message import Verdict as Verdict
    from statemachines.sequence_windows.publisher_table import FramesUsedUp as FramesUsedUp
    from statemachines.sequence_windows.rotation import Window as Window
    from statemachines.sequence_windows.windows import Windows as Windows
    from statemachines.sequence_windows.windows import windows_of as windows_of

DRIVERS: Final = DriverProtocol(
    roles={
        "multicast-publisher": "statemachines.drivers.sequence_windows.nodes:publisher",
        "multicast-subscriber": "statemachines.drivers.sequence_windows.nodes:subscriber",
    }
)

_PLACES: Final = {
    "DATAGRAM_MAX": "statemachines.drivers.sequence_windows.datagram",
    "Delivery": "statemachines.drivers.sequence_windows.subscriber",
    "FramesUsedUp": "statemachines.sequence_windows.publisher_table",
    "Group": "statemachines.drivers.sequence_windows.multicast",
    "Join": "statemachines.sequence_windows.late_join",
    "Loss": "statemachines.drivers.sequence_windows.subscriber",
    "LossReport": "statemachines.drivers.sequence_windows.loss_report",
    "MalformedDatagram": "statemachines.drivers.sequence_windows.datagram",
    "MessageTooLarge": "statemachines.drivers.sequence_windows.datagram",
    "MulticastForwarder": "statemachines.drivers.sequence_windows.multicast",
    "MulticastReceiver": "statemachines.drivers.sequence_windows.multicast",
    "MulticastSender": "statemachines.drivers.sequence_windows.multicast",
    "Recovery": "statemachines.missed_samples.recovery",
    "RecoveryCounts": "statemachines.drivers.sequence_windows.held_streams",
    "RecoveryQuery": "statemachines.drivers.sequence_windows.recovery_query",
    "SequencedPublisher": "statemachines.drivers.sequence_windows.publisher",
    "SequencedSubscriber": "statemachines.drivers.sequence_windows.subscriber",
    "Verdict": "statemachines.sequence_windows.message",
    "Window": "statemachines.sequence_windows.rotation",
    "Windows": "statemachines.sequence_windows.windows",
    "read_windows": "statemachines.drivers.sequence_windows.yaml_file",
    "windows_of": "statemachines.sequence_windows.windows",
}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_PLACES[name]), name)
