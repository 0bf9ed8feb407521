"""Limits the size of what a model server may send.

The longest answers today have 128,000 tokens, each sent as an event of some 300 bytes: 40 MB. An
event may repeat the whole answer, the instructions and the tools.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from agent_magics.models.faults import Fault

MEGABYTE = 1 << 20
# Bytes after decompression: of one event or line, or of a document sent instead of a stream; of a
# whole answer.
EVENT_BYTES = 16 * MEGABYTE
ANSWER_BYTES = 128 * MEGABYTE
# Bytes read of an answer with an error status, and of a server's list of models.
DOCUMENT_BYTES = MEGABYTE
# Characters of text and reasoning, or of one call's arguments; of a call's name.
TEXT_LENGTH = 8 * MEGABYTE
NAME_LENGTH = 1024
# Messages, calls, searches and notices of one answer.
MOST_PARTS = 2000


# What a body may be compressed with. A read of the network unpacks to some 64 MB then; with others,
# or with two of them, to a thousand times that.
ENCODINGS = frozenset(("", "identity", "gzip", "deflate"))


def check_encoding(encoding: str) -> None:
    """Reject an answer whose encoding could unpack to more than memory holds.

    Raises:
        Fault: it could.
    """
    if encoding not in ENCODINGS:
        raise Fault(
            "The model server's answer was refused: it is compressed with "
            f"{encoding[:40]!r}, and only gzip or deflate is read."
        )


def too_large(what: str, limit: int) -> Fault:
    """Return the error for an answer in which `what` exceeds `limit` bytes or characters."""
    size = f"{limit // MEGABYTE} MB" if limit >= MEGABYTE else f"{limit:,}"
    return Fault(
        f"The model server's answer was refused: {what} of more than {size}. No model answers at "
        "such a length: check the address (base_url, OPENAI_BASE_URL) and the server."
    )


async def bounded(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of an answer up to `ANSWER_BYTES`.

    Raises:
        Fault: the answer is longer.
    """
    size = 0
    async with aclosing(chunks):
        async for chunk in chunks:
            size += len(chunk)
            if size > ANSWER_BYTES:
                raise too_large("a stream", ANSWER_BYTES)
            yield chunk
