"""What is offered in a prompt: variables, files and prompts, and nothing that is to stay hidden."""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, cast

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_magics.config_files.places import config_folder
from agent_magics.kernel.completion.cells import complete_cell
from agent_magics.kernel.completion.mentions import find_files
from agent_magics.kernel.live.namespace import interpolate
from agent_magics.kernel.magics import AgentMagics

PARSER = AgentMagics.agent.parser


def offered(code: str, workspace: Path = Path(), **namespace: object) -> dict[str, str]:
    """Return what the cell would be with each completion at its end, and of which kind each is."""
    start, found = complete_cell(code, len(code), PARSER, namespace, ("hidden",), workspace)
    return {code[:start] + each.text: each.kind for each in found}


def test_variables_are_offered_with_type_and_shape() -> None:
    frame = pl.DataFrame({"city": ["a"], "n": [1]})
    assert list(offered("%%agent\n@fra", frame=frame).values()) == [
        "polars.DataFrame, 1 rows x 2 columns"
    ]
    people = {"sales": [1, 2], "salary": "abc", "sad": str, "_sal": 1, "salt": pytest, "hidden": 1}
    assert offered("%%agent\nSum @sal", **people) == {
        "%%agent\nSum {{salary}}": "str, 3 characters",
        "%%agent\nSum {{sales}}": "list, 2 elements",
    }
    assert list(offered("%%time\n%%agent -m x\n({{ sale", **people)) == [
        "%%time\n%%agent -m x\n({{ sales"
    ]
    for elsewhere in ("%%agent\nme@sal", "sum(@sal", "x = 1\n%%agent\n@sal"):
        assert not offered(elsewhere, **people)


def test_what_code_has_put_beside_the_names_is_passed_over() -> None:
    namespace: dict[object, object] = {5: 6, "sales": [1]}
    for cell in ("%%agent\n@sal", "%%agent --map sal"):
        _, found = complete_cell(cell, len(cell), PARSER, cast("dict[str, object]", namespace))
        assert [each.text for each in found] in (["sales"], ["{{sales}}"])


ROWS = {"text": ["a"], "a title": ["b"], "tone": ["c"]}
LISTED = [{name: values[0] for name, values in ROWS.items()}]


@pytest.mark.parametrize(
    "rows", [pd.DataFrame(ROWS), pl.DataFrame(ROWS), pa.table(ROWS), LISTED], ids=type
)
def test_a_cell_over_rows_offers_their_columns(rows: object) -> None:
    variables = {"df": rows, "tea": 1}
    for first in (
        "%%agent --map df",
        "%%time\n%%agent -m x --map='df' --into y",
        "%%agent --map  df ",
    ):
        assert offered(f"{first}\nIs it {{{{te", **variables) == {
            f"{first}\nIs it {{{{text": "column"
        }
    assert list(offered("%%agent --map df\n{{", **variables)) == [
        f"%%agent --map df\n{{{{{name}" for name in ROWS
    ]
    assert list(offered("%%agent --map df\n{{ a t", **variables)) == [
        "%%agent --map df\n{{ a title"
    ]
    assert list(offered("%%agent --map df\n@t", **variables)) == [
        f"%%agent --map df\n{{{{{name}}}}}" for name in ("text", "tone")
    ]


def test_a_cell_over_rows_that_are_not_known_offers_no_variables() -> None:
    frames = {"lazy": pl.LazyFrame(ROWS), "own": LazyFrame(ROWS), "odd": [{1: 2}], "text": "a"}
    for rows in ("nothing", "lazy", "own", "odd", "text", "data/*.csv", "df[:3]"):
        assert not offered(f"%%agent --map {rows}\n{{{{t", **frames)


class Lazy:
    """A value that begins to work when it is looked at, as proxies and mocks do."""

    looked_at: ClassVar[list[str]] = []

    def __getattribute__(self, name: str) -> object:
        Lazy.looked_at.append(name)
        return object.__getattribute__(self, name)

    def __call__(self) -> None: ...


class LazyFrame(pd.DataFrame):
    """A table whose size is computed when it is asked for."""

    @property
    def shape(self) -> tuple[int, int]:
        Lazy.looked_at.append("shape")
        return 1, 1


@pytest.mark.parametrize(
    "begun",
    ["\n@va", "\n{{va", " --map va", " --into va", " --output va", " --tools va", " --model va"],
)
def test_values_are_not_asked_for_anything(begun: str) -> None:
    frame = LazyFrame({"n": [1]})
    Lazy.looked_at.clear()
    offered(f"%%agent{begun}", value=Lazy(), values=frame)
    assert Lazy.looked_at == []


def test_files_are_offered_but_for_ignored_and_secret_ones(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".gitignore").write_text("built/\n*.log\n", encoding="utf-8")
    names = ("sales.csv", "sales.log", "data/sales 2.csv", "built/sales.csv", ".env", "id_rsa")
    for name in (*names, "data/a{{1 + 1}}.csv", "data/deep/sales.txt"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("", encoding="utf-8")
    (tmp_path / "sales.link").symlink_to("/etc/passwd")

    def texts(begun: str) -> list[str]:
        return [each.text for each in find_files(begun, tmp_path)]

    assert texts("sal") == ["sales.csv", "data/deep/sales.txt", "`data/sales 2.csv`"]
    assert texts("") == ["data/", "sales.csv"]
    assert texts("data/") == ["data/deep/", "`data/sales 2.csv`"]
    assert texts(".e") == texts("id_") == texts("built/") == texts("../") == texts("/etc/") == []


@given(st.text("a{}\\`b ", min_size=1, max_size=20))
def test_the_name_of_a_file_is_never_evaluated(name: str) -> None:
    with TemporaryDirectory() as folder:
        (Path(folder) / f"x{name}").touch()
        for each in find_files("x", Path(folder)):
            assert interpolate(f"of {each.text} by", {}) == f"of {each.text} by"


def test_models_and_values_of_options_are_offered() -> None:
    assert "%%agent --model gpt-5.1-codex" in offered("%%agent --model gpt-5.1-c")
    assert "%%agent --approval never" in offered("%%agent --approval nev\nGo."[:22])
    assert list(offered("%%agent --map sal", sales=[1])) == ["%%agent --map sales"]
    assert list(offered("%%agent --output Ro", Row=int, Roads=1)) == ["%%agent --output Row"]
    assert list(offered("%%agent --engine cl", client=1)) == ["%%agent --engine client"]


def test_where_there_is_no_prompt_it_is_told_where_they_would_stand(tmp_path: Path) -> None:
    for begun in ("/", "/rev"):
        start, found = complete_cell(
            f"%%agent\n{begun}", 8 + len(begun), PARSER, {}, workspace=tmp_path
        )
        told = "no prompts yet: write .agent_magics/prompts/name.md"
        assert (start, [*map(tuple, found)]) == (8, [(begun, told)])
    assert offered("%%agent\nof /", tmp_path) == {}
    own_prompts = config_folder() / "prompts"
    own_prompts.mkdir(parents=True)
    (own_prompts / "review.md").write_text("Review it.", encoding="utf-8")
    assert list(offered("%%agent\n/", tmp_path)) == ["%%agent\n/review"]
