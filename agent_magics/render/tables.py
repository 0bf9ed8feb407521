"""Writes Markdown tables, and formats them as columns of plain text for who reads no Markdown."""

import html
import re
import unicodedata
from collections.abc import Sequence
from functools import cache, lru_cache
from itertools import zip_longest
from textwrap import wrap

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

_FENCED = r"^ {0,3}(?P<fence>(?P<sign>[`~])(?P=sign){2,})(?s:.*?)(?:\n {0,3}(?P=fence)|\Z)"
# A possessive group may match wrongly before Python 3.11.5 (gh-106052), so the last is none.
# Code, which stays as it is; or a line, a line of dashes and bars, and all lines to an empty one.
_CODE_OR_TABLE = re.compile(
    rf"{_FENCED}"
    r"|^(?P<table>(?=[^\n]*\|)[^\n]*+\n(?=[^\n]*\|)[ \t]*+[|:-][-:| \t]*+(?:\n[ \t]*+\S[^\n]*+)*)",
    re.MULTILINE,
)
# What `code_span` writes: no sign but as a number, and one at least, or a blank.
_ELEMENT = r"<code>(?P<ours> *|[^!-/:-@\[-`{-~\n]*(?:&#\d+;[^!-/:-@\[-`{-~\n]*)+)</code>"
_CODE_ELEMENT = re.compile(_ELEMENT)
_CODE = re.compile(rf"{_FENCED}|{_ELEMENT}", re.MULTILINE)
_MARKED = re.compile("\x02(.*?)\x03")  # an element of ours in a table
_LONGEST = 8_000  # characters; a longer one stays Markdown
_GAP = "  "
# Columns of a line; the front end's own width is not known here. And of a table's column at least.
_WIDEST, _NARROWEST = 100, 10


_NUMBER = re.compile(r"[\d.,]+( [\w%]+)?|-|")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; "|" and line ends in the cells are escaped.

    Args:
        head: the headings.
        rows: the cells, as Markdown.
    """

    def row_of(cells: Sequence[str]) -> str:
        return (
            "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"
        )

    columns = zip(*rows, strict=True) if rows else [()] * len(head)
    # Explicit, since JupyterLab aligns everything to the right otherwise.
    sides = [" ---: |" if all(map(_NUMBER.fullmatch, column)) else " :--- |" for column in columns]
    return "\n".join([row_of(head), "|" + "".join(sides), *map(row_of, rows)])


def tables_as_text(text: str) -> str:
    """Return Markdown with its tables as aligned columns, and all other text unchanged."""
    return _CODE_OR_TABLE.sub(_shown, text) if "|" in text else text


def _shown(found: re.Match[str]) -> str:
    is_table = found["table"] is not None and len(found["table"]) <= _LONGEST
    return _columns(found["table"]) if is_table else found[0]


@lru_cache(1_000)  # an answer that grows comes again and again
def _columns(markdown: str) -> str:
    marked = _CODE_ELEMENT.sub("\x02\\g<ours>\x03", markdown)
    table, *others = SyntaxTreeNode(_parser().parse(marked)).children
    if table.type != "table" or others:
        return markdown
    rows = [
        [_words(cell) for cell in row.children]
        for part in table.children  # head and body
        for row in part.children
    ]
    widths = _narrowed([max(map(_width, column)) for column in zip(*rows, strict=True)])
    sides = [str(cell.attrs.get("style", "")) for cell in table.children[0].children[0].children]
    rule = ["─" * width for width in widths]
    return "\n".join(
        _GAP.join(map(_padded, line, widths, sides)).rstrip()
        for row in [*rows[:1], rule, *rows[1:]]
        for line in zip_longest(*map(_wrapped, row, widths), fillvalue="")
    )


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a cell; a letter that takes two columns is wrapped as two letters."""
    is_wide = _width(text) > len(text)  # a pair may be parted, so one column is kept free
    pairs = "".join(f"{letter}\0" if _width(letter) == 2 else letter for letter in text)
    return [line.replace("\0", "") for line in wrap(pairs, max(1, width - is_wide))]


def _narrowed(widths: list[int]) -> list[int]:
    """Return column widths, reduced so that a row fits into a line, if possible."""
    room = _WIDEST - len(_GAP) * (len(widths) - 1)
    fits = (most for most in range(room, _NARROWEST, -1) if sum(_capped(widths, most)) <= room)
    return _capped(widths, next(fits, _NARROWEST))


def _capped(widths: list[int], most: int) -> list[int]:
    return [max(1, min(width, most)) for width in widths]


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable("table")


def _words(cell: SyntaxTreeNode) -> str:
    """Return a cell's text; its Markdown source where it contains more than text and code."""
    pieces = [node for node in cell.walk() if node.type not in ("td", "th", "inline")]
    if all(node.type in ("text", "code_inline", "strong", "em") for node in pieces):
        text = "".join(node.content for node in pieces if node.type in ("text", "code_inline"))
    else:
        text = _MARKED.sub(lambda found: html.unescape(found[1]), cell.children[0].content)
    return text.translate({2: None, 3: None})


def code_as_text(text: str) -> str:
    """Return Markdown whose inline code in HTML, which `code_span` writes, is plain text."""
    return _CODE.sub(_unescaped, text) if "<code>" in text else text


def _unescaped(found: re.Match[str]) -> str:
    return found[0] if found["ours"] is None else html.unescape(found["ours"])


def _padded(text: str, width: int, side: str) -> str:
    blank = " " * (width - _width(text))
    return blank + text if "right" in side else text + blank


def _width(text: str) -> int:
    """Return the number of terminal columns that a text takes."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return len(text) + wide - sum(map(bool, map(unicodedata.combining, text)))
