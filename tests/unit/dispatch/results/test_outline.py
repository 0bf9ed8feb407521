"""Whatever a tool returns, the model reads something of it, soon, and the turn goes on."""

import itertools
import time
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, dataclasses

from agent_magics import Agent, tool
from agent_magics.dispatch.results.outline import (
    MOST_CHARACTERS,
    can_be_written,
    may_run_code,
    outline,
)
from agent_magics.dispatch.results.output import brief_text, to_tool_output
from agent_magics.dispatch.stages.stored_outputs import is_by_reference

BUDGET = 10_000


def test_what_another_thread_changes_is_not_looked_through(monkeypatch):
    def changes(value):
        yield 1
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr("agent_magics.dispatch.results.outline._parts_of", changes)
    assert may_run_code({"a": 1})
    assert not can_be_written({"a": 1})


def raiser(*names: str, error: type[BaseException] = RuntimeError) -> Any:
    def fail(*_: Any, **__: Any) -> Any:
        raise error("no")

    return type("Raiser", (), dict.fromkeys(names, fail))()


class HostileMeta(type):
    def __getattr__(cls, name):
        raise RuntimeError(name)


class OfHostileClass(metaclass=HostileMeta):
    pass


class HostileAttributes:
    def __getattribute__(self, name):
        raise RuntimeError(name)


class Text(str):
    def __len__(self):
        raise RuntimeError("no")

    __iter__ = __str__ = __repr__ = __getitem__ = __len__


class Items(list):
    def __iter__(self):
        return itertools.count()

    def __len__(self):
        raise RuntimeError("no")


class LongRepr:
    def __repr__(self):
        return "x" * 5_000_000


class NoTextRepr:
    def __repr__(self):
        return 5


@dataclass
class Node:
    next: Any = None


@dataclass(slots=True)
class SlotNode:
    next: Any = None


@dataclass(slots=True)
class LowerSlotNode(SlotNode):
    more: Any = None


@dataclasses.dataclass
class PydanticNode:
    next: Any = None


class Model(BaseModel):
    model_config = ConfigDict(extra="allow")
    next: Any = None


@dataclass
class Computed:
    next: Any

    @property
    def next(self) -> Any:
        return self.__dict__["_next"]

    @next.setter
    def next(self, value: Any) -> None:
        self.__dict__["_next"] = value


def deep(kind: type, levels: int = 100_000) -> Any:
    value: Any = kind()
    for _ in range(levels):
        value = {"a": value} if kind is dict else kind((value,))
    return value


def circular(kind: str) -> Any:
    node = Node()
    values: dict[str, Any] = {"list": [], "dict": {}, "node": node, "both": [{}]}
    value = values[kind]
    if kind == "list":
        value.append(value)
    elif kind == "dict":
        value["me"] = value
    elif kind == "node":
        value.next = [value]
    else:
        value[0]["list"] = (1, value)
    return value


def endless():
    yield from itertools.count()


VALUES = {
    "a list in itself": lambda: circular("list"),
    "a dict in itself": lambda: circular("dict"),
    "a node in itself": lambda: circular("node"),
    "both in each other": lambda: circular("both"),
    "deep lists": lambda: deep(list),
    "deep tuples": lambda: deep(tuple),
    "deep dicts": lambda: deep(dict),
    "repr raises": lambda: raiser("__repr__"),
    "repr exits": lambda: raiser("__repr__", "__str__", error=SystemExit),
    "everything raises": lambda: raiser("__repr__", "__len__", "__iter__", "__eq__", "__bool__"),
    "hash and class raise": lambda: raiser("__hash__", "__getattr__", "__getitem__", "__dir__"),
    "hostile class": OfHostileClass,
    "hostile attributes": HostileAttributes,
    "hostile text": lambda: Text("abc"),
    "hostile list": lambda: Items([1, 2]),
    "endless iterator": itertools.count,
    "endless generator": lambda: {"a": [endless()]},
    "huge repr": LongRepr,
    "huge repr inside": lambda: [LongRepr(), {"a": LongRepr()}],
    "no text as repr": NoTextRepr,
    "huge number": lambda: 10**20_000,
    "huge numbers": lambda: [10**20_000],
    "three million": lambda: list(range(3_000_000)),
    "a million keys": lambda: dict.fromkeys(range(1_000_000), "v"),
    "long texts": lambda: ["x" * 1_000_000] * 30,
    "keys of all kinds": lambda: {(1, 2): {3}, None: b"\xff", OfHostileClass: 1},
    "a module and a class": lambda: [pytest, Node, len],
    "a locked thing": lambda: {"lock": __import__("threading").Lock()},
}


