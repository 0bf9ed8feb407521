"""What a run does to a namespace: seen, told and put back, without asking values for anything."""

import copy
from typing import Any

import numpy
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from agent_magics.kernel.live import changes, saved_values
from agent_magics.kernel.live.changes import Changes, RunChange, Watch, names_in


def ran(code: str, namespace: dict[str, Any]) -> RunChange:
    """Run `code` under a watch."""
    watch = Watch(namespace, code, {"In"})
    exec(code, namespace)
    return watch.end()


def put_back(change: RunChange, namespace: dict[str, Any]) -> dict[str, str]:
    """Put `change` back; return what was left alone, and why."""
    kept = Changes()
    kept.add(change)
    (same, left) = kept.put_back(namespace)
    assert same is change
    assert kept.put_back(namespace) is None
    return left


def visible(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the person's own names."""
    return {name: value for name, value in namespace.items() if name[0] != "_" and name != "In"}


def test_rebinding_is_seen_and_put_back():
    namespace = {"a": 1, "b": 2, "c": 3, "In": [], "_x": 1}
    change = ran("a = 10\ndel b\nnew = 5\n_x = 2\nIn.append(1)", namespace)
    assert (change.added, change.changed, change.deleted) == (("new",), ("a",), ("b",))
    assert str(change) == "added new; changed a; deleted b"
    assert put_back(change, namespace) == {}
    assert visible(namespace) == {"a": 1, "b": 2, "c": 3}


def test_what_is_no_name_is_passed_over():
    assert ran("globals()[5] = a = 6", {4: 5}).added == ("a",)


def test_nothing_changed_is_nothing():
    namespace = {"a": [1, {"b": 2}]}
    assert not ran("print\na\nc = 1\ndel c", namespace)


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ([1, 2], "x.append(3)"),
        ([1, 2], "x[0] = 5"),
        ([2, 1], "x.sort()"),
        ({"a": 1}, "x['b'] = 2"),
        ({"a": 1}, "x['a'] = 2"),
        ({1, 2}, "x.add(3)"),
        ({1, 2}, "x.remove(1); x.add(3)"),
        (bytearray(b"ab"), "x[0] = 0"),
        ({"a": [1, {"b": [2]}]}, "x['a'][1]['b'].append(3)"),
        (([1], 2), "x[0].append(3)"),
    ],
)
def test_plain_containers_are_put_back_in_place(value, code):
    namespace = {"x": value, "alias": [value]}
    before = repr(value)
    change = ran(code, namespace)
    assert change.changed == ("x",)
    assert repr(value) != before
    assert put_back(change, namespace) == {}
    assert namespace["x"] is value is namespace["alias"][0]
    assert repr(value) == before


def test_a_list_that_holds_itself():
    endless: list[Any] = [1]
    endless.append(endless)
    namespace = {"x": endless}
    change = ran("x.append(2)", namespace)
    assert put_back(change, namespace) == {}
    assert len(endless) == 2 and endless[1] is endless


def test_a_change_through_a_function_that_the_code_calls():
    namespace = {"x": [1]}
    exec("def deep():\n    x.append(2)\ndef add():\n    return (lambda: deep())()", namespace)
    assert ran("add()", namespace).changed == ("x",)


def test_values_nobody_names_are_not_copied():
    assert names_in("a.b(c)\nd = 1", dict.fromkeys("abcd", 0)) == {"a", "c", "d"}
    assert names_in("%magic a\n!b", dict.fromkeys("abc", 0)) == {"a", "b"}


