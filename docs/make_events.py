"""Writes docs/events.md from the source of the events and ops, so that the page is never stale.

`python docs/make_events.py` writes the page; with `--check` it only reports whether it is current.
"""

import ast
import sys
from pathlib import Path

PAGE = Path(__file__).parent / "events.md"
PROTOCOL = Path(__file__).parent.parent / "agent_magics" / "protocol"
HEAD = """\
# Events and ops

<!-- Written by docs/make_events.py from agent_magics/protocol; do not edit. -->

The engine reports what happens as **events**, and takes requests as **ops**. Both are frozen
dataclasses that convert to JSON and back. `result.events` holds a run's events in order,
`on_event` hooks get them as they happen, and the record of a session has one event per line,
among the entries of `agent_magics.protocol.records`; pieces of texts, of which it has the whole,
are not in it.
"""


def row(field: ast.AnnAssign) -> str:
    """Return a field's line of the table: name, type, default."""
    annotation = ast.unparse(field.annotation).replace("|", r"\|")
    default = "required"
    if isinstance(field.value, ast.Call) and ast.unparse(field.value.func) == "field":
        default = "empty"  # the only factories of the protocol are those of empty containers
    elif field.value is not None:
        default = f"`{ast.unparse(field.value)}`"
    return f"| `{ast.unparse(field.target)}` | `{annotation}` | {default} |"


def described(noun: ast.ClassDef) -> list[str]:
    """Return the lines of the docstring, with its attributes as a Markdown list."""
    lines = []
    for line in (ast.get_docstring(noun) or "").splitlines():
        if line == "Attributes:":
            continue
        starts_item = line.startswith("    ") and not line.startswith("     ")
        lines.append(f"- {line.strip()}" if starts_item else line)
    return lines


def section(noun: ast.ClassDef, with_fields: set[str]) -> str:
    """Return the part of the page about one event or op."""
    lines = [f"### {noun.name}", "", *described(noun), ""]
    parents = [f"`{name}`" for base in noun.bases if (name := ast.unparse(base)) in with_fields]
    if parents:
        lines += [f"Also has the fields of {', '.join(parents)}.", ""]
    rows = [row(field) for field in noun.body if isinstance(field, ast.AnnAssign)]
    if rows:
        lines += ["| field | type | default |", "|---|---|---|", *rows, ""]
    return "\n".join(lines)


def sections(module: Path) -> list[str]:
    """Return the parts about all classes of a module, in the order of its source."""
    tree = ast.parse(module.read_text(encoding="utf-8"))
    nouns = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    with_fields = {
        noun.name for noun in nouns if any(isinstance(node, ast.AnnAssign) for node in noun.body)
    }
    return [section(noun, with_fields) for noun in nouns]


def page() -> str:
    """Return the whole page."""
    parts = [HEAD, "## Events\n", *sections(PROTOCOL / "events.py")]
    parts += ["## Ops\n", *sections(PROTOCOL / "ops.py")]
    return "\n".join(parts).rstrip() + "\n"


def main() -> int:
    """Write the page, or with `--check` compare it.

    Returns:
        The exit status: 1 where the page is stale.
    """
    text = page()
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/events.md is not what the code says: run `make fmt`", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
