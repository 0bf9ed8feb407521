"""What must not stand in a recording (paths, keys, ids of sessions), and how it comes back."""

import asyncio
import base64
import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.models.access import ServerAccess
from agent_magics.models.error_redaction import (
    SHORTEST_KEY,
    keys_in_address,
    shown_address,
    without_keys,
)
from agent_magics.models.recordings.redaction import (
    PLACEHOLDERS,
    Hider,
    SessionNames,
    personal_paths,
    show_paths,
)
from agent_magics.protocol.errors import FatalError
from agent_magics.protocol.items import ToolCallOutput, UserMessage

PATHS = (("/home/ann/project", "cwd"), ("/home/ann", "home"), ("/tmp", "tmp"))
PLACES = {name: path for path, name in PATHS}
KEY = "key-of-ann-0815"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/home/ann/project/a.py", "{cwd}/a.py"),
        ("in /home/ann.", "in {home}."),
        ('{"p":"/home/ann/project"}', '{"p":"{cwd}"}'),
        ("/home/anna /home/ann-2 /home/ann.bak", "/home/anna /home/ann-2 /home/ann.bak"),
        ("/home/x/tmp/y -I/tmp/y", "/home/x/tmp/y -I/tmp/y"),
        ("gcc -I/home/ann/project/include -L/home/ann", "gcc -I{cwd}/include -L{home}"),
        ("\x1b[31m/home/ann/a.c\x1b[0m", "\x1b[31m{home}/a.c\x1b[0m"),
        ("${ROOT}/home/ann D/home/ann -/home/ann", "${ROOT}{home} D{home} -{home}"),
        ("/mnt/home/ann/x file:///home/ann/x", "/mnt{home}/x file://{home}/x"),
        ("/tmp/tmp", "{tmp}/tmp"),
        ("/tmp/tmp/tmp", "{tmp}/tmp/tmp"),
        ("f'{cwd}/a'", "f'{literal:cwd}/a'"),
        ("{literal:home}", "{literal:literal:home}"),
        ("{other} {{cwd}}", "{other} {{literal:cwd}}"),
        ("{/tmp}", "{{tmp}}"),
    ],
)
def test_paths_are_hidden_and_come_back(text, hidden):
    assert Hider(PATHS)(text) == hidden
    assert show_paths(hidden, PLACES) == text


BIT = st.sampled_from(
    [
        *(path for path, _ in PATHS),
        *PLACEHOLDERS,
        "{",
        "}",
        "literal:",
        "/",
        "x",
        " ",
        "{cwd}",
        "\\n",
    ]
)
BITS = st.lists(BIT, max_size=10).map("".join)


@given(BITS)
def test_hiding_is_exactly_undone(text):
    assert show_paths(Hider(PATHS)(text), PLACES) == text


@given(st.text() | BITS, st.data())
def test_a_text_in_pieces_is_cleaned_like_the_whole(text, data):
    text += data.draw(st.sampled_from(["", KEY, "/home/ann/project/a", "{home}"])) + " "
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    places = zip([0, *cuts], [*cuts, len(text)], strict=True)
    pieces = [text[first:last] for first, last in places]
    hider = Hider(PATHS, [KEY])
    cleaned = hider.in_pieces(pieces)
    assert "".join(cleaned) == hider(text)
    assert len(cleaned) == len(pieces)


def test_what_is_not_personal_stays_in_its_piece():
    pieces = ["See /ho", "me/an", "n/pro", "ject/a", ".py", " and", " go on"]
    assert Hider(PATHS).in_pieces(pieces) == ["See {cwd}", "", "", "/a", ".py", " and", " go on"]


def test_unknown_places_stay_as_they_are():
    assert show_paths("{home} {cwd}", {"cwd": "/w"}) == "{home} /w"


def test_this_machine_is_hidden(tmp_path, monkeypatch):
    home = tmp_path / "hôme"
    work = home / "project"
    work.mkdir(parents=True)
    link = tmp_path / "link"
    link.symlink_to(work)
    monkeypatch.setenv("HOME", str(home))
    paths = personal_paths(link)
    assert Hider(paths)(f"{link}/a {work}/a {home}/b") == "{cwd}/a {cwd}/a {home}/b"
    assert Hider(paths)(f"{work.as_uri()}/a?in={quote(str(work), safe='')}%2Fa") == (
        "file://{cwd}/a?in={cwd}%2Fa"
    )
    escaped = json.dumps({"p": f"{work}/a"})
    assert Hider(paths)(escaped) == '{"p": "{cwd}/a"}'


# -- keys ------------------------------------------------------------------------------------------