@pytest.mark.parametrize(
    "around",
    [
        *(
            "%%time\n{}",
            "%%capture out\n%time {}",
            "%time {}",
            "w = %time {}",
            "if 1:\n    %time {}",
        ),
        *("%%timeit -n1 {}", "%%timeit -n1\n{}", "exec({!r})", "eval('1;' + {!r})"),
    ],
)
@pytest.mark.parametrize("code", ["x.append(y['k'])", "add(1)", "x[0] = 'add'"])
def test_code_in_a_magic_names_what_it_names_by_itself(around, code):
    namespace = {"x": [1], "y": {"k": 1}, "z": [1], "time": [1]}
    exec("def add(n):\n    x.append(n)", namespace)
    wrapped = TransformerManager().transform_cell(around.format(code))
    assert names_in(code, namespace) <= names_in(wrapped, namespace) <= {*"xy", "add", "time"}
    watch = Watch(namespace, wrapped)
    exec(code, namespace)
    assert watch.end().changed == ("x",)


def test_hostile_elements_are_only_compared_by_identity():
    class Hostile:
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            raise AssertionError("nobody may compare it")

        __repr__ = None

    one, two = Hostile(), Hostile()
    namespace = {"x": [one], "y": {"k": one}, "z": {one}, "H": one}
    change = ran("x[0] = two; y['k'] = two; z.add(two)", namespace | {"two": two})
    assert set(change.changed) == {"x", "y", "z"}


def test_arrays():
    array = numpy.array([1.0, numpy.nan])
    namespace = {"x": array, "y": array.copy()}
    assert not ran("x.sum(); y + 1", namespace)
    change = ran("x[0] = 5; y.resize(3, refcheck=False)", namespace)
    assert set(change.changed) == {"x", "y"}
    assert put_back(change, namespace) == {}
    assert namespace["x"] is array
    assert array[0] == 1.0 and namespace["y"].shape == (2,)


@pytest.mark.parametrize(
    "code",
    [
        "x['new'] = 1",
        "x.loc[0, 'n'] = 9.0",
        "x.loc[0, 'day'] = 'z'",
        "del x['n']",
        "x.columns = ['p', 'q']",
        "x.index = [5, 6]",
        "x.insert(0, 'first', [0, 0])",
        "x['n'] = x['n'].astype('int32')",
        "x = x[x.n > 1]",
    ],
)
def test_tables(code):
    namespace = {"x": pandas.DataFrame({"day": ["a", "b"], "n": [1.0, 2.0]})}
    before = namespace["x"].copy(deep=True)
    assert not ran("x.head(); x.n.sum(); y = 1; del y", namespace)
    change = ran(code, namespace)
    assert change.changed == ("x",)
    assert put_back(change, namespace) == {}
    pandas.testing.assert_frame_equal(namespace["x"], before)


RELABELLED = [
    "x.columns = x.columns.astype(str)",
    "x.columns = [0, 1.0]",
    "x.columns = pandas.MultiIndex.from_product([[0], [0, 1]])",
    "x.columns.name = 'c'",
    "x.columns.name = 1",
    "x.index.name = 'id'",
    "x.index = x.index.astype(float)",
    "x.index = x.index.astype(object)",
    "x.index = pandas.MultiIndex.from_tuples([(0, 1), (0, 2)])",
    "x.index = pandas.to_datetime(['2024-01-01', '2024-01-02'])",
]


@pytest.mark.parametrize("code", RELABELLED)
@pytest.mark.parametrize("limit", [10**9, 0], ids=["copied", "outlined"])
def test_labels_are_part_of_a_table(code, limit, monkeypatch):
    monkeypatch.setattr(changes, "COPY_LIMIT", limit)
    frame = pandas.DataFrame({0: [0, 1], 1: [2, 3]}, index=[0, 1])
    namespace: dict[str, Any] = {"x": frame, "pandas": pandas}
    assert not ran("x.sum(); x.columns = [*x.columns]; x.index = [*x.index]", namespace)
    before = frame.copy(deep=True)
    change = ran(code, namespace)
    assert change.changed == ("x",)
    if limit:
        assert put_back(change, namespace) == {}
        pandas.testing.assert_frame_equal(namespace["x"], before)


