"""Writes the ends of lines in one way."""


def with_newlines(text: str) -> str:
    r"""Return a text whose lines end in ``\n``, also where they ended in ``\r\n`` or ``\r``."""
    return text.replace("\r\n", "\n").replace("\r", "\n")