SHAPES = [
    "sk-proj-" + "a1B2" * 10,
    "sk-ant-api03-" + "a1B2" * 8,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2_" * 6,
    "glpat-" + "a1B2" * 5,
    "xoxb-123456789012-abcdef",
    "AKIA" + "ABCD1234" * 2,
    "AIza" + "a1B2x" * 7,
    "hf_" + "a1B2" * 9,
    "sk_live_" + "a1B2" * 6,
    "rk_test_" + "a1B2" * 6,
    *(begin + "a1B2" * 9 for begin in ("gsk_", "xai-", "csk-", "pplx-", "r8_", "npm_")),
    *(begin + "a1-_" * 9 for begin in ("nvapi-", "tvly-", "dckr_pat_", "glrt-", "ya29.")),
    "xapp-1-A0123-456-a1b2",
    "dapi" + "a1b2c3d4" * 4,
    "SG." + "a1_B-" * 4 + "." + "a1B2" * 8,
    "pypi-AgEIcHlwaS5vcmc" + "a1_B-" * 12,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl",
]


@pytest.mark.parametrize("key", [KEY, *SHAPES])
def test_keys_are_taken_out_for_good(key):
    hider = Hider(PATHS, [KEY])
    assert not hider.found_key
    assert hider(f"export KEY={key}\n") == "export KEY=[API key]\n"
    assert hider.found_key


CODED_KEYS = (KEY, "Az+/word==0815", 'Pa"ss\\wörd/0815')
CODINGS = (
    lambda key: base64.b64encode(f"ann:{key}".encode()).decode(),
    lambda key: base64.urlsafe_b64encode(f"{key}, and on".encode()).decode(),
    lambda key: key.encode().hex(),
    *(lambda key: quote(key, safe=""), quote_plus, str.upper, str),
)


@given(
    st.text(),
    st.sampled_from(CODED_KEYS),
    st.sampled_from(CODINGS),
    st.integers(0, 3),
    st.booleans(),
    st.data(),
)
def test_a_key_is_taken_out_in_every_encoding(before, key, coding, times, as_ascii, data):
    text = encoded(f"{before} {coding(key)} .", times, as_ascii)
    cut = data.draw(st.integers(0, len(text)))
    hider = Hider(PATHS, CODED_KEYS)
    pieces = hider.in_pieces([text[:cut], text[cut:]])
    assert hider.found_key
    assert "".join(pieces) == hider(text)
    assert coding(key) not in decoded("".join(pieces), times)


PRIVATE_KEY = (
    f"-----BEGIN {{}}PRIVATE KEY-----\n{'a+/1' * 16}\n{'b2' * 20}==\n-----END {{}}PRIVATE KEY-----"
)


@pytest.mark.parametrize("kind", ["", "RSA ", "OPENSSH "])
@pytest.mark.parametrize("times", [0, 1, 2])
def test_private_keys_are_taken_out_in_json_too(kind, times):
    text = encoded(PRIVATE_KEY.format(kind, kind), times, ascii_only=True)
    left = Hider(PATHS)(text)
    assert "a+/1" not in left and "b2b2" not in left
    assert left == text.partition("PRIVATE")[0] + "[API key]" + text[text.index("-----END") :]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "EMPTY",
            "ask-me-anything",
            "sk-short",
            "task-force",
            "hf_x",
            "sk_learn_pipelines_are_fun",
        ),
        *("npm_config_registry_of_a_person_who_publishes", "pk_of_the_table_of_customers"),
        "The line -----BEGIN PRIVATE KEY----- stands at the head of it, and the body below",
    ],
)
def test_words_that_are_no_keys_stay(text):
    assert Hider((), ["EMPTY", ""])(text) == text


@pytest.mark.parametrize(
    ("address", "keys", "shown"),
    [
        ("https://api.example.org/v1", (), "https://api.example.org/v1"),
        ("http://[::1]:8000/v1", (), "http://[::1]:8000/v1"),
        ("https://host/v1?api-version=2026", (), "https://host/v1?api-version=2026"),
        (
            "https://host/v1?Api-Key=abc&x=1&sig=d%2Fe",
            ("abc", "d/e", "d%2Fe"),
            "https://host/v1?x=1",
        ),
        ("https://ann:p%40ss@host/v1", ("p@ss", "p%40ss"), "https://host/v1"),
        ("https://ann:p@ss@host:1/v1", ("p@ss",), "https://host:1/v1"),
        ("https://sk-token@host/v1/@x", ("sk-token",), "https://host/v1/@x"),
    ],
)
def test_keys_in_an_address(address, keys, shown):
    assert set(keys_in_address(address)) == set(keys)
    assert shown_address(address) == shown


def test_json_is_cleaned_where_it_stands():
    spared = {"b": "/tmp"}
    value = {"a": ["/tmp/x", {"n": 1}], "/tmp": None, "s": spared}
    assert Hider(PATHS).in_json(value, {(id(spared), "b")}) == {
        "a": ["{tmp}/x", {"n": 1}],
        "{tmp}": None,
        "s": {"b": "/tmp"},
    }


