"""A line that a person types is split into words, and nothing of them is lost."""

import re
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.kernel.typed_words import split_words, unquoted
from agent_magics.protocol.errors import FatalError

TEXTS = st.text(st.sampled_from(" \t\\{}=/ab.'$^*[]()é-"), max_size=20)
# An expression that one text opens and the next one closes would hold what stands between them.
CLOSED = TEXTS.filter(lambda text: "{{" not in re.sub(r"\{\{.+?\}\}", "", text, flags=re.DOTALL))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("p f=a  g=b", ["p", "f=a", "g=b"]),
        (r"p f=C:\data\new.csv", ["p", r"f=C:\data\new.csv"]),
        (r'p f="C:\my data\new.csv"', ["p", r"f=C:\my data\new.csv"]),
        (r"p f=\frac{1}{2} g='\d+ \"x\"'", ["p", r"f=\frac{1}{2}", r"g=\d+ \"x\""]),
        ('p f={{cfg["the month"]}}', ["p", 'f={{cfg["the month"]}}']),
        ('p f="in {{cfg["the month" ]}} of"', ["p", 'f=in {{cfg["the month" ]}} of']),
        ("p f=O'Brien g='it's'", ["p", "f=O'Brien", "g=it's"]),
        ('"f=the  EU" \'\' g=""', ["f=the  EU", "", "g="]),
        ('--output="dict[str, int]"', ["--output=dict[str, int]"]),
        ("--map='df[df.x == \"a b\"]'", ['--map=df[df.x == "a b"]']),
        ('Literal["a","b"] df[df.x=="a"]', ['Literal["a","b"]', 'df[df.x=="a"]']),
        ('--env=KEY="a b" -- x\\', ["--env=KEY=a b", "--", "x\\"]),
        ("{{a {{b", ["{{a", "{{b"]),
        ('f="{{" g="}}"', ['f={{" g="}}']),
        ("", []),
    ],
)
def test_quotes_are_taken_out_around_words_only(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@given(st.lists(CLOSED, max_size=5))
def test_what_is_quoted_is_read_back(texts: list[str]) -> None:
    assert split_words(" ".join(f'f="{text}"' for text in texts)) == [f"f={t}" for t in texts]


@given(TEXTS.filter(lambda text: "'" not in text))
def test_nothing_but_white_space_is_lost(text: str) -> None:
    assert "".join("".join(split_words(text)).split()) == "".join(text.split())


@pytest.mark.parametrize("line", ["who='a", '--approval="', "'a b", "f=\"a b'", '"a"b'])
def test_a_quote_without_its_partner_is_told(line: str) -> None:
    with pytest.raises(FatalError, match="A quotation mark is missing in this line"):
        split_words(line)


@pytest.mark.soak
@pytest.mark.parametrize("piece", ["{{", '"', "{{a}} ", "a=", " '", '"a" '])
def test_a_long_line_costs_no_more_than_its_length(piece: str) -> None:
    began = process_time()
    with suppress(FatalError):
        split_words(f'"{piece * 20_000}')
    assert process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"Which month?"', "Which month?"),
        ("'it is \"late\"'", 'it is "late"'),
        ('"late" or "fees"', '"late" or "fees"'),
        ('"', '"'),
        ("", ""),
    ],
)
def test_quotes_around_all_of_a_text_are_none_of_it(text, words):
    assert unquoted(text.split(" ")) == words
