"""Missed samples over zenoh, for applications (docs/zenoh.md); needs the extra `zenoh`.

    from statemachines.drivers.missed_samples import declare_reliable_subscriber

A name is imported when it is used first: who lists the roles of `gapless node` needs neither machine nor zenoh.
"""

from typing import TYPE_CHECKING, Any, Final

from statemachines.drivers.lazy_import import import_lazily
from statemachines.drivers.protocol import DriverProtocol

if TYPE_CHECKING:
    from statemachines.drivers.missed_samples.cache import ReliabilityCache as ReliabilityCache
    from statemachines.drivers.missed_samples.cache import declare_reliability_cache as declare_reliability_cache
    from statemachines.drivers.missed_samples.loop_thread import LoopThread as LoopThread
    from statemachines.drivers.missed_samples.publisher import ReliablePublisher as ReliablePublisher
    from statemachines.drivers.missed_samples.publisher import declare_reliable_publisher as declare_reliable_publisher
    from statemachines.drivers.missed_samples.received_sample import ReceivedSample as ReceivedSample
    from statemachines.drivers.missed_samples.session import session_config as session_config
    from statemachines.drivers.missed_samples.session import zenoh_session as zenoh_session
    from statemachines.drivers.missed_samples.subscriber import ReliableSubscriber as ReliableSubscriber
    from statemachines.drivers.missed_samples.subscriber import (
        declare_reliable_subscriber as declare_reliable_subscriber,
    )
    from statemachines.missed_samples.message import Missed as Missed
    from statemachines.missed_samples.publisher import Beats as Beats
    from statemachines.missed_samples.recovery import Recovery as Recovery
    from statemachines.missed_samples.subscriber_record import History as History

_NODES: Final = f"{__name__}.nodes"

DRIVERS: Final = DriverProtocol(
    roles={
        "zenoh-router": f"{_NODES}:router",
        "cache": f"{_NODES}:cache",
        "zenoh-publisher": f"{_NODES}:publisher",
        "zenoh-subscriber": f"{_NODES}:subscriber",
    }
)

_MACHINES: Final = "statemachines.missed_samples"

_imported = import_lazily(
    __name__,
    {
        f"{__name__}.cache": ("ReliabilityCache", "declare_reliability_cache"),
        f"{__name__}.loop_thread": ("LoopThread",),
        f"{__name__}.publisher": ("ReliablePublisher", "declare_reliable_publisher"),
        f"{__name__}.received_sample": ("ReceivedSample",),
        f"{__name__}.session": ("session_config", "zenoh_session"),
        f"{__name__}.subscriber": ("ReliableSubscriber", "declare_reliable_subscriber"),
        f"{_MACHINES}.message": ("Missed",),
        f"{_MACHINES}.publisher": ("Beats",),
        f"{_MACHINES}.recovery": ("Recovery",),
        f"{_MACHINES}.subscriber_record": ("History",),
    },
)


def __getattr__(name: str) -> Any:
    try:
        return _imported(name)
    except ModuleNotFoundError as error:
        if error.name != "zenoh":
            raise
        raise ModuleNotFoundError("needs eclipse-zenoh: pip install 'gapless[zenoh]'", name="zenoh") from None
