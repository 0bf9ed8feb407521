"""Shortens texts to the length in which they are shown; says which name may be meant."""

from collections.abc import Iterable


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
    import difflib  # noqa: PLC0415 - for a mistake alone

    names = list(there)
    folded = {each.casefold(): each for each in names}
    near = difflib.get_close_matches(str(name).casefold(), folded, n=1, cutoff=0.7)
    return (
        f"did you mean {folded[near[0]]}?" if near else f"there are: {', '.join(names) or 'none'}."
    )
