"""The schema of a place in arguments is found soon, however deep the place is."""

import json
import time
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from agent_magics import RespondToModel
from agent_magics.dispatch.arguments.decoding import ArgumentBinder
from agent_magics.dispatch.schema.path import may_be_left_out, schema_at


class Leaf(BaseModel):
    op: Literal["leaf"]
    number: int


class And(BaseModel):
    op: Literal["and"]
    parts: list["Expression"]


class Or(BaseModel):
    op: Literal["or"]
    parts: list["Expression"]


Expression = Annotated[Leaf | And | Or, Field(discriminator="op")]
And.model_rebuild()
Or.model_rebuild()


def find(where: Expression) -> None:
    """Find."""


@pytest.mark.parametrize("leaf", [{"op": "leaf"}, {"op": "leaf", "number": None}])
def test_a_mistake_deep_in_a_recursive_union_is_told_soon(leaf):
    for depth in range(60):
        leaf = {"op": "and" if depth % 2 else "or", "parts": [leaf]}
    start = time.process_time()
    with pytest.raises(RespondToModel, match=r"number \(as leaf\): expected an integer"):
        ArgumentBinder(find).bind_json(json.dumps({"where": leaf}))
    assert time.process_time() - start < 5


def test_a_union_that_is_its_own_member_ends():
    root: dict[str, Any] = {
        "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"properties": {"x": {"type": "null"}}}]}},
        "$ref": "#/$defs/A",
    }
    assert schema_at({**root, "properties": {}}, ()) == root["$defs"]["A"]
    assert schema_at(root, ("x",)) == {"type": "null"}
    assert may_be_left_out(root, ("x",))
