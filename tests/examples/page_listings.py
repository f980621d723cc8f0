"""Page listings: what the console listings of a page run, and what they print."""

import re


def mask(text):
    """The text, its numbers as N, and its spaces as one."""
    return re.sub(r" +", " ", re.sub(r"\d[\d,.]*", "N", text))


def read_commands(text):
    """(command, lines that it must print) of a console listing."""
    found = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def find_difference(lines, said):
    """The first line of a listing that the output does not have there ("": there is none); a line begins as it is
    shown, and `...` stands for any others."""
    rest = [line for line in mask(said).splitlines() if line.strip()]
    is_free = False
    for line in lines:
        if line == "...":
            is_free = True
            continue
        places = [place for place, other in enumerate(rest) if other.startswith(mask(line))]
        if not places or (places[0] and not is_free):
            return line
        rest, is_free = rest[places[0] + 1 :], False
    return rest[0] if rest and not is_free else ""