@pytest.mark.parametrize("case", VALUES)
def test_any_value_becomes_text(case):
    value = VALUES[case]()
    start = time.process_time()
    output = to_tool_output(value, BUDGET)
    assert isinstance(output.content, str)
    assert 0 < len(output.content) <= BUDGET + 100
    assert isinstance(is_by_reference(value), bool)
    assert len(outline(value)) <= MOST_CHARACTERS
    assert len(brief_text(value)) <= MOST_CHARACTERS
    assert time.process_time() - start < 5
    output.content.encode()


@pytest.mark.parametrize("case", VALUES)
def test_a_tool_that_returns_it_does_not_end_the_turn(case):
    @tool
    def give() -> Any:
        """Give it."""
        return VALUES[case]()

    with Agent(tools=[give]) as agent:
        output = agent.call_sync("give", {})
        assert output.success, output.text
        assert len(output.text) <= BUDGET + 1_000


HOLDERS = {
    "in a dict": Node,
    "in a slot": SlotNode,
    "in a lower slot": lambda value: LowerSlotNode(1, value),
    "in a base's slot": LowerSlotNode,
    "in a dataclass of pydantic": PydanticNode,
    "in a model": lambda value: Model(next=value),
    "under another name": lambda value: Model.model_validate({"other": value}),
    "computed": Computed,
}


@pytest.mark.parametrize("inside", HOLDERS)
@pytest.mark.parametrize("case", HOLDERS)
def test_an_iterator_is_seen_wherever_it_is_held_and_not_run(case, inside):
    taken = []

    def run() -> Any:
        taken.append(1)
        yield 1

    value = HOLDERS[case]([HOLDERS[inside](run())])
    assert not can_be_written(value)
    assert to_tool_output(value, BUDGET).text
    assert not taken


@pytest.mark.parametrize("case", HOLDERS.keys() - {"computed"})
def test_what_holds_data_is_written(case):
    assert can_be_written([HOLDERS[case](["words"])])
    assert "words" in to_tool_output(HOLDERS[case](["words"]), BUDGET).text


@dataclass
class Defaults:
    kind: str = field(default="kind", init=False)
    call: Any = print
    count: ClassVar[int] = 1


def test_a_field_that_is_the_class_s_is_data():
    value = Defaults()
    assert can_be_written(value) and "kind" in to_tool_output(value, BUDGET).text


def test_a_repr_that_never_ends_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("agent_magics.dispatch.handlers.function.WORDS_LIMIT", 0.3)
    running = [True]

    class Slow:
        def __repr__(self):
            while running:
                time.sleep(0.01)
            return "at last"

    @tool
    def slow() -> Any:
        """Give it."""
        return {"a": [Slow()]}

    with Agent(tools=[slow]) as agent:
        text = agent.call_sync("slow", {}).text
    running.clear()
    assert ("ran" in text and "longer" in text) or "more than" in text
    assert "@r1" in text


def test_of_much_data_type_size_and_a_few_items_are_read():
    text = to_tool_output(list(range(3_000_000)), BUDGET).text
    assert text.startswith("list, 3,000,000 elements, ")
    assert "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, … 2,999,990 more]" in text
    assert len(text) <= MOST_CHARACTERS
    rows = [{"name": f"n{n}", "scores": list(range(50))} for n in range(10_000)]
    text = to_tool_output(rows, BUDGET).text
    assert "{'name': 'n0', 'scores': [0, 1, 2, 3, … 46 more]}" in text


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=200)
    | st.binary(max_size=50)
    | st.builds(lambda: raiser("__repr__"))
    | st.builds(lambda: OfHostileClass())
    | st.builds(lambda: Text("t"))
    | st.builds(lambda: endless())
)
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=5), inner)
        | st.builds(Node, inner)
        | st.builds(lambda items: Items(items), st.lists(inner))
    ),
    max_leaves=40,
)


@settings(deadline=None)  # the machine may be busy
@given(values, st.booleans(), st.integers(0, 3_000))
def test_no_value_raises_or_overflows(value, in_itself, budget):
    if in_itself and type(value) is list:
        value.append(value)
    output = to_tool_output(value, budget)
    output.text.encode()
    is_by_reference(value)
    assert len(outline(value, budget)) <= budget
