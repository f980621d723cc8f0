"""Names and prose keep to the rules of the house; what does not yet is counted, and the count only falls."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SPEC = importlib.util.spec_from_file_location("voice_tool", ROOT / "tools/voice.py")
VOICE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(VOICE)


def test_no_public_function_method_or_file_is_named_by_a_bare_participle():
    public, others = VOICE.find_bare_names()
    assert public == []
    assert len(others) <= VOICE.read_limits()["bare private names"], others


def test_no_more_class_names_are_used_twice_than_the_limit_says():
    assert len(VOICE.find_shared_classes()) <= VOICE.read_limits()["shared classes"], VOICE.find_shared_classes()


def test_no_more_public_functions_begin_without_a_verb_than_the_limit_says():
    """`python tools/voice.py --verbless` names them all; a verb that is missing in `tools/verbs.txt` may be added."""
    found = VOICE.find_verbless()
    assert len(found) <= VOICE.read_limits()["functions without a verb"], "\n".join(found)


def test_a_function_without_a_verb_is_named_with_its_file(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text(
        "def table(): ...\ndef read_table(): ...\ndef _over(): ...\ndef is_over(): ...\nclass One:\n"
        "    @property\n    def rows(self): ...\n    def rows_of(self): ...\n"
        "    class Two:\n        async def rest(self): ...\n"
    )
    monkeypatch.setattr(VOICE, "ROOT", tmp_path)
    monkeypatch.setattr(VOICE, "list_files", lambda *patterns: sorted(tmp_path.glob("*.py")))
    assert VOICE.find_verbless() == ["one.py:1: table", "one.py:8: One.rows_of", "one.py:10: One.Two.rest"]


def test_no_page_has_more_long_sentences_and_riddles_than_its_limit():
    """A new page has none: `python tools/voice.py --write` gives it a limit, which then is to fall."""
    limits = VOICE.read_limits()
    assert {name: count for name, count in VOICE.count_prose().items() if count > limits.get(name, 0)} == {}


def test_the_counts_see_what_they_are_there_for(tmp_path, monkeypatch):
    (tmp_path / "held.py").write_text(
        "class One:\n    def told(self): ...\ndef tell():\n    def _gone(): ...\nclass Two: ...\n"
    )
    (tmp_path / "two.py").write_text("class Two: ...\n")
    monkeypatch.setattr(VOICE, "ROOT", tmp_path)
    monkeypatch.setattr(VOICE, "list_files", lambda *patterns: sorted(tmp_path.glob("*.py")))
    assert VOICE.find_bare_names() == (["held.py: the file", "held.py:2: told"], ["held.py:4: _gone"])
    assert VOICE.find_shared_classes() == ["Two"]
    assert VOICE.list_sentences("One two.\n\n```\nWhat code\n```\n| What | table |\n- Whoever asks. It is so.") == [
        "One two.", "- Whoever asks.", "It is so.",
    ]  # fmt: skip


@pytest.mark.parametrize("riddle", ["Who has it, has it.", "What is sent is told."])
def test_a_riddle_is_one(riddle):
    assert VOICE.RIDDLE.match(riddle)
    assert not VOICE.RIDDLE.match("A client reconnects.")