@pytest.mark.parametrize(
    "code", ["x.name = 1", "x.name = 1.0", "x.name = None", "x.index.name = 'i'"]
)
def test_the_name_of_a_series_is_part_of_it(code):
    namespace: dict[str, Any] = {"x": pandas.Series([1, 2], name="1")}
    before = namespace["x"].copy()
    change = ran(code, namespace)
    assert change.changed == ("x",)
    assert put_back(change, namespace) == {}
    pandas.testing.assert_series_equal(namespace["x"], before)


@pytest.mark.soak
@pytest.mark.parametrize(
    "code", ["x.iloc[:, 2_999] = 5.0", "x.columns = [*range(2_999), 'last']", "x[1_200] = 0"]
)
def test_a_wide_table_is_compared_whole(code):
    namespace = {"x": pandas.DataFrame(numpy.zeros((3, 3_000)))}
    before = namespace["x"].copy(deep=True)
    change = ran(code, namespace)
    assert change.changed == ("x",)
    assert put_back(change, namespace) == {}
    pandas.testing.assert_frame_equal(namespace["x"], before)


def test_labels_of_a_type_are_the_same_by_their_values():
    nan = [float("nan"), float("nan")]
    labels = [[1, "a", nan[0], (1, nan[0])], [1, "".join(["", "a"]), nan[1], (1, nan[1])]]
    other = [[True, *labels[0][1:]], [1.0, *labels[0][1:]], [*labels[0][:3], (True, nan[0])]]
    old, same, *others = (
        pandas.Index(each, dtype=object, tupleize_cols=False) for each in (*labels, *other)
    )
    assert saved_values._same_index(old, same)
    assert not any(saved_values._same_index(old, each) for each in others)


@pytest.mark.parametrize("limit", [10**9, 0], ids=["copied", "outlined"])
def test_labels_of_foreign_classes_are_asked_nothing(limit, monkeypatch):
    class Hostile:
        __hash__ = object.__hash__

        def _refuse(self, *_: Any) -> Any:
            raise SystemExit("nobody may ask")

        __repr__ = __str__ = __eq__ = __bool__ = _refuse

    monkeypatch.setattr(changes, "COPY_LIMIT", limit)
    one, two = Hostile(), Hostile()
    labels = [one, (1, two)]
    frame = pandas.DataFrame([[1, 2], [3, 4]])
    frame.columns = frame.index = pandas.Index(labels, dtype=object, tupleize_cols=False)
    series = pandas.Series([1], name=one)
    namespace = {"x": frame, "y": series, "labels": labels, "one": one, "two": two}
    assert not ran("x; y; x.columns = labels; y.name = one", namespace)
    assert set(ran("x.columns = labels[::-1]; y.name = two", namespace).changed) == {"x", "y"}


def test_a_series():
    namespace = {"x": pandas.Series([1, 2], name="n")}
    change = ran("x[0] = 5", namespace)
    assert put_back(change, namespace) == {}
    assert list(namespace["x"]) == [1, 2]


def test_what_the_person_has_assigned_since_is_left_alone():
    namespace = {"a": 1, "b": [1]}
    change = ran("a = 2\nb.append(2)\nnew = 3", namespace)
    namespace["a"], namespace["new"] = 10, 11
    reason = "it has been assigned again since"
    assert put_back(change, namespace) == {"a": reason, "new": reason}
    assert visible(namespace) == {"a": 10, "b": [1], "new": 11}


EDITS = {
    "list": ([1], "x.append({n})", "x[0] = {n}", "x = [{n}]"),
    "nested": ({"a": [1, {"b": [2]}]}, "x['a'][1]['b'].append({n})", "x['a'][0] = {n}"),
    "set": ({1}, "x.add({n})", "x = {{{n}}}"),
    "array": (
        numpy.array([1, 2]),
        "x[0] = {n}",
        "x.resize({n}, refcheck=False)",
        "x = numpy.append(x, {n})",
    ),
    "frame": (
        pandas.DataFrame({"a": [1, 2], "b": ["c", "d"]}),
        "x['c'] = {n}",
        "x.loc[0, 'a'] = {n}",
        "x.loc[1, 'b'] = '{n}'",
        "x.index.name = '{n}'",
        "x = x.assign(d={n})",
    ),
    "series": (pandas.Series([1, 2]), "x[0] = {n}", "x.name = '{n}'"),
}


