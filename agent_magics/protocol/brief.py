"""Shortens texts to the length in which they are shown."""


def brief(text: str, most: int) -> str:
    """Return `text`, or where it has more than `most` characters its beginning with an ellipsis."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def brief_line(text: str, most: int) -> str:
    """Do the same as `brief` for the text on one line, its white space joined."""
    return brief(" ".join(text.split()), most)
