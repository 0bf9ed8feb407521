"""Makes of a row its question, and the key by which its answer is kept."""

from hashlib import blake2b
from typing import NamedTuple, TypeAlias

from agent_magics.protocol.errors import error_text
from agent_magics.protocol.items import Content
from agent_magics.rows.asking import RowPlace
from agent_magics.rows.prompts import BadRow, Prompt
from agent_magics.rows.tables.sources import Row

TOO_LONG = "the prompt has {length:,} characters, more than the model can read ({most:,} at most)"


class Asked(NamedTuple):
    """One row with its question; where it is not asked, a plain tuple takes less time.

    Attributes:
        position: its place among all rows.
        key, content: of its question.
        error: why nothing can be asked about it; "" where something can.
        place: where its content is instead, if a worker has it.
    """

    position: int
    key: bytes
    content: Content
    error: str = ""
    place: RowPlace | None = None


Entry: TypeAlias = tuple[int, bytes, Content, str, RowPlace | None]
"""What `Asked` has."""


def asked_row(position: int, row: Row, prompt: Prompt, terms: blake2b, most: int) -> Entry:
    """Return a row with its question, or with the error of one that cannot be asked about.

    Args:
        position: its place.
        row: its values.
        prompt: makes its question.
        terms: a digest of all that decides the answer, but for that question.
        most: the longest prompt that is sent, in characters.
    """
    try:
        content = prompt.fill(row)
        text = content if isinstance(content, str) else repr(content)
        if len(text) > most and isinstance(content, str):
            raise BadRow(TOO_LONG.format(length=len(text), most=most))
        digest = terms.copy()
        digest.update(text.encode())
        return position, digest.digest(), content, "", None
    except BadRow as problem:
        return position, b"", "", str(problem), None
    except BaseException as error:  # objects of anybody's classes, which may also call `sys.exit()`
        return position, b"", "", error_text(error), None


def digest_of(terms: bytes) -> blake2b:
    """Return the digest of what all questions share; the digest of each begins with it."""
    return blake2b(digest_size=16, key=terms)