@given(st.data())
@pytest.mark.parametrize(("value", "edits"), [(v, e) for v, *e in EDITS.values()], ids=EDITS)
def test_what_the_person_has_changed_since_is_left_alone(value, edits, data):
    """Undo restores what was before a run where the person changed nothing since, else nothing."""
    namespace: dict[str, Any] = {"x": copy.deepcopy(value), "numpy": numpy}
    events = st.lists(st.tuples(st.booleans(), st.sampled_from(edits)), max_size=6)
    kept, before, last_edit = Changes(), [], -1
    for number, (by_agent, code) in enumerate(data.draw(events)):
        if by_agent:
            before.append((number, repr_of(namespace)))
            kept.add(ran(code.format(n=number + 10), namespace))
        else:
            exec(code.format(n=number + 10), namespace)
            last_edit = number
    for number, was in reversed(before):
        now = repr_of(namespace)
        assert bool(kept.put_back(namespace)[1]) is (last_edit > number)
        assert repr_of(namespace) == (now if last_edit > number else was)


def repr_of(namespace: dict[str, Any]) -> str:
    x = namespace["x"]
    return repr((x, getattr(x, "name", None), getattr(getattr(x, "index", None), "name", None)))


def test_a_table_that_the_code_made_stays_once_the_person_has_changed_it():
    namespace: dict[str, Any] = {"rows": [1], "pandas": pandas}
    made = "new = pandas.DataFrame({'a': [1, 2]}); more = [1]; untouched = {1}"
    change = ran(made, namespace)
    exec("new['mine'] = 1; more.append('mine')", namespace)
    reason = "it has been changed since"
    assert put_back(change, namespace) == {"new": reason, "more": reason}
    assert "untouched" not in namespace
    assert list(namespace["new"].columns) == ["a", "mine"]


def test_two_names_of_one_value_are_put_back_together():
    rows = [1]
    namespace = {"x": rows, "y": rows, "z": {"k": rows}}
    change = ran("x.append(2); y; z", namespace)
    assert set(change.changed) == {"x", "y", "z"}
    assert put_back(change, namespace) == {}
    assert rows == [1]


def test_what_is_changed_after_going_back_stays_when_turns_are_done_again():
    namespace: dict[str, Any] = {"x": [1], "y": pandas.DataFrame({"a": [1]})}
    kept = Changes()
    kept.add(ran("x.append(2); y['b'] = 2", namespace))
    _, undone = kept.put_back_turns({""}, namespace)
    exec("x.append('mine'); y['mine'] = 1", namespace)
    assert set(kept.put_forth(undone, namespace)) == {"x", "y"}
    assert namespace["x"] == [1, "mine"] and list(namespace["y"]) == ["a", "mine"]


def test_a_table_of_two_names_is_undone_under_both():
    """One of them is restored as another table; the first then shows the agent's own change."""
    namespace: dict[str, Any] = {"pandas": pandas}
    kept = Changes()
    for code in ("x = pandas.DataFrame({'a': [1]})", "y = x; x['b'] = 1", "x['c'] = 2"):
        kept.add(ran(code, namespace))
    assert kept.put_back_turns({""}, namespace)[0] == {}
    assert not {"x", "y"} & namespace.keys()


def test_what_tells_of_later_changes_in_arrays_takes_no_undo_away(monkeypatch):
    monkeypatch.setattr(changes, "HELD_LIMIT", 10_000)
    namespace: dict[str, Any] = {"numpy": numpy}
    kept = Changes()
    for name in "abcd":
        kept.add(ran(f"{name} = numpy.zeros(1_000)", namespace))
    namespace["b"][0] = 1
    assert [kept.put_back(namespace)[1] for _ in "dcba"] == [
        {},
        {},
        {"b": "it has been changed since"},
        {},
    ]


