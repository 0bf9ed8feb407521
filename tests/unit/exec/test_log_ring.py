"""What is kept of a server's log, what is counted, and what is taken out."""

from hypothesis import given
from hypothesis import strategies as st

from agent_magics.exec.servers import MOST_KEPT, LogRing
from agent_magics.mcp.server_secrets import Redactor
from agent_magics.protocol.mcp import McpServerConfig


def test_all_of_a_little():
    log = LogRing(str)
    log.feed(b"one\ntw")
    log.feed(b"o\n")
    log.note("ours")
    assert log.text() == "one\ntwo\n[ours]\n"
    assert log.last_words() == "; it said: two"


def test_a_note_begins_a_line():
    log = LogRing(str)
    log.feed(b"no end")
    log.note("of two\nlines")
    assert log.text() == "no end\n[of two lines]\n"


@given(st.lists(st.integers(1, 3 * MOST_KEPT // 2), min_size=1, max_size=6))
def test_what_is_dropped_is_counted(sizes):
    log = LogRing(str)
    for size in sizes:
        log.feed(b"x" * (size - 1) + b"\n")
    kept = min(sum(sizes), MOST_KEPT)
    assert log.dropped == sum(sizes) - kept


def test_a_secret_that_was_cut_is_not_shown_in_half():
    log = LogRing(lambda text: text.replace("sesame-4711", "[redacted]"))
    log.feed(b"sesame-4711\n" + b"x" * (MOST_KEPT - 7) + b"\nend\n")
    assert "4711" not in log.text()
    assert log.text().endswith("end\n")


def test_a_secret_that_was_cut_is_not_shown_in_half_where_no_line_ends():
    log = LogRing(lambda text: text.replace("sesame-4711", "[redacted]"))
    log.feed(b"sesame-4711" + b"x" * (MOST_KEPT - 4))
    assert log.text() == f"[{MOST_KEPT + 7:,} bytes before this were dropped]\n"
    assert log.last_words() == ""


def test_the_last_words_are_never_ours():
    log = LogRing(str)
    log.feed(b"starting\n[ERROR] DATABASE_URL is not set\n\0[forged]\n")
    log.note("it ended")
    assert log.text().endswith("not set\n[forged]\n[it ended]\n")
    assert log.last_words() == "; it said: [forged]"


def redactor(**fields):
    environment = {"LENT_TOKEN": "lent-secret", "OPENAI_API_KEY": "other", "HOME": "/home/ada"}
    return Redactor(McpServerConfig("s", **fields), environment)


def test_what_a_server_was_given_is_taken_out():
    redact = redactor(
        env={"API_KEY": "k3y!", "MODE": "production", "DEBUG": "1", "ROOT": "/data/work"},
        env_vars=("LENT_TOKEN", "HOME"),
        headers={"Authorization": "Bearer head-4711", "Accept": "text/x-odd"},
        url="https://me:pass-word@example.org/mcp?api_key=query-secret",
    )
    said = "k3y! production 1 /data/work lent-secret /home/ada head-4711 pass-word query-secret"
    assert redact(said) == (
        "[redacted] [redacted] 1 /data/work [redacted] /home/ada [redacted] [redacted] [redacted]"
    )
    assert set(redact.secrets) == {
        "k3y!",
        "lent-secret",
        "head-4711",
        "pass-word",
        "query-secret",
    }


def test_a_key_of_several_lines():
    redact = redactor(env={"PRIVATE_KEY": "-----BEGIN-----\nabcdef\n-----END-----"})
    assert redact("one abcdef two") == "one [redacted] two"


def test_the_longer_secret_goes_first():
    redact = redactor(env={"A_KEY": "secret", "B_KEY": "secret-and-more"})
    assert redact("secret-and-more") == "[redacted]"
