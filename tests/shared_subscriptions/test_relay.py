"""Who may relay to a member (SS-277), and how many ways around a host remembers (SS-278); the rest of the relay stands
in `steps/relay.txt`."""

from __future__ import annotations

import pytest

from statemachines.kernel import RemoteProtocolError
from statemachines.shared_subscriptions import relay
from statemachines.shared_subscriptions.configuration import Detours
from statemachines.shared_subscriptions.message import LeaderConnectResponse, RelayedToBorrower

L, F = "leader-1~1/1", "leader-2~1/1"
RESPONSE = LeaderConnectResponse("c1~1/1", L, 3, 1)


@pytest.mark.parametrize(
    ("sender", "is_leader_host"), [(F, False), ("leader-2~1/2", True), (L, True), ("pretender~1/1", True)]
)
def test_SS_277_a_member_hears_through_nobody_but_a_leader_host_under_its_own_id(sender, is_leader_host):
    relay.check_relay(F, RelayedToBorrower(L, F, RESPONSE), True)
    relay.check_relay(sender, RESPONSE, False)
    with pytest.raises(RemoteProtocolError, match="by no leader host"):
        relay.check_relay(sender, RelayedToBorrower(L, F, RESPONSE), is_leader_host)


def test_SS_278_a_host_remembers_a_way_around_for_those_who_used_it_last():
    known = Detours()
    for number in (*range(10_000), 0, 10_000):
        known = known.keep(f"c{number}~1/1", F)
    assert [f"c{number}~1/1" in known.of for number in (0, 1, 2, 10_000)] == [True, False, True, True]
