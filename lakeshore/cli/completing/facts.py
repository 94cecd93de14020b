"""What a shell's script is told of a node: six texts of lines and words, the same for every shell.

here    its words, joined by spaces
verbs   lines `name TAB summary`
flags   lines `--name TAB summary`
taking  the options, long and short, that take a value
again   the options that may be given more than once
values  lines `where TAB what TAB words…`; `where` is an option, an argument's number from 1, or `*` for the rest

None is named as a special variable of a shell is.
"""

from __future__ import annotations

from collections.abc import Iterator

from .tree import Node, Values


def facts(node: Node) -> dict[str, str]:
    """The texts of a node, by their names."""
    taking = dict.fromkeys(flag for option in node.options if option.values for flag in option.flags)
    return {
        "here": " ".join(node.path),
        "verbs": "\n".join("\t".join(command) for command in node.commands),
        "flags": "\n".join(f"{option.name}\t{option.summary}" for option in node.options),
        "taking": " ".join(taking),
        "again": " ".join(option.name for option in node.options if option.repeatable),
        "values": "\n".join(
            "\t".join((where, values.what, " ".join(values.words)))
            for where, values in _values(node)
            if values.what != "any"
        ),
    }


def _values(node: Node) -> Iterator[tuple[str, Values]]:
    for option in node.options:
        if option.values is not None:
            for flag in option.flags:
                yield flag, option.values
    yield from ((str(number), values) for number, values in enumerate(node.places, 1))
    if node.rest is not None:
        yield "*", node.rest


def posix_table(tree: list[Node]) -> str:
    """A function for bash and zsh that sets the six variables for the words in its argument; 1 for unknown ones."""
    lines = ["__lakeshore_node() {", "    case $1 in"]
    for node in tree:
        lines.append(f"    {'|'.join(_quoted(' '.join(words)) for words in node.spellings)})")
        lines += [f"        {name}={_quoted(text)}" for name, text in facts(node).items()]
        lines.append("        ;;")
    return "\n".join([*lines, "    *) return 1 ;;", "    esac", "}"])


def fish_table(tree: list[Node]) -> str:
    """The same for fish, whose variables are lists."""
    lines = ["function __lakeshore_node --no-scope-shadowing", '    switch "$argv[1]"']
    for node in tree:
        lines.append(f"        case {' '.join(_fish_quoted(' '.join(words)) for words in node.spellings)}")
        for name, text in facts(node).items():
            parts = [text] if name == "here" else text.split(" ") if name in ("taking", "again") else text.split("\n")
            lines.append(f"            set {name} {' '.join(_fish_quoted(part) for part in parts if part)}".rstrip())
    return "\n".join([*lines, "        case '*'", "            return 1", "    end", "    return 0", "end"])


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
