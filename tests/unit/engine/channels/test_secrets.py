import base64
import itertools
import json
import struct
import textwrap
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agent_magics.engine.channels.redaction import (
    REDACTED,
    EventRedactor,
    cut_partial,
    redact_text,
)
from agent_magics.protocol.events import (
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    TextDelta,
    ToolCallCompleted,
    TurnCompleted,
    TurnFailed,
)
from agent_magics.protocol.items import AssistantMessage
from agent_magics.text.secrets import encodings

KEY = "sk-canary-canary"


def printed(events):
    return "".join(fields["text"] for kind, fields in events if kind is ExecCommandOutputDelta)


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("", ""),
        ("a", ""),
        ("a s", "s"),
        ("sk", "sk"),
        (KEY[:-1], KEY[:-1]),
        ("ss", "s"),
        (f"{KEY}.", ""),
        (r"a \\u0073 k", r"\\u0073 k"),
        (r"s\u006b\u0", r"s\u006b\u0"),
        (r"s\u006b\u00%%", ""),
        ("\\" * 2500 + "s", "s"),
    ],
)
def test_the_beginning_of_a_secret_is_cut_off(text, begun):
    shown, held = cut_partial((KEY,), text)
    assert (shown + held, held) == (text, begun)


@given(
    before=st.binary(max_size=7),
    after=st.binary(max_size=7),
    secret=st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=12),
    encode=st.sampled_from([base64.b64encode, base64.urlsafe_b64encode, bytes.hex]),
)
def test_a_secret_that_is_encoded_with_what_stands_around_it_is_taken_out(
    before, after, secret, encode
):
    coded = encode(before + secret.encode() + after)
    text = coded if isinstance(coded, str) else coded.decode()
    cleaned = redact_text((secret,), f"x {text} y")
    assert REDACTED in cleaned
    # What is left is at most the neighbours, and a letter that is theirs as well at each side.
    assert len(cleaned) - len(REDACTED) <= 4 + 2 * (len(before) + len(after)) + 8


@pytest.mark.parametrize(
    "text",
    [
        *(KEY[::-1], KEY.encode().hex().upper(), quote("a/b=c?d&e#f+g h", safe="")),
        *(KEY.upper(), "\n".join(KEY), " ".join(KEY), "', '".join(KEY), f"{KEY[:5]}\n  {KEY[5:]}"),
    ],
)
def test_other_forms_of_a_secret_are_taken_out(text):
    assert redact_text((KEY, "a/b=c?d&e#f+g h"), f"a {text} b") == f"a {REDACTED} b"


@given(
    secret=st.text(st.characters(codec="ascii", categories=("L", "N")), min_size=12),
    between=st.sampled_from(["", " ", "', '", "\n"]),
)
def test_a_text_that_is_nothing_but_a_secret_in_one_of_its_forms_is_taken_out(secret, between):
    for text in (*encodings(secret), json.dumps(secret), between.join(secret)):
        assert REDACTED in redact_text((secret,), text)


@pytest.mark.parametrize(
    "secret", ["\\" * 12, " '\"" * 4, "\udcff" * 12], ids=["backslashes", "blanks", "no UTF-8"]
)
def test_a_secret_of_strange_characters_is_taken_out(secret):
    redactor = EventRedactor((secret,))
    shown = redactor.clean(TextDelta, {"text": f"a {secret} b\\"}) + redactor.clean(
        TurnCompleted, {}
    )
    assert "".join(fields.get("text", "") for _, fields in shown) == f"a {REDACTED} b\\"


@pytest.mark.parametrize("at", range(1, len(KEY)))
def test_a_secret_in_two_pieces_is_taken_out(at):
    redactor = EventRedactor((KEY,))
    pieces = [f"a {KEY[:at]}", f"{KEY[at:]} b"]
    events = [
        event
        for piece in pieces
        for event in redactor.clean(ExecCommandOutputDelta, {"call_id": "c", "text": piece})
    ]
    assert printed(events) == f"a {REDACTED} b"


@pytest.mark.parametrize("form", [form for form in encodings(KEY) if form != KEY])
def test_an_encoded_secret_in_two_pieces_is_taken_out(form):
    for at in range(1, len(form)):
        redactor = EventRedactor((KEY,))
        events = redactor.clean(TextDelta, {"text": f"a {form[:at]}"})
        events += redactor.clean(TextDelta, {"text": f"{form[at:]} b"})
        assert "".join(fields["text"] for _, fields in events) == f"a {REDACTED} b"


FORMS = {
    "as it is": KEY,
    "a list": str(list(KEY)),
    "lines": "\n".join(KEY),
    "spaces and lines": " \n ".join(KEY),
    "JSON": "".join(f"\\u{ord(each):04x}" for each in KEY),
    "JSON in JSON": "".join(f"\\\\u{ord(each):04X}" for each in KEY),
    "some escapes": "".join(f"\\{each}" if each in "-c" else each for each in KEY),
    "base64 in lines": "\n".join(textwrap.wrap(base64.b64encode(KEY.encode()).decode(), 5)),
    "bytes": KEY.encode().hex(" "),
}


