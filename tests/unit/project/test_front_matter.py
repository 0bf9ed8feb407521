"""Front matter: what of YAML is read, and that everything else is an error that names its line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.project.front_matter import NotFrontMatter, split_front_matter

READ = {
    "nothing": ("Just text.\n", {}, "Just text.\n"),
    "an empty one": ("---\n---\nText.", {}, "Text."),
    "plain": (
        "---\nname: a-b\ndescription: Reads: x, y.\n---\nT",
        {"name": "a-b", "description": "Reads: x, y."},
        "T",
    ),
    "quotes": (
        "---\na: 'it''s'\nb: \"x\\u00e9: #y\" # no\n---\n",
        {"a": "it's", "b": "xé: #y"},
        "",
    ),
    "comments": ("---\n# one\na: b # two\n\nc: d#e\n---\n", {"a": "b", "c": "d#e"}, ""),
    "an inline list": ("---\na: [x, 'y', ]\nb: []\n---\n", {"a": ("x", "y", ""), "b": ()}, ""),
    "commas in quotes": (
        "---\na: [\"Bash(git add:*, git commit:*)\", 'b''s, c', don't, can't]\n---\n",
        {"a": ("Bash(git add:*, git commit:*)", "b's, c", "don't", "can't")},
        "",
    ),
    "a list": (
        '---\na:\n  - x\n  # no\n  - "y"\nb:\n- z\n---\n',
        {"a": ("x", "y"), "b": ("z",)},
        "",
    ),
    "folded": ("---\na: >-\n  one\n  two\nb: c\n---\n", {"a": "one two", "b": "c"}, ""),
    "literal": ("---\na: |\n  one\n  two\n---\n", {"a": "one\ntwo"}, ""),
    "a mapping, as it is written": (
        "---\nm:\n  k: v\nn: {a: 1}\n---\n",
        {"m": "k: v", "n": "{a: 1}"},
        "",
    ),
    "an empty value": ("---\na:\nb: c\n---\n", {"a": "", "b": "c"}, ""),
    "Windows' line ends": ("---\r\na: b\r\n---\r\nT", {"a": "b"}, "T"),
}
WRONG = {
    "not closed": ("---\na: b\n", "no line --- ends"),
    "closed too late": ("---\n" + "# \n" * 300 + "---\n", "within 200 lines"),
    # Which takes seconds a megabyte, before anybody has trusted it.
    "a long line": (f"---\na: [{',' * 70_000}]\n---\n", "more than 65,536 characters"),
    "no pair": ("---\na: b\nhello\n---\n", "line 3: expected `key: value`"),
    "an indented pair": ("---\n a: b\n---\n", "line 2: expected `key: value`"),
    "a key twice": ("---\na: b\na: c\n---\n", "line 3: the key 'a' stands twice"),
    "an anchor": ("---\na: &x b\n---\n", "line 2: a value cannot begin with &"),
    "an alias": ("---\na: *x\n---\n", "cannot begin with *"),
    "a tag": ("---\na: !!python/object b\n---\n", "cannot begin with !"),
    "an open quote": ("---\na: 'b\n---\n", "cannot begin with '"),
    "a wrong escape": ('---\na: "\\q"\n---\n', "an escape in the quotes is not known"),
    "an open list": ("---\na: [b\n---\n", "no closing ]"),
    "a quote without its partner": ('---\na: ["b, c]\n---\n', 'cannot begin with "'),
    "a list in a list": ("---\na: [[b]]\n---\n", "cannot begin with ["),
    "a list with a pair": ("---\na:\n  - x\n  k: v\n---\n", "line 4: expected `- entry`"),
}


@pytest.mark.parametrize(("text", "values", "rest"), READ.values(), ids=list(READ))
def test_what_is_read(text, values, rest):
    assert split_front_matter(text) == (values, rest)


@pytest.mark.parametrize(("text", "why"), WRONG.values(), ids=list(WRONG))
def test_what_is_an_error(text, why):
    with pytest.raises(NotFrontMatter) as caught:
        split_front_matter(text)
    assert why in str(caught.value)


@given(st.text(alphabet=st.sampled_from("-a: \n\"'[]|>#{}&,\\\t")))
def test_any_text_is_read_or_is_one_error(text):
    try:
        values, _ = split_front_matter(f"---\n{text}\n---\nrest")
    except NotFrontMatter:
        return
    assert all(isinstance(each, str | tuple) for each in values.values())


@given(st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"])))
def test_quoted_text_comes_back(text):
    quoted = "'" + text.replace("'", "''") + "'"
    assert split_front_matter(f"---\na: {quoted}\n---\n")[0] == {"a": text}
