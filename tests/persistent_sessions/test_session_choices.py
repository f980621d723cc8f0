"""What an owner or a writer of others may do otherwise, and what it may not."""

from played_role import carried, in_order_of, play, twice

from statemachines.persistent_sessions.message import Live, Queued

WRITER = "persistent_sessions/writer"
OWNER = "persistent_sessions/session"
WRITTEN = ("start", "epoch_begun", "live_known", "hand", "row_stored", "marker_wanted", "row_stored")
RESUMED = ("resume_session", "session_loaded", "pending_read", "subscribed_live", "state_committed")
TAKEN_OVER = ("resume_session", "session_loaded", "takeover_begun", "subscribed_live")


def apart(effects):
    """Each row is marked alone."""
    found = []
    for effect in effects:
        request = carried(effect)
        if request["type"] != "mark_delivered":
            found.append(effect)
            continue
        for number in range(request["number"], request["last"] + 1):
            found.append({**effect, "request": {**request, "number": number, "last": 0}})
    return found


def turn_epochs(effects):
    """The epochs that are handed over stand the other way round."""
    for effect in effects:
        if carried(effect)["type"] == "takeover_ended":
            effect["message"]["found"] = effect["message"]["found"][::-1]
    return effects


def test_PS_341_what_a_writer_sends_live_comes_twice():
    assert play(WRITER, "rows", WRITTEN, twice("live", "live_marker")) == ""
    assert "not expected: tell written" in play(WRITER, "rows", WRITTEN, twice("written"))


def test_PS_343_messages_are_sent_first_and_rows_marked_later():
    order = {"ask": 0, "send": 1, "tell": 2}
    inputs = (*RESUMED, "live_marker", "polled")
    start = "a client that keeps what it has"
    assert play(OWNER, start, inputs, in_order_of(lambda one: order.get(one["effect"], 3))) == ""
    wrong = play(OWNER, start, inputs, in_order_of(lambda one: carried(one)["type"] == "mark_delivered"))
    assert "must come before" in wrong
    assert "[PS-343]" in wrong


def test_PS_344_epochs_are_handed_over_in_another_order():
    live = [Live("s1", writer, 1, Queued(1, "m")) for writer in ("w1", "w2")]
    inputs = (*RESUMED[:4], "begin_takeover", *live, "end_takeover")
    assert play(OWNER, "owners that come after", inputs, turn_epochs) == ""


def test_PS_345_what_is_asked_of_others_is_asked_twice():
    asked = twice("marker_wanted", "begin_takeover", "end_takeover")
    assert play(OWNER, "a session that is taken over", TAKEN_OVER, asked) == ""
    assert play(OWNER, "a session that is taken over", TAKEN_OVER, twice("subscribe_live")) != ""


def test_PS_346_rows_are_marked_one_by_one():
    assert play(OWNER, "a client that keeps what it has", RESUMED, apart) == ""
