"""Makes arguments of a call readable for judging, with hidden characters shown."""

import json
import re
import unicodedata
from typing import Final

from agent_magics.text.look_alikes import code_of, mark_look_alikes

# Lists and objects up to this long stay on one line.
_WIDTH: Final = 80
# Longer arguments are cut before they are looked at; room for the words that say so.
_MOST_LAID_OUT: Final = 1_000_000
_MARK: Final = 100
# What JSON would write with a backslash is shown as it is.
_ESCAPED: Final = re.compile(r'[\n"\\]')
# More marks on one letter would be drawn over what stands above and below, such as a button.
_MOST_MARKS: Final = 4
# Drawn as nothing although Unicode calls them letters, marks or symbols.
_BLANK_RANGES: Final = (
    (0x034F, 0x034F),  # combining grapheme joiner
    (0x115F, 0x1160),  # Hangul fillers
    (0x17B4, 0x17B5),  # Khmer inherent vowels
    (0x180B, 0x180F),  # Mongolian variation selectors
    (0x2800, 0x2800),  # blank Braille pattern
    (0x3164, 0x3164),  # Hangul filler
    (0xFE00, 0xFE0F),  # variation selectors: they can carry hidden data
    (0xFFA0, 0xFFA0),  # halfwidth Hangul filler
    (0xE0100, 0xE01EF),  # variation selectors
)


def show_invisible(text: str) -> str:
    r"""Write out every character that is invisible or that changes the direction of text, and mark
    letters that pass for Latin ones.

    Args:
        text: text that a person is about to judge, such as a command line.

    Returns:
        The text with control, format, bidirectional, zero-width, private and unassigned characters
        and all spaces but U+0020 as ``⟨U+202E⟩``, and so the fifth mark on a letter and all behind
        it; "\n" and "\t" stay. See also `mark_look_alikes`.
    """
    return mark_look_alikes(show_hidden(text))


def show_hidden(text: str) -> str:
    """Write out invisible characters as `show_invisible` does, and mark no letters; what it has
    written out once stays as it is.
    """
    return _MAY_BE_MARKS.sub(_without_stack, _NOT_PLAIN.sub(_written_out, text))


# Everything else is letters, digits and signs that nobody needs to look at twice.
_NOT_PLAIN: Final = re.compile(r"[^ -~\n\t]")


_MAY_BE_MARKS: Final = re.compile(rf"[^\w\s\x00-\u02ff]{{{_MOST_MARKS + 1},}}")


def _written_out(found: re.Match[str]) -> str:
    return code_of(found[0]) if _is_invisible(found[0]) else found[0]


def _without_stack(found: re.Match[str]) -> str:
    shown, marks = "", 0
    for character in found[0]:
        marks = marks + 1 if unicodedata.category(character)[0] == "M" else 0
        shown += character if marks <= _MOST_MARKS else code_of(character)
    return shown


def _is_invisible(character: str) -> bool:
    if unicodedata.category(character)[0] in "CZ":
        return True
    code = ord(character)
    return any(first <= code <= last for first, last in _BLANK_RANGES)


def cut_middle(text: str, longest: int) -> str:
    """Replace the middle of a text longer than `longest` characters by a note of the count.

    The end is always kept, since an attack would be put behind a long beginning.
    """
    left_out = len(text) - longest
    if left_out <= 0:
        return text
    half = longest // 2
    return f"{text[:half]}\n⟨… {left_out} characters are left out here …⟩\n{text[-half:]}"


def show_shortened(text: str, longest: int) -> str:
    """Apply `show_invisible` and `cut_middle` to `text`.

    The text is cut first: writing out some megabytes would take minutes.
    """
    return cut_middle(show_invisible(cut_middle(text, longest)), longest + _MARK)


def pretty_shortened(text: str, longest: int) -> str:
    """Apply `pretty_arguments` and `cut_middle` to a call's arguments."""
    whole = text if len(text) <= _MOST_LAID_OUT else cut_middle(text, longest)
    return cut_middle(pretty_arguments(whole), longest + _MARK)


def pretty_arguments(text: str) -> str:
    """Format a call's arguments for reading, hiding nothing.

    Args:
        text: JSON text, or code.

    Returns:
        A JSON object with one field per line, strings of several lines or with quotes as a block
        whose lines start with "│"; other text unchanged, as is an object with a repeated name,
        since a parser would silently drop the first. Invisible characters are written out.
    """
    try:
        fields = json.loads(text, object_pairs_hook=_unique_fields)
    except (ValueError, RecursionError):
        return show_invisible(text)
    if not isinstance(fields, dict):
        return show_invisible(text)
    return show_invisible("\n".join(_lay_out(name, value) for name, value in fields.items()))


def _lay_out(name: str, value: object) -> str:
    # A name is quoted like any string: with a line end in it, it could pass for two fields.
    label = name if name.isidentifier() else json.dumps(name, ensure_ascii=False)
    if isinstance(value, str) and _ESCAPED.search(value):
        # The bar tells the lines of a value from a value that imitates further fields.
        return "\n".join([f"{label}:", *(f"  │ {line}" for line in value.split("\n"))])
    line = json.dumps(value, ensure_ascii=False)
    if len(line) > _WIDTH:
        line = json.dumps(value, indent=2, ensure_ascii=False)
    return f"{label}: {line}"


def _unique_fields(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name occurs twice")
    return fields