def test_what_tells_of_later_changes_is_held_within_the_bound(monkeypatch):
    monkeypatch.setattr(changes, "HELD_LIMIT", 10_000)
    namespace: dict[str, Any] = {"x": numpy.zeros(1_000), "numpy": numpy}
    change = ran("x[0] = 1; y = numpy.zeros(500); z = numpy.zeros(100)", namespace)
    assert change.held <= 10_000
    namespace["z"].resize(200, refcheck=False)
    assert set(put_back(change, namespace)) == {"z"}


def test_what_is_too_large_is_seen_by_its_outline_and_not_put_back(monkeypatch):
    monkeypatch.setattr(changes, "COPY_LIMIT", 100)
    namespace = {"x": numpy.zeros(100), "y": [1] * 100}
    change = ran("x.resize(200, refcheck=False); y.append(2)", namespace)
    assert set(change.changed) == {"x", "y"}
    reason = "what it was is too large to be kept"
    assert put_back(change, namespace) == {"x": reason, "y": reason}


def test_old_values_are_held_within_a_bound(monkeypatch):
    monkeypatch.setattr(changes, "HELD_LIMIT", 1_000)
    namespace: dict[str, Any] = {"x": "x" * 2_000, "y": "y" * 800}
    large = ran("x = 1", namespace)
    assert large.held == 0
    assert put_back(large, namespace) == {"x": "what it was is too large to be kept"}
    kept = Changes()
    namespace["x"] = "x" * 800
    kept.add(ran("x = 1", namespace))
    kept.add(ran("y = 1", namespace))
    assert kept.put_back(namespace) is not None
    assert kept.put_back(namespace) is None, "the older one held too much"


NESTED = {
    "rows": lambda: [{"a": n, "b": [n]} for n in range(5_000)],
    "a table in a dict": lambda: {"df": pandas.DataFrame({"a": [1, 2]})},
    "an array in a list": lambda: [numpy.zeros(3)],
    "a list in a tuple": lambda: ([1, 2], {"a": [3]}),
    "an array in a tuple in a dict": lambda: {"x": (numpy.zeros(3), [1])},
    "a long list in a dict": lambda: {"rows": list(range(30_000))},
}
EDITS = {
    "rows": "for row in x: row['c'] = 1; row['b'].append(2)",
    "a table in a dict": "x['df']['a'] = 5",
    "an array in a list": "x[0][1] = 7",
    "a list in a tuple": "x[0].append(3); x[1]['a'].clear()",
    "an array in a tuple in a dict": "x['x'][0][2] = 1; x['x'][1].append(2)",
    "a long list in a dict": "x['rows'].append(1); x['k'] = 2",
}


@pytest.mark.parametrize("case", NESTED)
def test_what_is_changed_deep_inside_is_put_back_whole(case):
    namespace = {"x": NESTED[case]()}
    change = ran(EDITS[case], namespace)
    assert change.changed == ("x",)
    assert put_back(change, namespace) == {}
    assert repr(namespace["x"]) == repr(NESTED[case]())


@pytest.mark.parametrize("case", NESTED)
def test_what_the_person_changed_deep_inside_since_stays(case):
    namespace: dict[str, Any] = {"make": NESTED[case]}
    change = ran("x = make()", namespace)
    exec(EDITS[case], namespace)
    assert put_back(change, namespace) == {"x": "it has been changed since"}
    assert "x" in namespace


def test_what_did_not_change_inside_stays_the_same_object():
    table = pandas.DataFrame({"a": [1]})
    namespace = {"x": {"df": table, "rows": [1]}, "df": table}
    change = ran("x['rows'].append(2)", namespace)
    assert put_back(change, namespace) == {}
    assert namespace["x"]["rows"] == [1] and namespace["x"]["df"] is namespace["df"] is table


