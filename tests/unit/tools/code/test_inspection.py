"""The namespace at a glance: what is shown, and what nobody asks a value for."""

import sys
import time
from pathlib import Path
from typing import Any

import pandas
import pytest

from agent_magics.protocol.errors import RespondToModel
from agent_magics.tools import inspect_variables
from agent_magics.tools.code import inspection
from tests.support.contexts import in_turn, make_context


class Kernel:
    """A namespace, as a live kernel lends it."""

    def __init__(self, **namespace: Any) -> None:
        self.namespace = namespace


def look(*arguments: Any, **namespace: Any) -> Any:
    context = in_turn(make_context(Path()), live_kernel=Kernel(**namespace))
    return inspect_variables(*arguments, ctx=context)


class Hostile:
    """Whoever asks it for anything fails the test, or hangs."""

    __hash__ = None

    def _refuse(self, *_: Any) -> Any:
        raise SystemExit("nobody may ask")

    __repr__ = __str__ = __eq__ = __len__ = __bool__ = __iter__ = __getattr__ = _refuse
    __sizeof__ = __dir__ = __getattribute__ = _refuse
    __class__ = property(_refuse)


class Model:
    """An estimator in the manner of scikit-learn."""

    def __init__(self, alpha: float = 1.0, solver: str = "auto") -> None:
        self.alpha = alpha
        self.solver = solver

    def fit(self) -> None:
        self.coef_ = [1.0]

    def get_params(self) -> dict[str, Any]:
        raise AssertionError("parameters are read, not asked for")


def test_plain_values_are_shown_with_their_sizes():
    shown = str(look(n=5, name="a\nb", items=[1, 2], table={"a": 1}, none=None, big=10**5000))
    assert shown.splitlines()[:2] == ["big: int", "items: list, 2 elements, 144 bytes"]
    assert "n: int = 5" in shown
    assert "name: str, 3 characters = 'a\\nb'" in shown
    assert "table: dict, 1 element" in shown


def test_functions_classes_and_modules_are_only_named():
    found = look(f=look, C=Model, m=sys, n=1, p=print)
    assert [variable.name for variable in found] == ["n"]
    assert str(found).endswith("[functions: f, p]\n[classes: C]\n[modules: m]")


def test_hidden_names_have_to_be_asked_for():
    namespace = {"_": 1, "_private": 2, "In": [], "Out": {}, "get_ipython": print, "seen": 3}
    assert [v.name for v in look(**namespace)] == ["seen"]
    assert [v.name for v in look("_p*", **namespace)] == ["_private"]


def test_several_patterns():
    assert [v.name for v in look("a*, ?c", ab=1, ac=2, bc=3, cd=4)] == ["ab", "ac", "bc"]


def test_tables_have_columns_types_and_missing_counts():
    frame = pandas.DataFrame({"day": ["a", None, "c"], "n": [1.0, None, None]})
    (shown,) = look(df=frame)
    assert shown.words.startswith("pandas.DataFrame, 3 rows x 2 columns (day str, n float64), ")
    (full,) = look("*", "full", df=frame)
    assert full.lines[1:] == ("day: str, 1 missing", "n: float64, 2 missing")
    (series,) = look("*", "full", s=frame["n"])
    assert series.lines == ("missing: 2",)


def test_missing_values_of_huge_tables_are_counted_in_the_first_rows(monkeypatch):
    monkeypatch.setattr(inspection, "MOST_COUNTED", 4)
    frame = pandas.DataFrame({"a": [None] * 9, "b": [1] * 9})
    (full,) = look("*", "full", df=frame)
    assert full.lines[1:] == (
        "a: object, 2 missing",
        "b: int64",
        "(missing values counted in the first 2 rows)",
    )


def test_models_show_their_parameters_without_being_asked():
    fitted = Model(alpha=0.5)
    fitted.fit()
    new, old = look("*", "full", a=Model(), b=fitted)
    assert new.words.endswith("Model(alpha=1.0, solver='auto')")
    assert (new.lines, old.lines) == (("not fitted",), ("fitted: coef_",))


def test_nobody_asks_a_hostile_value_for_anything(tmp_path):
    closed = (tmp_path / "closed").open("w")
    closed.close()
    lazy = (n for n in iter(lambda: pytest.fail("nobody may run it"), None))
    hostile = Hostile()
    for level in (None, "full"):
        shown = look(
            "*", level, hostile=hostile, inside=[hostile], named={"k": hostile}, f=closed, lazy=lazy
        )
        assert [v.words.rpartition(".")[2] for v in shown if v.name == "hostile"] == ["Hostile"]
        assert "named: dict, 1 element" in str(shown)
        assert "cannot be looked at" not in str(shown)


def test_a_class_whose_library_fails_harms_no_other():
    broken = pandas.DataFrame.__new__(pandas.DataFrame)  # half built: every attribute fails
    found = look("*", "full", broken=broken, fine=1)
    assert [variable.name for variable in found] == ["broken", "fine"]
    assert "cannot be looked" in found.shown[0].words


def test_pages_and_bounds():
    names = {f"v{number:03}": number for number in range(260)}
    explored = look(**names)
    assert len(explored) == 200
    assert str(explored).endswith("[200 of 260 variables shown; the rest with a narrower pattern.]")
    page = look("*", "full", 50, 20, **names)
    assert [v.name for v in page][:1] == ["v050"]
    assert str(page).endswith("[20 of 260 variables shown; the rest with offset=70.]")
    assert len(look("*", "full", 0, 1000, **names)) == 50
    with pytest.raises(RespondToModel, match="at least"):
        look("*", None, -1)


def test_the_output_stays_within_the_budget_and_says_what_is_left_out():
    names = {f"v{number:03}": "word " * 12 for number in range(150)}
    output = look(**names).to_output(2_000)
    assert len(output.text) <= 2_000
    assert "of 150 variables shown" in output.text


def test_when_the_time_is_over_variables_are_only_named(monkeypatch):
    monkeypatch.setattr(inspection, "TIME_LIMIT", -1)
    (shown,) = look(a=[1])
    assert shown.words == "list, not looked at: it took too long"


def test_a_thousand_variables_are_looked_at_in_bounded_time():
    values = [Hostile(), Model(), [1] * 1000, {"a": 1}, "text", 5, (n for n in ())]
    names = {f"v{number}": values[number % len(values)] for number in range(1_000)}
    began = time.process_time()
    assert look(**names).total == 1_000
    assert time.process_time() - began < 5


def test_by_hand_it_is_the_main_module_and_elsewhere_it_says_what_is_missing():
    assert inspect_variables("no_such_name*").total == 0
    with pytest.raises(RespondToModel, match="needs a notebook kernel"):
        inspect_variables(ctx=make_context(Path()))
