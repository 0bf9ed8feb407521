"""What a server writes, cut anywhere, mixed with anything: the messages are the same."""

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.exec.servers import LogRing
from agent_magics.mcp.transports.incoming import Incoming

LINES = st.one_of(
    st.integers(0, 5).map(
        lambda n: json.dumps({"jsonrpc": "2.0", "method": "m", "params": {"n": n}})
    ),
    st.text(max_size=20).filter(lambda text: "\n" not in text),
    st.just('{"jsonrpc": "2.0"'),
    st.just("{}"),
    st.just("[]"),
    st.just('{"jsonrpc": "2.0", "id": 7, "result": {}}'),
)


def received(data: bytes, cuts: list[int]) -> tuple[list[dict], int]:
    """Feed `data` in pieces; return the messages and how many lines were none."""

    async def main() -> tuple[list[dict], int]:
        incoming = Incoming(LogRing(str), set(), lambda: None)
        begin = 0
        for cut in [*sorted(cut for cut in cuts if cut < len(data)), len(data)]:
            incoming.data_received(data[begin:cut])
            begin = cut
        incoming.connection_lost(None)
        messages = [each.message.model_dump(exclude_unset=True) async for each in incoming]
        return messages, incoming.noise

    return asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(st.lists(LINES, max_size=100), st.lists(st.integers(0, 2000), max_size=30), st.booleans())
def test_cuts_change_nothing(lines, cuts, ends):
    text = "\n".join(lines) + ("\n" if ends else "")
    data = text.encode("utf-8", "replace")
    whole = received(data, [])
    assert received(data, cuts) == whole
    expected = [line for line in lines if '"method"' in line]
    assert [json.dumps(each) for each in whole[0]] == expected


def test_every_byte_alone():
    data = b'noise\n{"jsonrpc":"2.0","method":"m"}\n\n'
    assert received(data, list(range(len(data)))) == (
        [{"jsonrpc": "2.0", "method": "m"}],
        1,
    )
