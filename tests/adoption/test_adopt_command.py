"""`gapless adopt`: what is wrong is one line that names it and says what to do; exit codes are as everywhere."""

import json
import sys

import pytest

from statemachines.cli import run

SHOP = """
import threading
import socket
from transitions import Machine


class Order:
    def __init__(self):
        self.paid = 0

    def take(self, amount):
        self.paid += amount

    def again(self):
        self.paid = 0


class Locked(Order):
    def __init__(self):
        super().__init__()
        self.lock = threading.Lock()


class Connected(Order):
    def __init__(self):
        super().__init__()
        self.line = socket.socket()


class Streaming(Order):
    def __init__(self):
        super().__init__()
        self.feed = (number for number in range(3))


class Noted(Order):
    def __init__(self):
        super().__init__()
        self.notes = 0

    def note(self, count):
        self.notes += count


class Hiding(Order):
    def pay(self, amount):
        self.paid = amount


def on(order):
    machine = Machine(order, ["new", "paid"], initial="new", auto_transitions=False)
    machine.add_transition("pay", "new", "paid", before="take")
    machine.add_transition("reset", "paid", "new", before="again")
    return order


def make_order():
    return on(Order())


def make_locked():
    return on(Locked())


def make_connected():
    return on(Connected())


def make_streaming():
    return on(Streaming())


def make_noted():
    return on(Noted())


def make_hiding():
    return on(Hiding())


ONE = make_order()


def make_one():
    return ONE


def make_priced(price):
    return on(Order())


def fail():
    raise RuntimeError("no database")


def make_nothing():
    return None


async def make_later():
    return make_order()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where the module is, which is forgotten afterwards."""
    (tmp_path / "shop_module.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield tmp_path
    sys.modules.pop("shop_module", None)


PAY = ("--args", "pay=amount:1,2")

WRONG = {
    ("shop_module:make_lost",): "factory = 'shop_module:make_lost': the module has no 'make_lost'",
    ("nowhere:make",): "factory = 'nowhere:make': there is no module 'nowhere'",
    ("shop_module",): "factory = 'shop_module': must be module:ATTRIBUTE",
    ("shop_module:ONE",): "must be a function that makes a machine and takes no arguments",
    ("shop_module:fail",): "raised RuntimeError: no database",
    ("shop_module:make_one",): "returned the same Order twice; it must make a new one each time",
    ("shop_module:make_priced",): "must be callable without arguments",
    ("shop_module:make_nothing",): "must return a transitions.Machine, a model that one is on, or a list of either",
    ("shop_module:make_later",): "is a coroutine function; give one that is called plainly",
    ("shop_module:make_locked",): "attribute = 'lock': is a _thread.lock, which cannot be read and set again",
    ("shop_module:make_streaming",): "attribute = 'feed': is a generator, which cannot be read and set again",
    ("shop_module:make_connected",): "the factory calls socket.__new__ in Connected.__init__, which is blocked",
    ("shop_module:make_hiding",): "trigger = 'pay': is an attribute of Hiding itself",
    ("shop_module:make_order", "--holds", "paid >="): "is no expression (invalid syntax)",
    ("shop_module:make_order", "--holds", ""): "is no expression",
    ("shop_module:make_order", "--holds", "__import__('os').system('id')"): "may not have a call of __import__",
    ("shop_module:make_order", "--holds", "paid.__class__ == 1"): "may not have __class__",
    ("shop_module:make_order", "--holds", "[one for one in paid]"): "may not have listcomp",
    ("shop_module:make_order", "--holds", "paid ** 9 > 1"): "may not have pow",
    ("shop_module:make_order", "--holds", "(lambda: 1)"): "may not have lambda",
    ("shop_module:make_order", "--holds", "f'{paid}'"): "may not have joinedstr",
    ("shop_module:make_order", "--holds", "payd >= 0"): "did you mean 'paid'? there are: paid, state",
    ("shop_module:make_order", "--holds", "paid > 'a'"): "cannot be told in state new: TypeError",
    ("shop_module:make_order", "--holds", "state * 99999999 > 'b'"): "cannot multiply str by int",
    ("shop_module:make_order", "--holds", "1"): "--holds = '1': has 1 where something holds or not",
    ("shop_module:make_order", "--holds", "state == 'new' or 'paid'"): "has 'paid' where something holds or not",
    ("shop_module:make_order", "--holds", "1 == 1"): "names no attribute, so it says the same everywhere",
    ("shop_module:make_order", "--within", "paid > 0"): "excludes the state that the factory makes",
    ("shop_module:make_order", "--raises", "KeyErrer"): "--raises = 'KeyErrer': unknown; did you mean 'KeyError'?",
    ("shop_module:make_order", "--within", "lost < 1"): "--within = 'lost < 1': Order has no attribute 'lost'",
    ("shop_module:make_order", "--args", "pay"): "must be TRIGGER=NAME:VALUE,VALUE",
    ("shop_module:make_order", "--args", "pai=amount:1"): "trigger = 'pai': unknown; did you mean 'pay'?",
    ("shop_module:make_order", "--args", "pay=amount:1,,2"): "has an empty value",
    ("shop_module:make_order", *PAY, *PAY): "gives amount of pay a second time",
    (
        "shop_module:make_order",
        "--port",
        "card",
    ): "no model has this attribute; there are: paid, state",
    ("shop_module:make_noted", "--call", "noted"): "--call = 'noted': unknown; did you mean 'note'? there are: again",
    ("shop_module:make_noted", "--call", "note=1,,2"): "--call = 'note=1,,2': has an empty value",
    ("shop_module:make_order", "--allow", "network"): "must be one of: files, sockets, processes",
    ("shop_module:make_order", "--show", "--test"): "do different things; give one of them",
    ("shop_module:make_order", "--show", "--json"): "is of a search and of --simulate; leave it out",
    ("shop_module:make_order", "--show", "--trace", "out"): "is written by a search and by --simulate",
}


@pytest.mark.parametrize("words", WRONG, ids=lambda words: " ".join(words)[:60])
def test_bad_input_is_one_line_that_says_what_to_do(words, capsys):
    code = run(["adopt", *words])
    said = capsys.readouterr()
    assert WRONG[words] in said.err
    assert (code, said.out, said.err.count("\n")) == (2, "", 1)


def test_exit_codes(capsys):
    given = ["adopt", "shop_module:make_order", *PAY]
    assert run([*given, "--holds", "paid >= 0"]) == 0
    assert run([*given, "--holds", "paid < 2"]) == 1
    assert run(["adopt", "shop_module:make_order", "--holds", "paid >= 0"]) == 3
    assert run([*given, "--states-max", "2"]) == 3
    capsys.readouterr()


def test_methods_are_called_where_they_are_named_and_a_promise_about_others_says_so(capsys):
    given = ["adopt", "shop_module:make_noted", *PAY, "--holds", "notes < 3", "--within", "notes < 3"]
    assert run(given) == 0
    assert "no step that was taken changes notes, which notes < 3 is about" in capsys.readouterr().out
    assert run([*given, "--within", "paid < 2", "--call", "note=count:1,2"]) == 0
    assert "changes notes" not in capsys.readouterr().out
    assert run([*given[:-1], "notes < 4", "--call", "note=count:1,2"]) == 1
    assert "    noted.note(count=1)\n    noted.note(count=2)\n    assert noted.notes < 3" in capsys.readouterr().out


def test_json_says_the_same(capsys):
    assert run(["adopt", "shop_module:make_order", *PAY, "--holds", "paid < 2", "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["held"], said["broken"], said["run"]) == (False, "paid < 2", ["pay(amount=2)"])
    assert said["counterexample"][0] == "  1. pay(amount=2)"


def test_a_simulation_is_the_same_with_the_same_seed(capsys):
    said = []
    for _ in range(2):
        assert run(["adopt", "shop_module:make_order", *PAY, "--simulate", "5", "--seed", "3", "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out))
    assert said[0] == said[1]
    assert set(said[0]["faults"]) == {"callback that raises", "crash"}
