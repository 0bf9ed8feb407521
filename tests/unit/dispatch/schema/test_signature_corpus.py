"""240 signatures of the kind people write, each with its exact schema or its exact refusal.

The corpus has three lines a signature: what stands between the parentheses, whether strict mode
fits (or why not, or "refused"), and the schema (or the sentence).
"""

import json
import pickle
from pathlib import Path

import pytest

from agent_magics import FatalError, ScriptedModel, tool
from agent_magics.app import Agent
from agent_magics.dispatch.schema.generation import STRICT_KEYWORDS
from tests.support.corpora import signature_names

TEXT = (Path(__file__).parent / "signature_corpus.txt").read_text(encoding="utf-8")
CASES = [tuple(part.split("\n")) for part in TEXT.strip().split("\n\n")]


def define(signature):
    """Return a function with these parameters, among the names that people have."""
    namespace = dict(vars(signature_names))
    parameters = "" if signature == "(nothing)" else signature
    exec(f"def f({parameters}):\n    'Do.'\n", namespace)
    return namespace["f"]


def without_handle_words(schema):
    """Return a schema without what is told about kept values, which is tested elsewhere."""
    if isinstance(schema, list):
        return [without_handle_words(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    left = {word: without_handle_words(each) for word, each in schema.items()}
    if left.get("format") == "handle":
        left.pop("description")
    return left


def test_there_are_enough():
    assert len(CASES) >= 200
    assert len({signature for signature, _, _ in CASES}) == len(CASES)


@pytest.mark.parametrize(("signature", "mode", "words"), CASES, ids=[case[0] for case in CASES])
def test_a_signature(signature, mode, words):
    fn = tool(define(signature))
    if mode == "refused":
        with pytest.raises(FatalError) as caught:
            _ = fn.spec.parameters
        assert str(caught.value) == words
        return
    assert without_handle_words(fn.spec.parameters) == json.loads(words)
    assert (fn.spec.strict, fn.spec.strict_reason) == (
        mode == "strict",
        mode.removeprefix("not strict: ") if mode != "strict" else "",
    )


@pytest.mark.parametrize(
    "case", [case for case in CASES if case[1] == "strict"], ids=lambda c: c[0]
)
def test_what_is_strict_is_within_the_providers_subset(case):
    told = {"default", "format", "pattern", "minLength", "maxLength", "uniqueItems", "examples"}

    def check(schema):
        assert schema.keys() <= STRICT_KEYWORDS | told
        if schema.get("type") == "object":
            assert schema["additionalProperties"] is False
        for inner in [*schema.get("properties", {}).values(), *schema.get("$defs", {}).values()]:
            check(inner)
        for inner in schema.get("anyOf", ()):
            check(inner)
        if "items" in schema:
            check(schema["items"])

    check(json.loads(case[2]))


def test_a_refusal_comes_in_the_first_run_as_one_sentence():
    agent = Agent(ScriptedModel(["Done."]), [define("x: bytes")], approval="never")
    result = agent.run_sync("Go.")
    assert result.status == "failed"
    assert result.error.startswith("f: parameter 'x' has the type bytes")


# -- pickling --------------------------------------------------------------------------------------


@tool(parallel=True, init=list, timeout=5)
def importable(x: int) -> int:
    """Do."""
    return x


def test_a_tool_goes_through_pickle_like_any_function():
    copy = pickle.loads(pickle.dumps(importable))
    assert copy is importable
    _ = importable.spec.parameters
    assert pickle.loads(pickle.dumps([importable, {"f": importable}]))[0](3) == 3


def test_options_and_spec_can_be_pickled_by_themselves():
    options = pickle.loads(pickle.dumps(importable.tool_options))
    assert (options.name, options.timeout, options.parallel) == ("importable", 5, True)
    spec = pickle.loads(pickle.dumps(importable.spec))
    assert (spec.name, spec.parameters) == (importable.spec.name, importable.spec.parameters)
