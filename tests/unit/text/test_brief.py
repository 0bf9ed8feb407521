import pytest

from agent_magics.text.brief import first_lines, meant


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("statsu", "did you mean status?"),
        ("STATUS", "did you mean status?"),
        ("Welcome", "did you mean welcome?"),
        ("other", "there are: status, welcome."),
        ("", "there are: status, welcome."),
        (5, "there are: status, welcome."),
    ],
)
def test_the_nearest_name_may_be_meant(name, says):
    assert meant(name, ["status", "welcome"]) == says


def test_where_there_are_none_that_is_said():
    assert meant("x", []) == "there are none."


@pytest.mark.parametrize(
    ("texts", "lines"),
    [([], []), (["a", "b"], ["- a", "- b"]), (["a", "b", "c"], ["- a", "- b", "- and 1 more"])],
)
def test_a_list_says_how_many_more_there_are(texts, lines):
    assert first_lines(texts, 2) == lines
