"""Docstrings as people write them, in three styles and in none."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent_magics.dispatch.schema.docstring import Docstring, parse_docstring

GOOGLE = """Revenue rows of one month.

    The months are those of the fiscal year,
    which begins in April.

    Note: closed months only.

    Args:
        month (str, optional): ISO month, such as 2024-03.
        limit: most rows to return;
            0 means all.

            Above 1000 it is slow.
        rows (dict[str, (int, str)]): nested: types.
        *names: some names.
        **options: more.
        bare:

    Returns:
        The rows: as a table.

    Raises:
        ValueError: month: is not a month.
    """

NUMPY = """
    Revenue rows
    of one month.

    More words.

    Parameters
    ----------
    month : str
        ISO month,
        such as 2024-03.
    limit : int, optional
        Most rows.

        Really.
    x, y : float
        Coordinates.
    untyped
        No type.
    *args
        The rest.

    Returns
    -------
    frame : DataFrame
        The rows.

    Other Parameters
    ----------------
    debug : bool
        Say more.
    """

REST = """Revenue rows of one month.

    More words.

    :param month: ISO month,
        such as 2024-03.
    :param int limit: most rows
    :type limit: int
    :parameter other: more
    :returns: the rows
    :raises ValueError: never
    """


def test_google_style():
    parsed = parse_docstring(GOOGLE)
    assert parsed.summary == "Revenue rows of one month."
    assert parsed.description == (
        "Revenue rows of one month.\n\nThe months are those of the fiscal year,\n"
        "which begins in April.\n\nNote: closed months only."
    )
    assert parsed.params == {
        "month": "ISO month, such as 2024-03.",
        "limit": "most rows to return; 0 means all. Above 1000 it is slow.",
        "rows": "nested: types.",
        "names": "some names.",
        "options": "more.",
    }


def test_numpy_style():
    parsed = parse_docstring(NUMPY)
    assert parsed.summary == "Revenue rows of one month."
    assert parsed.description == "Revenue rows\nof one month.\n\nMore words."
    assert parsed.params == {
        "month": "ISO month, such as 2024-03.",
        "limit": "Most rows. Really.",
        "x": "Coordinates.",
        "y": "Coordinates.",
        "untyped": "No type.",
        "args": "The rest.",
        "debug": "Say more.",
    }


def test_rest_style():
    parsed = parse_docstring(REST)
    assert parsed.description == "Revenue rows of one month.\n\nMore words."
    assert parsed.params == {
        "month": "ISO month, such as 2024-03.",
        "limit": "most rows",
        "other": "more",
    }


@pytest.mark.parametrize("header", ["Args", "Arguments", "Parameters", "Params", "Keyword Args"])
def test_names_of_the_parameter_section(header):
    parsed = parse_docstring(f"Do.\n\n{header}:\n  x: words.")
    assert parsed == Docstring("Do.", "Do.", {"x": "words."})


@pytest.mark.parametrize(
    "section",
    [
        "Returns:\n    x: y",
        "Returns: x",
        "Raises:\n    E: y",
        "Yields:\n    int: y",
        "Examples:\n    >>> f()",
        "Example:\n    f()",
        "Notes\n-----\nslow",
        "Note:\n    slow",
    ],
)
def test_other_sections_end_the_description(section):
    assert parse_docstring(f"Do.\n\nMore.\n\n{section}") == Docstring("Do.", "Do.\n\nMore.", {})


@pytest.mark.parametrize("prose", ["Note: it is slow.", "Example: f(1) is 2.", "Warning: careful"])
def test_one_line_remarks_stay_in_the_description(prose):
    assert parse_docstring(f"Do.\n\n{prose}").description == f"Do.\n\n{prose}"


def test_sections_without_text_before_them():
    assert parse_docstring("\n    Args:\n        x: words.\n    ") == Docstring(
        "", "", {"x": "words."}
    )


def test_prose_that_looks_like_a_list_is_no_section():
    doc = "Do it.\n\nSteps:\n    one: first\n    two: second"
    assert parse_docstring(doc) == Docstring("Do it.", doc, {})


def test_first_description_of_a_parameter_wins():
    doc = "Do.\n\nArgs:\n    x: one.\n    x: two.\n\nKeyword Args:\n    x: three."
    assert parse_docstring(doc).params == {"x": "one."}


def test_windows_line_ends_and_tabs():
    doc = "Do.\r\n\r\n\tArgs:\r\n\t\tx: words,\r\n\t\t\tmore.\r\n"
    assert parse_docstring(doc) == Docstring("Do.", "Do.", {"x": "words, more."})


@pytest.mark.parametrize("doc", [None, "", "   \n  ", 5])
def test_nothing_gives_empty_parts(doc):
    assert parse_docstring(doc) == Docstring("", "", {})


LINES = st.sampled_from(
    [
        "Args:",
        "Parameters",
        "----",
        "    x: y",
        "  x (int): z",
        "x : int",
        ":param x: y",
        ":param",
        "Returns: a",
        "",
        "      more",
        "\tx",
        "words",
        "* (: (",
        "Args: x",
        "é:",
        ":",
    ]
)


@settings(deadline=None)  # the machine may be busy
@given(st.text() | st.lists(LINES | st.text(max_size=8)).map("\n".join))
def test_any_text_is_parsed(doc):
    parsed = parse_docstring(doc)
    assert "\n" not in parsed.summary
    assert all(name and text and "\n" not in text for name, text in parsed.params.items())