# -- JSON within JSON, as calls have it ------------------------------------------------------------

BESIDE = st.sampled_from(" \n\t\r\b\f\0\x1b\"'=:\\")
HOME = '/home/änn "x"'


def encoded(text, times, ascii_only):
    for _ in range(times):
        text = json.dumps(text, ensure_ascii=ascii_only)
    return text


def decoded(text, times):
    for _ in range(times):
        text = json.loads(text)
    return text


@given(st.text(), BESIDE, st.sampled_from(SHAPES), BESIDE, st.integers(0, 3), st.booleans())
def test_a_key_goes_however_often_its_text_was_encoded(before, left, key, right, times, as_ascii):
    text = encoded(f"{before}{left}{key}{right}", times, as_ascii)
    clean = decoded(Hider(PATHS)(text), times)
    assert clean.endswith(f"{left}[API key]{right}")


BEFORE = BESIDE | st.sampled_from(["-I", "\x1b[31m", "D", "}", "-", ".", "_", "1", "/mnt", "é", ""])


@given(st.text(), BEFORE, st.text("/abc"), st.integers(0, 3), st.booleans())
def test_a_path_goes_whatever_is_before_it(before, left, inner, times, as_ascii):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", HOME)
        hider = Hider(personal_paths(Path("/srv/work")))
    text = encoded(f"{before}{left}{HOME}/{inner}", times, as_ascii)
    assert decoded(hider(text), times).endswith(f"{left}{{home}}/{inner}")


# -- sessions --------------------------------------------------------------------------------------


def output(text):
    return ToolCallOutput("c", text)


RUNS = "Session {} is running.\nWall time: 0.250 seconds\nOutput:\n(no output)"
LISTED = "Session {}: python3, running for 3.2 s"
OF_PYTHON = "[running as session {}, 0.25 s]"


def test_sessions_are_named_in_the_order_in_which_outputs_name_them():
    names, items = SessionNames(), [UserMessage("session 1111"), output(RUNS.format(40001))]
    assert names.of("a", items) == {"40001": "session1"}
    both = "\n".join(map(LISTED.format, (7313, 40001)))
    items += [output(both), output(f"text\n{OF_PYTHON.format(60002)}")]
    assert names.of("a", items) == {"40001": "session1", "7313": "session2", "60002": "session3"}
    assert names.of("b", items[2:]) == {
        "7313": "session1",
        "40001": "session2",
        "60002": "session3",
    }


@pytest.mark.parametrize(
    "text",
    [
        "Session 20240: 15 talks\nSession 20230: 9 talks",
        "L1: Session 20240 is running.",
        f"Exit code: 0\nOutput:\n{RUNS.format(20240)}",
        "There is no session 20240 in this conversation; no session was started.",
        "Session 20240 is not running any more: killed.",
    ],
)
def test_an_output_that_speaks_of_sessions_names_none(text):
    assert SessionNames().of("a", [output(text)]) == {}


def test_a_conversation_that_begins_anew_counts_anew():
    names = SessionNames()
    names.of("a", [output(RUNS.format(40001)), output("x")])
    assert names.of("a", [output(RUNS.format(50001))]) == {"50001": "session1"}


SENTENCE = "Cannot connect to http://a.example/v1: check the network, or OPENAI_BASE_URL (EMPTY)."
WORDS = sorted({word for word in re.findall(r"[A-Za-z]+", SENTENCE) if len(word) < SHORTEST_KEY})


@given(st.text(max_size=3) | st.sampled_from(WORDS))
def test_a_key_that_is_short_or_a_word_garbles_no_error(key):
    assert without_keys(SENTENCE, [key]) == SENTENCE


@given(st.text(alphabet="abcXYZ019-_", min_size=4, max_size=60).filter(lambda k: not k.isalpha()))
def test_other_keys_are_taken_out_of_what_a_server_says(key):
    said = without_keys(f"Incorrect API key provided: {key}.", [key, "a"])
    assert said == "Incorrect API key provided: [API key]."


def test_the_longer_of_two_keys_goes_first():
    assert without_keys("0123456789ab", ["01234567", "0123456789ab"]) == "[API key]"


ADDRESSES = ["https://host/v1?api_key={}", "https://host/v1?a=1&token={}#x"]


@pytest.mark.parametrize("address", ADDRESSES)  # a login takes the place of a key
def test_no_key_of_an_address_is_in_the_error_that_none_is_known(address, monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    access = ServerAccess(None, address.format("hunter2hunter2"))
    with pytest.raises(FatalError, match="No API key for") as error:
        asyncio.run(access.key())
    assert "hunter2" not in str(error.value)