@given(form=st.sampled_from(sorted(FORMS)), sizes=st.lists(st.integers(1, 40), min_size=1))
@example(form="a list", sizes=[1])
@example(form="JSON in JSON", sizes=[1])
def test_a_secret_in_any_pieces_and_form_is_taken_out(form, sizes):
    text, redactor, shown = f"a {FORMS[form]} b", EventRedactor((KEY,)), ""
    for size in itertools.cycle(sizes):
        for _, fields in redactor.clean(TextDelta, {"text": text[:size]}):
            shown += fields["text"]
        text = text[size:]
        if not text:
            break
    shown += "".join(fields.get("text", "") for _, fields in redactor.clean(TurnCompleted, {}))
    assert shown.startswith("a ") and shown.endswith(" b") and shown.count(REDACTED) == 1
    assert len(shown) <= len(f"a {REDACTED} b") + 4  # brackets and quotes of a list


@pytest.mark.parametrize(
    ("end", "fields"),
    [
        (ExecCommandEnd, {"call_id": "c", "session_id": ""}),
        (ToolCallCompleted, {"call_id": "c", "output": "x"}),
    ],
)
def test_what_only_looked_like_a_secret_comes_before_the_end(end, fields):
    redactor = EventRedactor((KEY,))
    piece = {"call_id": "c", "stream": "stderr", "text": "a sk-can"}
    first = redactor.clean(ExecCommandOutputDelta, piece)
    assert [each["text"] for _, each in first] == ["a "]
    other = redactor.clean(ExecCommandEnd, {"call_id": "d"})
    assert [kind for kind, _ in other] == [ExecCommandEnd]
    held, last = redactor.clean(end, fields)
    assert held == (ExecCommandOutputDelta, {**piece, "text": "sk-can"})
    assert last[0] is end
    assert [kind for kind, _ in redactor.clean(end, fields)] == [end]


@pytest.mark.parametrize(
    ("end", "fields"),
    [
        (ItemCompleted, {"item": AssistantMessage("It is s")}),
        (TurnCompleted, {}),
        (TurnFailed, {"error": "x"}),
    ],
)
def test_what_the_model_says_is_held_back_until_it_has_said_it(end, fields):
    redactor = EventRedactor((KEY,))
    assert redactor.clean(TextDelta, {"text": "It is s"}) == [(TextDelta, {"text": "It is "})]
    assert redactor.clean(ToolCallCompleted, {"call_id": "", "output": "x"})[0][0] is not TextDelta
    assert redactor.clean(end, fields)[0] == (TextDelta, {"text": "s"})


def test_two_streams_do_not_make_a_secret_together():
    redactor = EventRedactor((KEY,))
    one = {"call_id": "c", "stream": "stdout", "text": KEY[:5]}
    two = {"call_id": "c", "stream": "stderr", "text": f"{KEY[5:]}."}
    assert redactor.clean(ExecCommandOutputDelta, one) == []
    assert printed(redactor.clean(ExecCommandOutputDelta, two)) == f"{KEY[5:]}."


@given(st.lists(st.text("abc", max_size=12), max_size=12), st.sampled_from(["abcabcab", "aaaa"]))
def test_any_pieces_show_what_the_whole_would(pieces, secret):
    redactor = EventRedactor((secret,))
    events = [
        event
        for piece in pieces
        for event in redactor.clean(ExecCommandOutputDelta, {"call_id": "c", "text": piece})
    ]
    events += redactor.clean(ExecCommandEnd, {"call_id": "c"})
    assert printed(events) == redact_text((secret,), "".join(pieces))


@given(
    st.text(st.characters(codec="utf-8", min_codepoint=32), min_size=4, max_size=20),
    st.lists(st.sampled_from(["plain", "json", "ascii", "coded", "twice"]), min_size=1),
)
@example("000\\", ["json"])
def test_a_secret_is_seen_through_the_escapes_of_json(secret, ways):
    def written(at, character):
        way = ways[at % len(ways)]
        inside = json.dumps(character, ensure_ascii=way != "json")[1:-1]
        coded = "".join(f"\\u{unit:04X}" for unit in struct.unpack(*_units(character)))
        return {"plain": character, "coded": coded, "twice": json.dumps(inside)[1:-1]}.get(
            way, inside
        )

    text = "".join(written(at, character) for at, character in enumerate(secret))
    assert redact_text((secret,), f"{{{text}}}") == f"{{{REDACTED}}}"


def _units(character):
    data = character.encode("utf-16-be")
    return f">{len(data) // 2}H", data
