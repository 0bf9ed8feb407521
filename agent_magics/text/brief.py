"""Shortens texts and lists to what is shown; counts with nouns; says which name may be meant."""

from collections.abc import Iterable, Sequence


def brief(text: str, most: int) -> str:
    """Return `text`, or where it has more than `most` characters its beginning with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def brief_line(text: str, most: int) -> str:
    """Do the same as `brief` for the text on one line, its white space joined."""
    return brief(" ".join(text.split()), most)


def meant(name: object, there: Iterable[str]) -> str:
    """Return the rest of a sentence about a name that is not there: which one may be meant.

    Returns:
        "did you mean A?" where one of the names is near, else "there are: A, B."
    """
    names = list(there)
    if near := nearest(name, names):
        return f"did you mean {near}?"
    return f"there are: {', '.join(names)}." if names else "there are none."


def nearest(name: object, there: Iterable[str]) -> str:
    """Return which of the names is near enough to be meant, or ""."""
    import difflib  # noqa: PLC0415 - for a mistake alone

    folded = {each.casefold(): each for each in there}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.7)
    return folded[near[0]] if near else ""


def first_of(texts: Sequence[str], most: int, between: str = ", ") -> str:
    """Return the first `most` texts joined, and how many more there are: "a, b and 3 more"."""
    shown, more = between.join(texts[:most]), len(texts) - most
    return f"{shown} and {more} more" if more > 0 else shown


def first_lines(texts: Sequence[str], most: int) -> list[str]:
    """Return the first `most` texts as lines of a list, and a line that says how many more."""
    more = [f"- and {len(texts) - most} more"] if len(texts) > most else []
    return [*(f"- {text}" for text in texts[:most]), *more]


def number_of(count: int, one: str, many: str = "") -> str:
    """Return a count with its noun: "1 file", "2 files"."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"
