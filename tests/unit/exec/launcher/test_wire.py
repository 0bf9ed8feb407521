"""What one end sends, the other receives: whole, in order, with its descriptors."""

import os
import socket
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.exec.launcher.wire import (
    Confinement,
    Ended,
    Failed,
    SpawnRequest,
    Started,
    decode_reply,
    decode_request,
    encode_reply,
    encode_request,
    receive_message,
    send_message,
)

# Undecodable bytes of file names arrive as lone surrogates.
words = st.text(st.characters(codec="utf-8") | st.characters(categories=["Cs"]), max_size=30)
paths = st.lists(words, max_size=3).map(tuple)
confinements = st.builds(
    Confinement,
    tier=st.sampled_from([1, 2]),
    writable=paths,
    protected=paths,
    hidden=paths,
    network=st.booleans(),
)
requests = st.builds(
    SpawnRequest,
    argv=st.lists(words, min_size=1, max_size=5).map(tuple),
    cwd=words,
    env=st.dictionaries(words, words, max_size=5),
    tty=st.booleans(),
    confinement=st.none() | confinements,
    limits=st.dictionaries(st.just("RLIMIT_FSIZE"), st.integers(0, 1 << 62)),
    grace=st.floats(0, 10),
)
replies = st.one_of(
    st.builds(Started, pid=st.integers(1, 1 << 22)),
    st.builds(Failed, stage=words, errno=st.integers(0, 133), message=words),
    st.builds(Ended, status=st.integers(-64, 255), leftovers=st.integers(0), refused=paths),
)


@given(requests)
def test_a_request_survives_its_encoding(request):
    assert decode_request(encode_request(request)) == request


@given(replies)
def test_a_reply_survives_its_encoding(reply):
    assert decode_reply(encode_reply(reply)) == reply


@given(st.lists(st.binary(min_size=1, max_size=3000), max_size=8))
def test_messages_keep_their_bounds(messages):
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for message in messages:
            send_message(ours, message)
        ours.close()
        received = [receive_message(theirs)[0] for _ in messages]
        assert received == messages
        assert receive_message(theirs) == (b"", [])


def test_a_message_larger_than_every_buffer_arrives_with_its_descriptors():
    ours, theirs = socket.socketpair()
    reader, writer = os.pipe()
    message = os.urandom(1 << 20) * 3
    with ours, theirs:
        sender = threading.Thread(target=send_message, args=(ours, message, [writer]))
        sender.start()
        data, fds = receive_message(theirs)
        sender.join()
    assert data == message
    (received,) = fds
    assert not os.get_inheritable(received)
    os.write(received, b"through")
    assert os.read(reader, 10) == b"through"
    for fd in (reader, writer, received):
        os.close(fd)


def test_a_message_may_come_in_pieces():
    ours, theirs = socket.socketpair()
    with ours, theirs:

        def dribble():
            for byte in b"\0\0\0\5hello":
                ours.send(bytes([byte]))

        sender = threading.Thread(target=dribble)
        sender.start()
        assert receive_message(theirs) == (b"hello", [])
        sender.join()


def test_the_end_within_a_message_is_an_error():
    ours, theirs = socket.socketpair()
    with theirs:
        ours.send(b"\0\0\0\5hel")
        ours.close()
        with pytest.raises(OSError, match="in the middle"):
            receive_message(theirs)


def test_sending_to_nobody_is_an_error():
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, pytest.raises(BrokenPipeError):
        send_message(ours, b"hello")
