"""BM25 over a list of tools: rare words count more, long texts less, names by their words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.dispatch.catalog.ranking import Ranking, words_of

TOOLS = {
    "create_issue": "Open a new issue in a repository, with title and body",
    "list_issues": "List the issues of a repository",
    "merge_pull_request": "Merge a pull request of a repository",
    "send_mail": "Send a message to somebody",
}


def ranking(texts=TOOLS):
    return Ranking({name: words_of(name) * 3 + words_of(text) for name, text in texts.items()})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("get_user_id", ["get", "user", "id"]),
        ("getUserID2", ["get", "user", "id", "2"]),
        ("HTTPServer", ["http", "server"]),
        ("", []),
        ("--  !", []),
    ],
)
def test_names_fall_into_their_words(text, words):
    assert words_of(text) == words


def test_words_of_other_alphabets_are_words():
    assert words_of("поиск 検索")[0] == words_of("поиск")[0]
    assert len(words_of("поиск 検索")) == 2


@pytest.mark.parametrize(
    ("one", "other"), [("issues", "issue"), ("merging", "merged"), ("queries", "query")]
)
def test_endings_do_not_matter(one, other):
    assert words_of(one) == words_of(other)


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("merge", "merge_pull_request"),
        ("open an issue", "create_issue"),
        ("list issues", "list_issues"),
        ("mail somebody", "send_mail"),
        ("pull requests", "merge_pull_request"),
    ],
)
def test_what_is_meant_comes_first(query, first):
    assert ranking().best(query, 3)[0] == first


def test_only_what_fits_comes_and_no_more_than_wanted():
    assert ranking().best("weather", 8) == []
    assert ranking().best("", 8) == []
    assert len(ranking().best("repository", 2)) == 2
    assert Ranking({}).best("anything", 8) == []


def test_a_rare_word_counts_more_than_a_frequent_one():
    texts = {f"t{n}": "common words here" for n in range(9)} | {"rare": "unusual words here"}
    assert ranking(texts).best("common unusual", 1) == ["rare"]


def test_a_short_text_counts_more_than_a_long_one():
    texts = {"long": "fish " + "and chips " * 50, "short": "fish"}
    assert ranking(texts).best("fish", 2) == ["short", "long"]


def test_ties_stand_in_the_order_given():
    texts = {"b": "same", "a": "same"}
    assert Ranking({n: words_of(t) for n, t in texts.items()}).best("same", 2) == ["b", "a"]


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=6), st.text(max_size=20))
def test_any_texts_and_any_query(texts, query):
    found = ranking(texts).best(query, 3)
    assert len(found) == len(set(found)) <= 3
    assert set(found) <= texts.keys()
