"""Sequence windows for applications: numbers on any transport, losses counted (docs/sequence_windows.md).

    from statemachines.drivers.sequence_windows import SequencedPublisher, SequencedSubscriber

A name is imported when it is used first.
"""

from typing import TYPE_CHECKING, Final

from statemachines.drivers.lazy_import import import_lazily
from statemachines.drivers.protocol import DriverProtocol

if TYPE_CHECKING:
    from statemachines.drivers.sequence_windows.datagram import DATAGRAM_MAX as DATAGRAM_MAX
    from statemachines.drivers.sequence_windows.datagram import MalformedDatagram as MalformedDatagram
    from statemachines.drivers.sequence_windows.datagram import MessageTooLarge as MessageTooLarge
    from statemachines.drivers.sequence_windows.datagram import OtherLayout as OtherLayout
    from statemachines.drivers.sequence_windows.loss_report import LossReport as LossReport
    from statemachines.drivers.sequence_windows.multicast import Group as Group
    from statemachines.drivers.sequence_windows.multicast import MulticastForwarder as MulticastForwarder
    from statemachines.drivers.sequence_windows.multicast import MulticastReceiver as MulticastReceiver
    from statemachines.drivers.sequence_windows.multicast import MulticastSender as MulticastSender
    from statemachines.drivers.sequence_windows.publisher import SequencedPublisher as SequencedPublisher
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

_COMMANDS: Final = "statemachines.commands.sequence_windows.nodes"

DRIVERS: Final = DriverProtocol(
    roles={
        "multicast-publisher": f"{_COMMANDS}:publisher",
        "multicast-subscriber": f"{_COMMANDS}:subscriber",
    }
)

_MACHINES: Final = "statemachines.sequence_windows"

__getattr__ = import_lazily(
    __name__,
    {
        f"{__name__}.datagram": ("DATAGRAM_MAX", "MalformedDatagram", "MessageTooLarge", "OtherLayout"),
        f"{__name__}.loss_report": ("LossReport",),
        f"{__name__}.multicast": ("Group", "MulticastForwarder", "MulticastReceiver", "MulticastSender"),
        f"{__name__}.publisher": ("SequencedPublisher",),
        f"{__name__}.subscriber": ("Delivery", "Loss", "SequencedSubscriber"),
        f"{__name__}.yaml_file": ("read_windows",),
        f"{_MACHINES}.late_join": ("Join",),
        f"{_MACHINES}.message": ("Verdict",),
        f"{_MACHINES}.publisher_table": ("FramesUsedUp",),
        f"{_MACHINES}.rotation": ("Window",),
        f"{_MACHINES}.windows": ("Windows", "windows_of"),
    },
)
