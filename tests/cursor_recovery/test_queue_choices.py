"""What writers and readers of others may do otherwise over a shared memory, and what they may not."""

from msgspec.structs import replace
from played_role import Rearranged

from statemachines.cursor_recovery.memory import READ_HEAD, Loaded, Memory, Queue, Store
from statemachines.cursor_recovery.reader import READER, Read, new_reader
from statemachines.testing.conformance.campaign import ConformanceOutcome
from statemachines.testing.conformance.conformance_test import ConformanceTest
from statemachines.testing.conformance.role import role_of
from statemachines.testing.cursor_recovery.conformance import Meanwhile, MemoryScene


def judge(name, changed):
    """The verdict on the shipped machine that answers otherwise, in a few scenes."""
    role = role_of(f"cursor_recovery/{name}")
    few = replace(role, starts=tuple(role.starts[number] for number in (1, 2, 6)))
    return ConformanceTest.of(few, lambda: Rearranged(few, changed)).judge(1)


def test_CR_60_what_is_skipped_is_told_in_parts():
    def changed(effects):
        found = []
        for effect in effects:
            event = effect.get("event", {})
            cut = [event["first"], event["last"]] if event.get("type") == "skipped" else []
            if cut and cut[0] < cut[1]:
                found.append({**effect, "event": {**event, "last": cut[0]}})
                effect = {**effect, "event": {**event, "first": cut[0] + 1}}
            found.append(effect)
        return found

    assert judge("reader", changed).outcome is ConformanceOutcome.PASS


QUEUE = Queue(capacity=64, read_cursors=1, write_cursors=1)


def test_a_scene_gives_the_answers_of_the_service_and_of_what_others_change():
    record = new_reader(QUEUE, 0, 1)
    scene = MemoryScene(READER, record, (Read(),), Memory(QUEUE).initial(), (Meanwhile((Store(READ_HEAD, 20),)),), 7)
    assert scene.list_inputs(record) == (Read(),)
    heads = {record.read_head for record in scene._answers}
    assert heads == {0, 20}
    assert scene.list_inputs(READER.step(record, Read(), 0).record) == (Loaded(0, 7),)
    assert scene.list_inputs(new_reader(QUEUE, 1, 1)) == ()
