"""A shipped node with a mistake in it: `planted_node.py MODULE RIGHT WRONG node leader --store ...`.

In the text of the module WRONG stands in the place of RIGHT, which is there once.
"""

import importlib.util
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import SourceFileLoader
from pathlib import Path


def replace_once(text, right, wrong):
    """The text with `wrong` in the place of `right`.  ValueError where that is not there exactly once."""
    if text.count(right) != 1:
        raise ValueError(f"{right!r} is there {text.count(right)} times; it must be there once")
    return text.replace(right, wrong)


class PlantedLoader(SourceFileLoader):
    """Loads one module with its text changed."""

    def __init__(self, name, path, right, wrong):
        super().__init__(name, path)
        self._right, self._wrong = right, wrong

    def get_code(self, fullname):
        return compile(replace_once(Path(self.path).read_text(), self._right, self._wrong), self.path, "exec")


class PlantedFinder(MetaPathFinder):
    """Finds that module before anybody else does."""

    def __init__(self, name, right, wrong):
        spec = importlib.util.find_spec(name)
        for loaded in [one for one in sys.modules if one.startswith(name.partition(".")[0])]:
            del sys.modules[loaded]
        self._spec = importlib.util.spec_from_loader(name, PlantedLoader(name, spec.origin, right, wrong))

    def find_spec(self, name, path, target=None):
        return self._spec if name == self._spec.name else None


def main():
    module, right, wrong, *arguments = sys.argv[1:]
    sys.meta_path.insert(0, PlantedFinder(module, right, wrong))
    from statemachines import cli

    sys.exit(cli.run(arguments))


if __name__ == "__main__":
    main()
