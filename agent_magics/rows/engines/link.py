"""Carries messages between the coordinator and a worker: JSON, each after its length.

JSON, since nothing that arrives over a network may run code here, as a pickle could.
"""

import asyncio
import json
from contextlib import suppress
from typing import Any

from agent_magics.protocol.errors import FatalError, clause, short_message

# Bytes of a message: of the first one, of which nobody knows yet who sent it, of another one to the
# kernel, and of one to a worker.
MOST_AT_FIRST, MOST_OF_WORKER, MOST = 4096, 128 << 20, 1 << 30
_LENGTH = 4

BROKEN = "A message of {size:,} bytes came, more than the {most:,} that one may have."


class Link:
    """One connection; messages are lists that begin with a word."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, *message: Any) -> None:
        """Send a message; what cannot be delivered is lost, and reading then tells of the end."""
        data = json.dumps(message, separators=(",", ":"), default=str).encode()
        self._writer.write(len(data).to_bytes(_LENGTH, "big") + data)

    async def read(self, most: int = MOST) -> list[Any]:
        """Return the next message.

        Raises:
            EOFError: the other side has ended, or the connection broke.
            FatalError: what came is no message.
        """
        try:
            size = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            if size > most:
                raise FatalError(BROKEN.format(size=size, most=most))
            message = json.loads(await self._reader.readexactly(size))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise EOFError(short_message(error)) from None
        except (ValueError, RecursionError) as error:
            raise FatalError(f"What came is no message: {clause(error)}.") from None
        if not (isinstance(message, list) and message):
            raise FatalError("What came is no message.")
        return message

    def close(self) -> None:
        """Close the connection once all that was sent is delivered."""
        self._writer.close()

    def abort(self) -> None:
        """Close the connection at once, also where the other side reads no more."""
        self._writer.transport.abort()

    async def end(self) -> None:
        """Close the connection, and wait until all is delivered or the other side is gone."""
        self.close()
        with suppress(OSError):
            await self._writer.wait_closed()