def test_what_is_too_large_inside_is_not_said_to_be_put_back(monkeypatch):
    monkeypatch.setattr(saved_values.CopyBudget.__init__, "__defaults__", (10,))
    namespace = {"x": {"rows": [1] * 20}}
    change = ran("x['rows'].append(2); x['k'] = 3", namespace)
    assert put_back(change, namespace) == {"x": "what it was is too large to be kept"}


def test_copying_is_bounded_in_elements(monkeypatch):
    monkeypatch.setattr(saved_values, "MOST_ELEMENTS", 10)
    budget = saved_values.CopyBudget(10**9, 10)
    assert saved_values.save([1] * 8, budget).can_be_put_back
    assert not saved_values.save([1] * 8, budget).can_be_put_back


def test_a_library_that_fails_is_no_failure_of_the_run():
    broken = pandas.DataFrame.__new__(pandas.DataFrame)
    assert not ran("x", {"x": broken})


def test_a_thousand_variables_that_may_be_asked_nothing():
    """Each named by the code, half of them of a class that refuses every question."""

    class Hostile:
        __hash__ = None

        def _refuse(self, *_: Any) -> Any:
            raise SystemExit("nobody may ask")

        __repr__ = __eq__ = __len__ = __bool__ = __getattribute__ = __sizeof__ = _refuse
        __reduce_ex__ = __copy__ = __deepcopy__ = _refuse

    values = [Hostile(), [1] * 20, {"a": [1]}, Hostile()]
    namespace = {f"v{n}": values[n % 4] for n in range(1_000)}
    code = "\n".join(f"v{n}" for n in range(1_000)) + "\nv1.append(2)\nv4 = 5\nv8 = v3"
    change = ran(code, namespace)
    assert change.added == change.deleted == ()
    assert set(change.changed) == {f"v{n}" for n in range(1, 1_000, 4)} | {"v4", "v8"}
    assert put_back(change, namespace) == {}
    assert namespace["v1"] == [1] * 20
    assert namespace["v8"] is values[0]


STEPS = (
    "x = {new}",
    "x.append({new}) if isinstance(x, list) else None",
    "x = [x]",
    "y = x",
    "del y",
    "frame['a'] = {new}",
    "frame.loc[0, 'a'] = {new}",
    "array[0] = {new}",
    "array = array + 1",
)


@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 9)), min_size=1, max_size=8))
def test_turns_go_back_forth_and_back_again(steps):
    """Each run is a turn; what they did is undone from any of them on, and done again."""
    namespace = {
        "x": [1],
        "y": 0,
        "frame": pandas.DataFrame({"a": [1, 2]}),
        "array": numpy.array([1, 2]),
    }
    kept, states, turns = Changes(), [as_dict(namespace)], []
    for number, (code, new) in enumerate(steps):
        if code == "del y" and "y" not in namespace:
            continue
        change = ran(code.format(new=new), namespace)
        change.turn_id = str(number)
        kept.add(change)
        states.append(as_dict(namespace))
        turns.append(str(number))
    for first in (len(turns) - 1, 0, 0):
        back, undone = kept.put_back_turns(turns[first:], namespace)
        assert (back, as_dict(namespace)) == ({}, states[first])
        forth = kept.put_forth(undone, namespace)
        assert (forth, as_dict(namespace)) == ({}, states[-1])


def as_dict(namespace: dict[str, Any]) -> str:
    """Return the variables in the order in which they were there first."""
    order = ("x", "y", "frame", "array")
    return repr({name: namespace[name] for name in order if name in namespace})


def test_what_was_assigned_since_stays_when_turns_are_done_again():
    namespace: dict[str, Any] = {"a": 1, "b": [1]}
    kept = Changes()
    kept.add(ran("a = 2\nb.append(2)", namespace))
    _, undone = kept.put_back_turns({""}, namespace)
    namespace["a"] = "mine"
    assert set(kept.put_forth(undone, namespace)) == {"a"}
    assert visible(namespace) == {"a": "mine", "b": [1, 2]}
