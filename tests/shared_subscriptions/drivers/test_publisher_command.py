"""`gapless node publisher`: how many messages, and what it publishes without a text of the user."""

from statemachines import cli


def publish(folder, capsys, *words):
    store = ("--store", str(folder / "s.db"), "--state", str(folder))
    assert cli.run(["node", "publisher", *store, "--rate", "1000000", *words]) == 0
    return capsys.readouterr()


def test_without_a_text_it_says_what_it_publishes(tmp_path, capsys):
    said = publish(tmp_path, capsys, "--count", "1")
    assert said.err == "no --input: publishing 1 lines of the source of gapless; --input PATH publishes yours\n"
    assert said.out == "published 1 messages to 1 topics\n"
