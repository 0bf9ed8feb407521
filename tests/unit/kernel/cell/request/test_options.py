import argparse
import builtins
import keyword

import pytest
from IPython.core.magic_arguments import MagicArgumentParser

from agent_magics.kernel.cell.request.options import parse_options
from agent_magics.kernel.magics import AgentMagics
from agent_magics.protocol.config import ApprovalPolicy, Where
from agent_magics.protocol.errors import FatalError
from agent_magics.settings.table import settings_in

PARSER: MagicArgumentParser = AgentMagics.agent.parser  # type: ignore[attr-defined]
OPTIONS = [action for action in PARSER._actions if action.option_strings]
WRONG = ("maybe", "mayb'e", "never(always)", "no:'one'", "o'n\"")


def _said(line: str) -> str:
    with pytest.raises(FatalError) as caught:
        parse_options(PARSER, line)
    return str(caught.value)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.dest)
def test_an_option_without_its_value_is_told_in_our_words(option: argparse.Action) -> None:
    long = next(name for name in option.option_strings if name.startswith("--"))
    for name in option.option_strings:
        said = _said(f"{name}=1") if option.nargs == 0 else _said(name)
        wanted = "takes no value, not '1'." if option.nargs == 0 else "needs a value; "
        assert said.startswith(f"{long} {wanted}")


@pytest.mark.parametrize("value", WRONG)
def test_a_value_that_does_not_fit_is_quoted(value: str) -> None:
    said = _said(f"--approval={value}")
    assert said.startswith(f"--approval does not take {value!r}; ")
    assert all(each in said for each in ApprovalPolicy) or "did you mean" in said
    assert _said(f"--max-turns={value}") == f"--max-turns takes a whole number, not {value!r}."
    assert _said(f"--max-cost={value}") == f"--max-cost takes a number, not {value!r}."


# What a map heeds: the others would change nothing, since its rows have no tools and no turns.
OF_MAPS = {
    *("model", "approval", "max_tokens", "max_cost", "name", "replay", "record", "into", "output"),
    *("map", "ask_above", "parts", "batch", "engine", "background"),
}


@pytest.mark.parametrize(
    "option",
    [each for each in OPTIONS if each.dest not in OF_MAPS],
    ids=lambda option: option.dest,
)
def test_what_a_map_does_not_heed_is_refused(option: argparse.Action) -> None:
    name = option.option_strings[0]
    given = "" if option.nargs == 0 else next(iter(option.choices or ["3"]))
    assert _said(f"--map df {name} {given}") == f"{name} does not go with --map."


@pytest.mark.parametrize("name", settings_in(Where.NOTEBOOK).keys() - settings_in(Where.CELL))
def test_a_setting_that_no_cell_takes_is_told_with_its_place(name: str) -> None:
    option = f"--{name.replace('_', '-')}"
    said = f"%%agent has no option {option}; set it for all cells: %config AgentMagics.{name} = …"
    assert _said(option) == _said(f"{option} x") == _said(f"{option}=x") == said


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ('--output="dict[str, int]"', "output", "dict[str, int]"),
        ('--output \'Literal["a b", "c"]\'', "output", 'Literal["a b", "c"]'),
        ('--map="df[df.x > 3]"', "map", "df[df.x > 3]"),
        ('--map df[["a","b"]]', "map", 'df[["a","b"]]'),
        (r"--replay=C:\new\a.jsonl", "replay", r"C:\new\a.jsonl"),
        (r'--prompt p f="C:\a  b" g={{d["a b"]}}', "prompt", ["p", r"f=C:\a  b", 'g={{d["a b"]}}']),
    ],
)
def test_a_value_is_what_stands_between_its_quotes(line: str, name: str, value: object) -> None:
    assert getattr(parse_options(PARSER, line), name) == value


def test_a_part_of_several_options_is_told_in_our_words() -> None:
    flags = {flag for option in OPTIONS for flag in option.option_strings}
    for part in {flag[:end] for flag in flags for end in range(3, len(flag))} - flags:
        if len(fits := [flag for flag in flags if flag.startswith(part)]) > 1:
            for given in (part, f"{part} 3", f"{part}=A"):
                said = _said(given)
                assert said.startswith(f"Ambiguous option: {given.split()[0]} could match ")
                assert said.endswith(".") and all(flag in said for flag in fits)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.dest)
def test_an_option_that_is_given_twice_is_told(option: argparse.Action) -> None:
    long = next(name for name in option.option_strings if name.startswith("--"))
    values = [""] if option.nargs == 0 else [*(option.choices or "03")][:2]
    for first in option.option_strings:
        for second in option.option_strings:
            for value in values:
                line = f"{first} {values[0]} {second} {value}"
                assert _said(line) == f"{long} is given twice; give it once."


NOT_TO_BIND = (
    *("In", "Out", "get_ipython", "exit", "quit", "open", "_", "__", "___", "_1", "_23"),
    *("_i", "_ii", "_iii", "_i7", "_ih", "_oh", "_dh", "_agent", "_r7"),
    *("__name__", "__builtins__", "__doc__", "_exit_code", "ﬁlter"),
    *(name for name in vars(builtins) if not keyword.iskeyword(name)),
)


def test_a_name_that_later_cells_need_is_not_bound() -> None:
    for name in NOT_TO_BIND:
        wanted = f"--into {name}: Python or IPython uses this name; choose another one."
        assert _said(f"--into {name}") == _said(f"--map df --into={name}") == wanted


@pytest.mark.parametrize(
    ("name", "bound"),
    [("df", "df"), ("_x", "_x"), ("_r", "_r"), ("inn", "inn"), ("out", "out"), ("ﬁt", "fit")],
)
def test_any_other_name_is_bound(name: str, bound: str) -> None:
    assert parse_options(PARSER, f"--into {name}").into == bound
