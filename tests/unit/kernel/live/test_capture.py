"""What live code prints is captured until it ends; its streams go on with what is there then."""

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from IPython.core.payload import PayloadManager

from agent_magics.dispatch.context import ToolContext, TurnContext
from agent_magics.kernel.live.capture import Capture, captured
from agent_magics.kernel.live.frames import table_of
from agent_magics.protocol.config import RunConfig
from agent_magics.render.blocks.frames import TABLE

NAMES = pytest.mark.parametrize("name", ["stdout", "stderr"])


def make_context(emit: Callable[..., None]) -> ToolContext:
    turn = TurnContext(
        session_id="s",
        turn_id="t",
        agent="a",
        config=RunConfig(cwd=Path.cwd()),
        env={},
        emit=emit,
        ask=None,
        call=None,
        validate_path=lambda path, _mode: Path(path),
        messages=tuple,
        main_thread=None,
    )
    return ToolContext(turn, "call-1", "python")


CONTEXT = make_context(lambda _kind, **_fields: None)


@contextlib.contextmanager
def live() -> Iterator[Any]:
    trap = SimpleNamespace(hook=None)
    shell = SimpleNamespace(
        display_pub=None,
        display_trap=trap,
        display_formatter=DisplayFormatter(),
        hooks=SimpleNamespace(show_in_pager=None),
        payload_manager=PayloadManager(),
    )
    with captured(shell, "", CONTEXT) as capture:
        yield capture


def kept(name: str) -> Any:
    """Return the stream of live code that has ended."""
    with live():
        return getattr(sys, name)


class Tee(io.StringIO):
    """Writes to another stream too, as wrappers of `sys.stdout` do."""

    def __init__(self, other: Any) -> None:
        super().__init__()
        self.other = other

    def write(self, text: str) -> int:
        self.other.write(text)
        return super().write(text)


@NAMES
def test_a_stream_that_was_kept_writes_where_a_new_one_would(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = kept(name)
    for place in (io.StringIO(), io.StringIO()):
        monkeypatch.setattr(sys, name, place)
        assert stream.write("line\n") == 5
        assert place.getvalue() == "line\n"
    with live() as later:
        stream.write("in a later run")
    assert later.text == "in a later run" and place.getvalue() == "line\n"


@NAMES
def test_a_thread_that_goes_on_is_heard_before_and_after(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = io.StringIO()
    monkeypatch.setattr(sys, name, place)
    with live() as capture:
        stream = getattr(sys, name)
        for text in ("one ", "two "):
            thread = Thread(target=stream.write, args=(text,))
            thread.start()
            thread.join()
    thread = Thread(target=stream.write, args=("three",))
    thread.start()
    thread.join()
    assert (capture.text, place.getvalue()) == ("one two ", "three")


@NAMES
def test_streams_that_write_to_each_other_come_to_an_end(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = io.StringIO()
    monkeypatch.setattr(sys, name, place)
    first, second = kept(name), kept(name)
    for present in (first, second, Tee(first), Tee(second)):
        monkeypatch.setattr(sys, name, present)
        third = kept(name)
        third.write("a")
        first.write("b")
        assert "a" in place.getvalue() and place.getvalue().endswith("b")
        place.truncate(place.seek(0))
    tee = Tee(None)
    monkeypatch.setattr(sys, name, tee)
    tee.other = kept(name)
    print("a ring", file=tee)


@NAMES
def test_who_looks_at_it_sees_no_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, io.StringIO())
    with live():
        stream = getattr(sys, name)
        stream.close()
        before = _looks(stream)
    assert _looks(stream) == before
    stream.close()
    assert not getattr(sys, name).closed
    monkeypatch.setattr(sys, name, None)
    stream.write("nowhere")
    stream.flush()


def _looks(stream: Any) -> tuple[Any, ...]:
    with pytest.raises(io.UnsupportedOperation):
        stream.fileno()
    return stream.isatty(), hasattr(stream, "buffer"), stream.writable(), stream.closed


@NAMES
def test_what_is_closed_now_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, place = kept(name), io.StringIO()
    place.close()
    monkeypatch.setattr(sys, name, place)
    with pytest.raises(ValueError, match="closed"):
        stream.write("line")


def test_only_a_table_that_was_read_here_is_one():
    shown = []
    table = table_of(pd.DataFrame({"a": [1, 2]}))
    capture = Capture(make_context(lambda kind, **fields: shown.append(fields)))
    for forged in (dict(table), {**table, "rows": [[10**5000]]}, {**table, "total": True}, [], 7):
        capture.display({TABLE: forged, "text/plain": "x"})
    assert not any("data" in fields for fields in shown)
    capture.display({TABLE: table, "text/plain": "x"})
    assert [fields["data"][TABLE] for fields in shown if "data" in fields] == [dict(table)]
