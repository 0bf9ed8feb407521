"""Only what fits a server's form is sent, whoever fills it in and however."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.mcp.elicitation.answers import accepted, fields_of, sent_content, unusable
from agent_magics.mcp.elicitation.forms import (
    MOST_FIELDS,
    MOST_OPTIONS,
    UnusableForm,
    check_content,
    check_field,
    form_fields,
    host_of,
    read_typed_value,
)
from agent_magics.protocol.events import ElicitationRequested
from agent_magics.protocol.mcp import Elicitation
from agent_magics.protocol.ops import Answer


def field_of(schema, *, required=False):
    [field] = form_fields(
        {"type": "object", "properties": {"x": schema}, "required": ["x"] if required else []}
    )
    return field


TEXT = {"type": "string"}
ENUM = {"type": "string", "enum": ["a", "b"]}
MANY = {"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}


@pytest.mark.parametrize(
    ("schema", "fitting", "unfit"),
    [
        (TEXT, ["x", " ", "é"], [1, True, ["x"]]),
        ({**TEXT, "minLength": 2, "maxLength": 3}, ["ab", "abc"], ["a", "abcd"]),
        ({**TEXT, "format": "email"}, ["a@b", "a.b+c@d.org"], ["a", "a@", "a b@c", "a@b@c"]),
        ({**TEXT, "format": "uri"}, ["https://a.b/c", "mailto:a"], ["a", "https://", "a b:c"]),
        ({**TEXT, "format": "date"}, ["2026-02-28"], ["2026-02-30", "28.2.2026", "20260228"]),
        (
            {**TEXT, "format": "date-time"},
            ["2026-02-28T10:00:00Z", "2026-02-28T10:00:00+01:00", "2026-02-28t10:00:00.5z"],
            ["2026-02-28", "2026-02-28T10:00:00", "10:00"],
        ),
        ({**TEXT, "pattern": "(a+)+$"}, ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!"], []),
        ({"type": "number"}, [1, 1.5, -2], ["1", True, float("nan"), float("inf"), [1]]),
        ({"type": "number", "minimum": 1, "maximum": 2}, [1, 1.5, 2], [0.9, 2.1]),
        ({"type": "integer", "minimum": 0}, [0, 3, 3.0, 2**70], [1.5, -1, "1", 10**4000]),
        ({"type": "integer", "minimum": 10**400, "default": 10**310}, [1], [-(10**400)]),
        ({"type": "number", "default": -(10**5000)}, [1.5], [10**310, -(10**310)]),
        ({"type": "boolean"}, [True, False], ["yes", 1, 0]),
        (ENUM, ["a", "b"], ["c", 1, ["a"], ""]),
        ({"type": "string", "oneOf": [{"const": "a", "title": "A"}]}, ["a"], ["A"]),
        (MANY, [["a"], ["a", "c"]], [["d"], "a", {"a": 1}, [1]]),
        ({**MANY, "minItems": 2, "maxItems": 2}, [["a", "b"]], [["a"], ["a", "b", "c"]]),
    ],
)
def test_each_kind_takes_what_fits_it(schema, fitting, unfit):
    field = field_of(schema)
    for value in fitting:
        assert check_field(field, value) == (value, "")
    for value in unfit:
        assert check_field(field, value)[1], value


NULL = {"type": "null"}


@pytest.mark.parametrize(
    ("schema", "plain"),
    [
        ({"anyOf": [{**TEXT, "maxLength": 3}, NULL], "default": None}, {**TEXT, "maxLength": 3}),
        (
            {"anyOf": [NULL, ENUM], "title": "T", "default": "b"},
            {**ENUM, "title": "T", "default": "b"},
        ),
        ({"oneOf": [{"type": "integer", "title": "N"}, NULL]}, {"type": "integer", "title": "N"}),
        ({"anyOf": [MANY]}, MANY),
        ({"type": ["number", "null"], "minimum": 1}, {"type": "number", "minimum": 1}),
        ({"type": ["null", "boolean"]}, {"type": "boolean"}),
        ({"type": ["string", "null"], "enum": ["a", "b", None]}, ENUM),
        (
            {"oneOf": [{"const": "a", "title": "A"}, NULL]},
            {"oneOf": [{"const": "a", "title": "A"}]},
        ),
    ],
)
def test_a_field_that_may_be_null_is_the_field_without_it(schema, plain):
    """So the Python SDK 1 writes an optional field."""
    assert field_of(schema) == field_of(plain)


def test_nothing_is_required_where_that_is_null():
    (field,) = form_fields({"properties": {"x": TEXT}, "required": None})
    assert not field.required


def test_whole_numbers_are_sent_as_such():
    value, _ = check_field(field_of({"type": "integer"}), 3.0)
    assert (value, type(value)) == (3, int)


def test_choices_are_sent_once_and_in_the_servers_order():
    assert check_field(field_of(MANY), ["c", "a", "c"]) == (["a", "c"], "")


@pytest.mark.parametrize(
    ("schema", "labels"),
    [
        (ENUM, ["a", "b"]),
        ({**ENUM, "enumNames": ["First", "Second"]}, ["First", "Second"]),
        ({**ENUM, "enumNames": ["First"]}, ["a", "b"]),
        ({"oneOf": [{"const": "a", "title": "One"}, {"const": "b"}]}, ["One", "b"]),
        (
            {"type": "array", "items": {"anyOf": [{"const": "a", "title": "One"}, {"const": "b"}]}},
            ["One", "b"],
        ),
    ],
)
def test_choices_have_labels_in_all_ways_that_the_protocol_has_known(schema, labels):
    assert [label for _, label in field_of(schema).options] == labels


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        (TEXT, ""),
        ({**TEXT, "format": "date"}, "such as 2026-01-31"),
        ({**TEXT, "minLength": 1, "maxLength": 5}, "1 to 5 characters"),
        ({"type": "integer", "minimum": 3}, "at least 3, a whole number"),
        ({"type": "number", "maximum": 0.5}, "at most 0.5"),
        ({**MANY, "maxItems": 2}, "at most 2 of them"),
    ],
)
def test_a_field_says_what_it_takes(schema, hint):
    assert field_of(schema).hint == hint


def test_a_default_that_does_not_fit_is_none():
    assert field_of({"type": "integer", "default": "many"}).default is None
    assert field_of({**MANY, "default": ["b"]}).default == ["b"]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"properties": []},
        {"properties": {"x": 1}},
        {"properties": {"x": {"type": "object", "properties": {}}}},
        {"properties": {"x": {"type": "array", "items": TEXT}}},
        {"properties": {"x": {"type": "string", "enum": []}}},
        {"properties": {"x": {"type": "string", "enum": [1, 2]}}},
        {"properties": {"x": {"type": ["string", "integer", "null"]}}},
        {"properties": {"x": {"anyOf": [TEXT, {"type": "integer"}, {"type": "null"}]}}},
        {"properties": {"x": {"anyOf": [{"type": "null"}]}}},
        {"properties": {"x": TEXT}, "required": ["y"]},
        {"properties": {"x": TEXT}, "required": 5},
        {"properties": {str(number): TEXT for number in range(MOST_FIELDS + 1)}},
        {"properties": {"x": {**TEXT, "enum": list(map(str, range(MOST_OPTIONS + 1)))}}},
    ],
)
def test_what_is_no_form_of_the_protocol_is_not_shown(schema):
    with pytest.raises(UnusableForm):
        form_fields(schema)


def test_content_is_checked_as_a_whole():
    fields = form_fields({"properties": {"a": TEXT, "b": ENUM, "c": TEXT}, "required": ["a", "b"]})
    assert check_content(fields, {"a": "x", "b": "a", "c": ""}) == ({"a": "x", "b": "a"}, {})
    fitting, problems = check_content(fields, {"a": "", "b": "z", "d": 1})
    assert fitting == {}
    assert problems == {
        "a": "this is required",
        "b": "this is not one of the choices",
        "d": "there is no such field",
    }


@pytest.mark.parametrize(
    ("schema", "typed", "value"),
    [
        (TEXT, " some words ", "some words"),
        ({"type": "integer"}, "12345678901234567890", 12345678901234567890),
        ({"type": "number"}, "1.5", 1.5),
        ({"type": "number"}, "a lot", "a lot"),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "off", False),
        ({"type": "boolean"}, "perhaps", "perhaps"),
        (ENUM, "2", "b"),
        (ENUM, "a", "a"),
        ({**ENUM, "enumNames": ["One", "Two"]}, "Two", "b"),
        ({**ENUM, "enum": ["2", "1"]}, "1", "1"),
        (ENUM, "9", "9"),
        (MANY, "1, c", ["a", "c"]),
        (MANY, " , ", []),
    ],
)
def test_what_is_typed_is_read_by_its_field(schema, typed, value):
    read = read_typed_value(field_of(schema), typed)
    assert (read, type(read)) == (value, type(value))


# -- any schema, any content -----------------------------------------------------------------------

json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
kinds = st.sampled_from(["string", "number", "integer", "boolean", "array", "object"])
bounds = st.one_of(st.integers(-3, 3), json_values)
schemas = st.fixed_dictionaries(
    {},
    optional={
        "type": st.one_of(kinds, st.lists(kinds, max_size=2), json_values),
        "format": st.sampled_from(["email", "uri", "date", "date-time", "other"]),
        "enum": st.one_of(st.lists(st.text(max_size=3), min_size=1, max_size=3), json_values),
        "items": st.one_of(st.just({"enum": ["a", "b"]}), json_values),
        "anyOf": st.one_of(st.just([{"type": "string"}, {"type": "null"}]), json_values),
        "default": st.one_of(json_values, st.sampled_from(["a", ["a"], 1, True])),
        "minimum": bounds,
        "maxLength": bounds,
        "minItems": bounds,
        "title": json_values,
    },
)


@settings(deadline=None)  # the machine may be busy
@given(
    properties=st.dictionaries(st.sampled_from("xyz"), st.one_of(schemas, json_values)),
    required=st.one_of(st.lists(st.sampled_from("xyz")), json_values),
    content=st.dictionaries(st.sampled_from("wxyz"), st.one_of(json_values, st.just("a"))),
)
def test_no_schema_and_no_content_does_more_than_be_refused(properties, required, content):
    try:
        fields = form_fields({"type": "object", "properties": properties, "required": required})
    except UnusableForm:
        return
    fitting, problems = check_content(fields, content)
    assert not set(fitting) & set(problems)
    assert set(fitting) <= set(properties)
    if not problems:
        again = check_content(fields, json.loads(json.dumps(fitting)))
        assert again == (fitting, {})
        assert set(required or ()) <= set(fitting)


@settings(deadline=None)  # the machine may be busy
@given(st.text(max_size=30))
def test_no_address_does_more_than_be_refused(rest):
    for url in (rest, f"https://{rest}"):
        try:
            host = host_of(url)
        except UnusableForm:
            continue
        assert host.isascii()


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://example.org/a?b=https://bank.com", "example.org"),
        ("http://localhost:8080/", "localhost:8080"),
        ("https://EXAMPLE.org", "example.org"),
        ("https://b\u00fccher.example/", "xn--bcher-kva.example"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("https://example.org/?mail=a@b", "example.org"),
        ("https://B\u00dcCHER.example/%2e", "xn--bcher-kva.example"),
        ("http://127.0.0.1:8080/", "127.0.0.1:8080"),
        ("https://[::ffff:127.0.0.1]/", "::ffff:127.0.0.1"),
        ("https://4.example0x1/", "4.example0x1"),
    ],
)
def test_an_address_leads_to_the_host_that_is_spelled_out(url, host):
    assert host_of(url) == host


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.org", "javascript:alert(1)", "file:///etc/passwd", "data:text/html,x"),
        *("https://", "https://bank.com@evil.org/", "https://evil.org\\@bank.com/"),
        *("https://a.b/ c", "https://a.b/\n", "https://a.b/\u202ex", "https://a.b:x/"),
        "https://a.b/" + "x" * 8_000,
        *("https://ro\u00dfmann.de/", "https://\u03b2\u03cc\u03bb\u03bf\u03c2.com/"),
        *("https://ex%61mple.com/", "https://\uff42ank.com/", "https://bank\uff0eevil.org/"),
        *("http://2130706433/", "http://0x7f.1/", "http://127.1/", "http://0127.0.0.1/"),
    ],
)
def test_what_may_lead_elsewhere_is_no_address(url):
    with pytest.raises(UnusableForm):
        host_of(url)


# -- answers ---------------------------------------------------------------------------------------

FORM = {"properties": {"n": {"type": "integer", "default": 2}, "s": TEXT}, "required": ["n"]}


def ask(**more):
    fields = {"schema": FORM} | more
    return ElicitationRequested(question_id="q", call_id="c", server="s", message="m", **fields)


def test_an_accepted_form_carries_what_fits():
    answer = accepted(ask(), {"n": 3, "s": ""}, by="program")
    assert (answer.decision, answer.by) == ("approve", "program")
    assert json.loads(answer.edited_arguments) == {"n": 3, "s": None}, "what is left out stays so"


def test_a_form_may_be_accepted_as_it_stands():
    assert json.loads(accepted(ask()).edited_arguments) == {"n": 2}


@pytest.mark.parametrize(
    ("question", "content", "reason"),
    [
        (ask(), {"n": "x"}, "the answer does not fit the form: n: this must be a number"),
        (
            ask(schema={"properties": {"a": TEXT}, "required": ["a"]}),
            None,
            "the answer does not fit the form: a: this is required",
        ),
        (
            ask(schema={"properties": {"a": {"type": "object"}}}),
            {},
            "the question of s cannot be shown: field 'a' is of a kind that forms do not have",
        ),
        (
            ask(url="javascript:alert(1)"),
            None,
            "the question of s cannot be shown: the address that it names is none of a page",
        ),
    ],
)
def test_what_does_not_fit_is_declined_with_a_reason(question, content, reason):
    answer = accepted(question, content)
    assert (answer.decision, answer.feedback, answer.by) == ("deny", reason, "policy")


def test_an_address_is_accepted_without_content():
    assert accepted(ask(url="https://a.b/c")).edited_arguments is None
    assert unusable(ask(url="https://a.b/c")) == ""


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (None, {"n": 2}),
        ('{"n": 3}', {"n": 3}),
        ('{"n": "x"}', None),
        ('{"m": 1, "n": 3}', None),
        ("[]", None),
        ("{", None),
    ],
)
def test_what_any_client_answers_is_checked_before_it_is_sent(text, content):
    answer = Answer(question_id="q", decision="approve", edited_arguments=text)
    assert sent_content(Elicitation("s", "m", FORM), answer) == content


@pytest.mark.parametrize(
    "field",
    [
        {"password": {"type": "string"}},
        {"apiKey": {"type": "string"}},
        {"x": {"type": "string", "title": "Your GitHub personal token"}},
        {"token": {"type": "string"}},
        {"ssh_key": {"type": "string"}},
        {"pass\u200bword": {"type": "string"}},
        {"x": {"type": "string", "title": "\uff30\uff41\uff53\uff53word"}},
        {"password": {"type": "integer"}},
        {"github_token": {"type": "string"}},
        {"hfToken": {"type": "string"}},
        {"backend_token": {"type": "string"}},
        {"send token": {"type": "string"}},
        {"Slack bot token": {"type": "string"}},
        {"x": {"type": "string", "title": "your token"}},
        {"x": {"type": "string", "title": "GitHub token:"}},
        {"x": {"type": "string", "description": "Paste your API key here"}},
    ],
)
def test_a_form_that_asks_for_a_secret_is_refused(field):
    with pytest.raises(UnusableForm, match="asks for a secret"):
        form_fields({"properties": field})


REQUESTS = [
    "Please enter your API key.",
    "Enter your user name and password:",
    "To go on, type the passphrase of your key here",
    "Paste your GitHub token.",
    "What are your credentials?",
    "Tell us your access token!",
    "What\u2019s your password",
    "Enter your openai_api_key",
    "Enter github_token and hfTokens",
    "For this we need your password.",
    "Your password, please?",
    "GitHub API key:",
    "token",
    "We lost it. Provide the \uff30\uff41\uff53\uff53word again.",
]
NO_REQUESTS = [
    "Which repository should be scanned for leaked secrets?",
    "Name of the Kubernetes secret to read",
    "What should the new access token be called?",
    "Please confirm your name. We never ask for your password.",
    "Do not enter your password here.",
    "Don\u2019t share passwords here.",
    "Enter the name of the secret.",
    "Enter the secret's name.",
    "Give the tokenizer a name.",
    "Give the type of secrets name",
    "Enter the API keys name",
    "Paste the next page token",
    "Where is the password kept?",
    "Type the secretary's room",
]


@pytest.mark.parametrize("said", REQUESTS)
def test_sentences_that_request_a_secret_are_refused(said):
    for properties in ({"value": TEXT}, {"name": TEXT, "ready": {"type": "boolean"}}):
        with pytest.raises(UnusableForm, match="asks for a secret"):
            fields_of(Elicitation("s", said, {"properties": properties}))
    with pytest.raises(UnusableForm, match="asks for a secret"):
        form_fields({"properties": {"value": {**TEXT, "description": said}}})
    assert fields_of(Elicitation("s", said, {"properties": {"ready": {"type": "boolean"}}}))


@pytest.mark.parametrize("said", NO_REQUESTS)
def test_sentences_may_speak_of_secrets(said):
    properties = {"value": {**TEXT, "description": said}}
    assert fields_of(Elicitation("s", said, {"properties": properties}))


@pytest.mark.parametrize(
    "name",
    [
        *("page_token", "next_token", "nextPageToken", "next token", "eos_token", "sep_token"),
        *("continuation_token", "sync-token", "secretary"),
    ],
)
def test_an_ordinary_token_is_no_secret(name):
    assert form_fields({"properties": {name: TEXT}})[0].name == name


def test_a_number_may_be_a_token():
    for name in ("token", "eos_token", "Last token"):
        assert form_fields({"properties": {name: {"type": "integer"}}})[0].name == name


@pytest.mark.parametrize("name", ["token_count", "keyword", "passenger", "key", "author"])
def test_names_that_only_look_like_one_are_not(name):
    assert form_fields({"properties": {name: {"type": "string"}}})[0].name == name
