"""What a Leader of others may do otherwise, and what it may not."""

import pytest
from played_role import carried, play, twice

from statemachines.testing.conformance.conformance_test import ShippedMachine
from statemachines.testing.conformance.role import role_of

LEADER = "shared_subscriptions/leader"
ROLE = role_of(LEADER)
LEADING = ("start_leader", "read_done", "committed", "read_done", "scanned", "streams_listed")
SHARING = (*LEADING, "leader_wanted", "leader_wanted", "update_progress", "update_progress", "update_progress")
REQUESTS = ("read", "scan", "commit", "list_streams", "measure")
ANSWERS = ("read_done", "scanned", "committed", "refused", "store_failed", "streams_listed", "measured", "fetch_failed")


class Renumbered(ShippedMachine):
    """A leader whose numbers are `number(n)`: those of requests, or the `field` of what goes to borrowers."""

    def __init__(self, role, field, number):
        super().__init__(role)
        self.field, self.number, self.known = field, number, {}

    def answer(self, line):
        event = line.get("event", {})
        for one in (event, *event.get("reports", ())):
            if self.field in one:
                one[self.field] = self.known.get(one[self.field], one[self.field])
        answer = super().answer(line)
        for effect in answer["effects"]:
            one = carried(effect)
            if self.field in one and one["type"] not in ("update_progress",):
                theirs = self.number(one[self.field])
                self.known[theirs] = one[self.field]
                one[self.field] = theirs
        return answer


def renumbered(field, number):
    return lambda role: Renumbered(role, field, number)


def upside_down(effects):
    """What stands in a commit stands the other way round."""
    for effect in effects:
        one = carried(effect)
        if one["type"] == "commit":
            effect["request"] = {**one, "expect": one["expect"][::-1], "put": one["put"][::-1]}
    return effects


def test_SS_314_requests_are_numbered_otherwise():
    assert play(LEADER, "two members", SHARING, make=renumbered("n", lambda n: 1_000 - n)) == ""
    wrong = play(LEADER, "two members", SHARING, make=renumbered("n", lambda n: 7))
    assert "was used before; each request number is another" in wrong


@pytest.mark.parametrize(("field", "start"), [("registration", "two members"), ("grant", "what a member reports")])
def test_SS_315_registrations_and_grants_are_numbered_otherwise_and_rise(field, start):
    inputs = SHARING if field == "registration" else (*LEADING, "leader_wanted", "revoke_finished")
    assert play(LEADER, start, inputs, make=renumbered(field, lambda n: 10 * n)) == ""
    wrong = play(LEADER, start, inputs, make=renumbered(field, lambda n: 1_000 - n))
    assert "[SS-315]" in wrong


def test_SS_316_what_a_commit_holds_stands_in_another_order():
    assert play(LEADER, "a claim that is taken", LEADING, upside_down) == ""


def test_SS_317_a_borrower_is_told_twice():
    told = twice("leader_connect_response", "ping_response", "grant", "revoke", "revoked", "invalidate")
    assert play(LEADER, "two members", SHARING, told) == ""
    assert "not expected" in play(LEADER, "two members", SHARING, twice("commit"))
