"""The regular expressions that modules of the package hold mean the same in each Python."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from re import _compiler, _constants, _parser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agent_magics

_LOOKS = (
    *(_constants.ASSERT, _constants.ASSERT_NOT, _constants.GROUPREF),
    *(_constants.MAX_REPEAT, _constants.MIN_REPEAT, _constants.POSSESSIVE_REPEAT),
)


def patterns_in(value: object) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict | tuple | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from patterns_in(each)


def all_patterns() -> dict[str, re.Pattern[Any]]:
    """Return those that modules hold, by module and name."""
    names = [each.name for each in pkgutil.walk_packages(agent_magics.__path__, "agent_magics.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    return {
        f"{module.__name__}.{name}": pattern
        for module in modules
        for name, value in tuple(vars(module).items())
        for pattern in patterns_in(value)
    }


def parts_of(tree: Any) -> Iterator[Any]:
    """Yield all operations of a parsed pattern."""
    if isinstance(tree, _parser.SubPattern | tuple | list):
        for each in tree:
            if isinstance(each, tuple) and each and type(each[0]) is type(_constants.ASSERT):
                yield each
            yield from parts_of(each)


def is_delicate(pattern: re.Pattern[Any]) -> bool:
    """Tell whether it repeats possessively what repeats, or looks around, itself.

    Python 3.11.2 goes on in the midst of a part that has failed there; later ones do not.
    """
    tree = _parser.parse(pattern.pattern, pattern.flags)
    repeated = [each[1][2] for each in parts_of(tree) if each[0] is _constants.POSSESSIVE_REPEAT]
    return any(part[0] in _LOOKS for each in repeated for part in parts_of(each))


def in_atomic_groups(tree: Any) -> Any:
    """Write possessive repetitions of a parsed pattern as what they stand for."""
    for place, each in enumerate(tree):
        if isinstance(each, _parser.SubPattern | list | tuple):
            in_atomic_groups(each)
        if isinstance(tree, _parser.SubPattern) and each[0] is _constants.POSSESSIVE_REPEAT:
            greedy = _parser.SubPattern(tree.state, [(_constants.MAX_REPEAT, each[1])])
            tree[place] = (_constants.ATOMIC_GROUP, greedy)
    return tree


@pytest.mark.parametrize(
    ("pattern", "delicate"),
    [("(?:a*b)*+", True), ("(?:(?!b).)*+", True), ("(?:ab)*+c*", False), ("(?>(?:a*b)*)", False)],
)
def test_what_repeats_possessively_is_looked_into(pattern, delicate):
    assert is_delicate(re.compile(pattern)) is delicate


DELICATE = {name: each for name, each in all_patterns().items() if is_delicate(each)}


@pytest.mark.parametrize("name", sorted(DELICATE))
@given(data=st.data())
def test_a_possessive_repetition_is_a_greedy_one_in_an_atomic_group(name, data):
    pattern = DELICATE[name]
    tree = in_atomic_groups(_parser.parse(pattern.pattern, pattern.flags))
    other = _compiler.compile(tree, pattern.flags)
    source = pattern.pattern
    text = source.decode() if isinstance(source, bytes) else source
    text = data.draw(st.text(st.sampled_from(sorted({*text, *" \t\na1"})), max_size=30))
    given_text = text.encode() if isinstance(source, bytes) else text
    spans = [[each.span() for each in one.finditer(given_text)] for one in (pattern, other)]
    assert spans[0] == spans[1]
