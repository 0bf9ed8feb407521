"""Runs in a Dask worker: reads the rows of a partition, whose prompts stay there to be asked."""

from typing import NamedTuple

from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import Content
from agent_magics.rows.engines.worker import session_at
from agent_magics.rows.prompts import Prompt, asked_row, digest_of
from agent_magics.rows.tables.sources import open_source

KEY_BYTES = 16
NO_SEAT = "the worker that holds it has not connected to the kernel"


class ReadPart(NamedTuple):
    """A partition that a worker has read: digests of its rows, and nothing else of them.

    Attributes:
        seat: the number of the worker's seat.
        keys: the key of each row's question, one after the other; zeros of a row with an error.
        errors: the errors of the rows about which nothing can be asked, by the row's number.
    """

    seat: int
    keys: bytes
    errors: dict[int, str]


def read_part(part: object, number: int, place: str, how: tuple[Prompt, bytes, int]) -> ReadPart:
    """Fill the prompts of a partition's rows, and leave them with this worker's part of the map.

    Args:
        part: a pandas table.
        number: the partition's.
        place: where the coordinator of the map is.
        how: prompt, the map's digest and the longest prompt; see `asked_row`.

    Raises:
        FatalError: this worker does not take part in the map.
    """
    from distributed import secede  # noqa: PLC0415 - an extra; here it is running

    session = session_at(place, 0)
    if session is None:
        secede()  # the seat may be waiting for this thread
        session = session_at(place)
    if session is None:
        raise FatalError(NO_SEAT)
    prompt, terms, most = how
    digest = digest_of(terms)
    keys, contents, errors = bytearray(), list[Content](), dict[int, str]()
    for batch in open_source(part).batches(prompt.names):
        for row in batch:
            position, key, content, error, _ = asked_row(len(contents), row, prompt, digest, most)
            keys += key or bytes(KEY_BYTES)
            contents.append(content)
            if error:
                errors[position] = error
    session.parts[number] = contents
    return ReadPart(session.number, bytes(keys), errors)
