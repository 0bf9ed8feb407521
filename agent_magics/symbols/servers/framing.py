"""Splits what a language server writes into messages, and leaves out what is none.

Law: no output of a server can exhaust the memory, stop the reader or hold up other threads.
"""

import asyncio
import re
from collections.abc import AsyncIterator

from agent_magics.exec.servers import LogRing

# Bytes of one message: some 20,000 places, which take 32 ms to parse. No other thread runs then.
MOST_OF_ONE = 4 << 20
LONGEST_LINE = 64 << 10  # bytes of a line of a header
_READ = 64 << 10
_MOST_NOTED = 20  # lines that are no header, noted in the log; the others are counted
_EDGE = 512  # bytes of a message that cannot be read, which are searched for its id
_LENGTH = re.compile(rb"content-length:[ \t]*+(\d{1,15})\s*+", re.IGNORECASE)
_HEADER = re.compile(rb"[A-Za-z-]++:[^\r\n]*+\s*+")
_ID = re.compile(rb'"id"\s*:\s*"(ask-\d{1,15})"')


class MessageTooLarge(Exception):
    """A message was left out because of its size.

    Attributes:
        request: the id of the request that it may answer; None where that is not known.
        size: its bytes.
    """

    def __init__(self, size: int, request: str | None) -> None:
        super().__init__(f"its answer has {size:,} bytes; more than {MOST_OF_ONE:,} are not read")
        self.request = request


async def read_messages(
    reader: asyncio.StreamReader, log: LogRing
) -> AsyncIterator[bytes | MessageTooLarge]:
    """Yield the body of each message until the output ends.

    Args:
        reader: the server's standard output.
        log: gets what is no message.
    """
    while (size := await _next_length(reader, log)) is not None:
        if size > MOST_OF_ONE:
            yield await _skip(reader, size)
            continue
        try:
            yield await reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return


async def _next_length(reader: asyncio.StreamReader, log: LogRing) -> int | None:
    """Read to the end of the next header; return the length of its message, None at the end."""
    length: int | None = None
    noise = 0
    while line := await _read_line(reader):
        if found := _LENGTH.fullmatch(line):
            length = int(found[1])
        elif not line.strip():
            if length is not None:
                return length
        elif length is None or not _HEADER.fullmatch(line):
            length = None
            noise += 1
            if noise <= _MOST_NOTED:
                log.note(f"stdout, no message: {line[:200].decode('utf-8', 'replace')}")
    return None


async def _read_line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readline()
    except ValueError:  # longer than the reader's limit, which has dropped it
        return b"(a long line)\n"


async def _skip(reader: asyncio.StreamReader, size: int) -> MessageTooLarge:
    left, edge = size, b""
    while left and (data := await reader.read(min(_READ, left))):
        edge = edge or data[:_EDGE]
        left -= len(data)
    return MessageTooLarge(size, id_in(edge))


def id_in(message: bytes) -> str | None:
    """Return the id of our request that a message answers which cannot be read; None if unknown."""
    found = _ID.search(message[:_EDGE])
    return found[1].decode() if found else None
