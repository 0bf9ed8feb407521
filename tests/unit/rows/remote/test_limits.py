"""What is learned of a server's limits: laws of the rates, the headers, and the file."""

import json
import math
import threading
from unittest.mock import Mock

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_magics.rows.remote import limits
from agent_magics.rows.remote.limits import (
    Knowledge,
    Report,
    SharedLimits,
    Stated,
    read_knowledge,
    reset_time,
    stated_limit,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("120ms", 0.12),
        ("2m59.56s", 179.56),
        ("1h", 3600.0),
        ("17", 17.0),
        ("soon", None),
        ("-3s", None),
        ("", None),
    ],
)
def test_durations_are_read(text, seconds):
    headers = {"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": text}
    assert reset_time(headers) == seconds


@given(st.text(max_size=20), st.text(max_size=20))
@example("0\x1f", "0\x1f")
def test_any_header_is_read_or_ignored(limit, rest):
    headers = {
        "x-ratelimit-limit-requests": limit,
        "x-ratelimit-remaining-requests": rest,
        "x-ratelimit-reset-requests": rest,
    }
    stated = stated_limit(headers, "requests")
    assert stated is None or 0 <= stated.remaining <= stated.limit
    wait = reset_time(headers)
    assert wait is None or wait >= 0


@given(st.binary(max_size=200))
def test_a_damaged_file_is_as_none(data):
    known = read_knowledge(data)
    assert known == Knowledge() or known.at >= 0


def test_nothing_is_granted_during_a_pause_and_all_where_no_limit_is_known():
    known = Knowledge()
    assert known.update(Report(want=5), 1000.0).requests == math.inf
    assert known.update(Report(want=5, refused=1, pause=3.0), 1001.0).pause == 3.0
    assert known.update(Report(want=5), 1002.0).requests == 0
    assert known.update(Report(want=5), 1004.5).pause == 0


JUMPS = st.sampled_from([0.5, 30.0, 3e7, -30.0, -3e7])
AMOUNTS = st.floats(0, 1e12)


@given(st.lists(JUMPS, min_size=1, max_size=20), AMOUNTS)
def test_no_clock_and_no_server_lets_anybody_wait_longer_than_two_minutes(jumps, pause):
    known, now = Knowledge(), 1.7e9
    for jump in jumps:
        now += jump
        known.update(Report(want=5, refused=1, pause=pause), now)
        grant = known.update(Report(want=5), now + 1)
        assert grant.pause <= 120
        assert known.update(Report(want=5), now + 121).pause == 0


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_after_a_jump_of_the_clock_the_next_headers_hold(jump):
    known, now = Knowledge(), 1.7e9
    known.update(Report(requests=Stated(60, 10), tokens=Stated(6000, 900)), now)
    known.update(Report(requests=Stated(60, 4)), now + jump)
    granted = [known.update(Report(want=50), now + jump + s).requests for s in range(10)]
    assert 4 <= sum(granted) <= 4 + 10


@pytest.mark.parametrize("jump", [3600.0, -3600.0])
def test_a_clock_that_is_set_forgets_no_limit(tmp_path, monkeypatch, jump):
    shared, told = SharedLimits(tmp_path / "x.json"), limits.time.time
    shared.exchange(Report(requests=Stated(60, 2)))
    monkeypatch.setattr(limits.time, "time", lambda: told() + jump)
    assert 2 <= shared.exchange(Report(want=50)).requests < 50


@given(*[AMOUNTS] * 3)
def test_no_file_lets_anybody_wait_longer_than_two_minutes(at, since, paused_until):
    known = read_knowledge(
        json.dumps({"at": at, "since": since, "paused_until": paused_until}).encode()
    )
    assert known.update(Report(want=5), at).pause <= 120


@given(st.lists(st.tuples(st.floats(0.01, 5), st.integers(0, 50)), min_size=1, max_size=40))
def test_no_more_is_granted_than_the_server_states(steps):
    known, now, granted = Knowledge(), 1000.0, 0.0
    known.update(Report(requests=Stated(60, 10)), now)
    for seconds, want in steps:
        now += seconds
        granted += known.update(Report(want=want), now).requests
    assert granted <= 10 + (now - 1000.0) + 1e-6  # 60 a minute is one a second


@pytest.mark.parametrize(
    "stated",
    [{"tokens": Stated(30_000, 2_000)}, {"requests": Stated(0.5, 0.5)}],
    ids=["tokens", "requests"],
)
def test_a_row_that_takes_more_than_a_minute_has_is_sent_when_that_is_whole(stated):
    known, each = Knowledge(), {"want": 9, "tokens_each": 33_000.0}
    granted = [known.update(Report(**each, **stated), 1000.0).requests]
    granted += [known.update(Report(**each), 1000.0 + second).requests for second in range(1, 301)]
    assert granted[0] == 0
    assert set(granted) == {0, 1} and 2 <= sum(granted) <= 6


def test_kernels_together_are_granted_what_the_server_states(tmp_path):
    file, granted = tmp_path / "limits" / "x.json", []
    SharedLimits(file).exchange(Report(requests=Stated(1, 100)))

    def take():
        limits = SharedLimits(file)
        granted.extend(limits.exchange(Report(want=3)).requests for _ in range(20))

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(granted) <= 2  # one, and at most one more for the time that has passed


@pytest.mark.parametrize("fault", ["no folder", "full disk"])
def test_a_file_that_cannot_be_used_costs_no_rows(tmp_path, monkeypatch, caplog, fault):
    file = tmp_path / "limits" / "x.json"
    if fault == "no folder":
        file.parent.write_text("", encoding="utf-8")
    else:
        monkeypatch.setattr(limits.os, "pwrite", Mock(side_effect=OSError(28, "No space left")))
    alone = SharedLimits(file)
    assert alone.exchange(Report(want=5, requests=Stated(0.6, 3))).requests == 3
    assert alone.exchange(Report(want=5)).requests <= 1
    assert len(caplog.messages) == 1 and "shares no limits" in caplog.text
    if fault == "full disk":
        monkeypatch.undo()
        assert SharedLimits(file).exchange(Report(want=5)).requests == math.inf
