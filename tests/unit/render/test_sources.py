"""Web searches in words; what an answer cites as links that lead to a page and nowhere else."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.protocol.items import Citation
from agent_magics.render.sources import (
    MOST_SOURCES,
    describe_search,
    harmless_url,
    sources_of,
)
from agent_magics.render.text import to_markdown, to_plain


def item(*citations):
    return {"version": 1, "kind": "text", "text": "Cats.", "sources": sources_of(citations)}


@pytest.mark.parametrize(
    ("action", "running", "done"),
    [
        ({}, "searching the web", "searched the web"),
        ("{}", "searching the web", "searched the web"),
        ({"type": "search", "query": "a"}, 'searching "a"', 'searched "a"'),
        ({"type": "search", "queries": ["a", "b"]}, 'searching "a", "b"', 'searched "a", "b"'),
        ({"type": "open_page", "url": "https://x"}, "opening https://x", "opened https://x"),
        ({"type": "open_page"}, "opening a page", "opened a page"),
        (
            {"type": "find_in_page", "url": "https://x", "pattern": "a\nb"},
            'looking for "a b" in https://x',
            'looked for "a b" in https://x',
        ),
        *(
            (text, "searching the web", "searched the web")
            for text in ("", "no JSON", "[1]", "null")
        ),
        ("[" * 5_000, "searching the web", "searched the web"),
        ({"type": "new", "query": "a"}, 'searching "a"', 'searched "a"'),
    ],
)
def test_what_a_search_does_in_words(action, running, done):
    assert describe_search(action, done=False) == running
    assert describe_search(action, done=True) == done


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "//evil.example",
        "https://bank.example@evil.example/",
        "https:\\\\evil.example",
        "https://",
        "https://[broken",
        "mailto:a@b.example",
        "",
    ],
)
def test_what_is_no_page_is_named_and_not_linked(url):
    assert harmless_url(url) == ""
    shown = item(Citation(url, "Cats", file_id="f"))
    assert to_markdown(shown) == "Cats.\n\nSources:\n\n- Cats"
    assert to_plain(shown) == "Cats.\n\nSources:\n- Cats"


@pytest.mark.parametrize(
    ("url", "linked"),
    [
        ("https://a.example/b?c=d#e", "https://a.example/b?c=d#e"),
        ("HTTP://a.example/", "http://a.example/"),
        ("https://a.example/Cat_(animal)", "https://a.example/Cat_%28animal%29"),
        ("https://a.example/@you/<b>", "https://a.example/%40you/%3Cb%3E"),
        ("https://a.example/ä b", "https://a.example/%C3%A4%20b"),
    ],
)
def test_a_page_is_a_link_in_signs_that_mean_nothing(url, linked):
    assert harmless_url(url) == harmless_url(linked) == linked
    assert to_markdown(item(Citation(url, "Cats"))).endswith(f"- [Cats]({linked})")


def test_each_source_once_and_not_too_many():
    pages = [Citation(f"https://a.example/{n}", f"Page {n}", n) for n in range(100)]
    assert len(item(*pages)["sources"]) == MOST_SOURCES
    again = [Citation("https://a.example/", "A", n) for n in range(3)]
    files = [Citation("", "a.txt", file_id=f) for f in ("1", "2")] + [Citation("", "", file_id="3")]
    assert item(*again, *files)["sources"] == [
        {"title": "A", "url": "https://a.example/"},
        {"title": "a.txt", "url": ""},
        {"title": "3", "url": ""},
    ]
    assert item(Citation("https://a.example/x"))["sources"][0]["title"] == "a.example"


def test_an_answer_without_sources_is_as_it_was():
    plain = {"version": 1, "kind": "text", "text": "Cats."}
    assert (to_markdown(plain), to_plain(plain)) == ("Cats.", "Cats.")


SIGNS = st.text("[]()<>`$\\@!|*_ ab:/\n\x1b&#;\"'~", max_size=30)


@given(SIGNS, st.one_of(SIGNS, SIGNS.map("https://a.example/".__add__)))
def test_no_title_and_no_address_leaves_its_place(title, url):
    shown = to_markdown(item(Citation(url, title, file_id="f")))
    head, _, line = shown.rpartition("\n")
    assert head == "Cats.\n\nSources:\n"
    link = re.fullmatch(
        r"- (?:\[[^\[\]<>`$\\@]*\]\(https?://[\w.~+,=:%/?&#-]+\)|<https?://[^<>]+>|[^\[\]<`$\\]*)",
        line,
    )
    assert link, line
    assert "\x1b" not in to_plain(item(Citation(url, title, file_id="f")))
