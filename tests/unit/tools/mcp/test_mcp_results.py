"""Results of MCP tools: every part reaches the model, none twice, and code gets Python values."""

import base64
from types import SimpleNamespace

import pytest

from agent_magics.dispatch.results.stored import HandleStore
from agent_magics.protocol.items import InputImage, InputText
from agent_magics.protocol.mcp import McpBlob, McpContents, McpResult, McpTool
from agent_magics.tools.mcp.results import (
    NO_REASON,
    NOTHING,
    contents_output,
    output_of,
    value_of,
)

TOOL = McpTool("things", "get")
WRAPPED = McpTool("things", "get", output_schema={"properties": {"result": {"type": "integer"}}})
PNG = base64.b64encode(b"\x89PNG").decode()
PICTURE = InputImage(f"data:image/png;base64,{PNG}")


def context(budget=1_000, *, from_code=False):
    return SimpleNamespace(
        handles=HandleStore(),
        output_budget=budget,
        is_from_code=from_code,
        origin=((), None),
        turn=SimpleNamespace(functions={}),
    )


def result(*texts, **parts):
    return McpResult(tuple(map(InputText, texts)), **parts)


@pytest.mark.parametrize("texts", [(), ("",)])
@pytest.mark.parametrize(("is_error", "told"), [(False, NOTHING), (True, NO_REASON)])
def test_nothing_is_said(texts, is_error, told):
    output = output_of(result(*texts, is_error=is_error), TOOL, context())
    assert (output.success, output.content) == (not is_error, told)
    assert output.value == (NO_REASON if is_error else "")


@pytest.mark.parametrize(
    ("texts", "structured"),
    [
        (['{"a": 1, "b": [2]}'], {"b": [2], "a": 1}),
        (["5"], {"result": 5}),
        (["five"], {"result": "five"}),
        (["one", "two"], {"result": ["one", "two"]}),
        (['{"n": 1}', '{"n": 2}'], {"result": [{"n": 1}, {"n": 2}]}),
    ],
)
def test_what_text_and_structure_both_say_is_told_once(texts, structured):
    output = output_of(result(*texts, structured=structured), TOOL, context())
    assert output.content == "\n".join(texts)


@pytest.mark.parametrize(
    ("texts", "structured"),
    [(["Found one."], {"n": 1}), ([], {"n": 1}), (["null"], {"n": None}), (["1"], {"result": 2})],
)
def test_what_only_one_of_them_says_is_told_too(texts, structured):
    text = output_of(result(*texts, structured=structured), TOOL, context()).text
    assert text.startswith("\n".join(texts))
    assert text.splitlines()[-1].startswith("{")


def test_a_failure_is_told_as_one():
    output = output_of(result("no", is_error=True), TOOL, context())
    assert (output.success, output.content) == (False, "no")


def test_pictures_stay_and_files_are_kept():
    found = McpResult(
        (InputText("see"), PICTURE),
        (McpBlob(base64.b64encode(b"abc").decode(), "audio/wav", "x://1"),),
    )
    where = context()
    words, picture, file = output_of(found, TOOL, where).content
    assert (words, picture) == (InputText("see"), PICTURE)
    assert file.text == "[@r1: audio/wav x://1, 3 bytes; it stands for the bytes]"
    assert where.handles.value_of("@r1") == b"abc"


def test_a_file_that_cannot_be_read_is_told():
    found = McpResult(blobs=(McpBlob("?", "audio/wav"),))
    assert "cannot be read (no base64)" in output_of(found, TOOL, context()).text


def test_a_long_text_is_cut_with_true_counts_and_kept_whole():
    where = context(200)
    output = output_of(result("first " * 50, "last " * 50), TOOL, where)
    whole = "first " * 50 + "\n" + "last " * 50
    assert f"{len(whole) - 200} characters left out" in output.text
    assert f"[@r1: the whole text, {len(whole)} characters in 2 lines;" in output.text
    assert where.handles.value_of("@r1") == whole


def test_code_is_told_no_names():
    where = context(100, from_code=True)
    found = McpResult((InputText("x" * 500),), (McpBlob("YWJj", "audio/wav"),))
    output = output_of(found, TOOL, where)
    assert "@r" not in output.text
    assert output.value == ["x" * 500, b"abc"]


@pytest.mark.parametrize(
    ("found", "tool", "value"),
    [
        (result("five"), TOOL, "five"),
        (result("a", "b"), TOOL, "a\nb"),
        (result("5", structured={"result": 5}), WRAPPED, 5),
        (result("5", structured={"result": 5}), TOOL, {"result": 5}),
        (result("x", structured={"n": [1]}), TOOL, {"n": [1]}),
        (McpResult((PICTURE,)), TOOL, b"\x89PNG"),
        (McpResult((InputText("a"), PICTURE)), TOOL, ["a", b"\x89PNG"]),
        (McpResult((InputImage("https://a/b.png"),)), TOOL, "https://a/b.png"),
    ],
)
def test_values_for_code(found, tool, value):
    assert value_of(found, tool) == value


def test_resources_are_texts_files_and_pictures():
    where = context()
    output = contents_output(
        [
            McpContents("a://1", "text/plain", text="one"),
            McpContents("a://2", blob=base64.b64encode(b"xyz").decode()),
            McpContents("a://3", "image/png", blob=PNG),
        ],
        where,
    )
    assert [getattr(part, "text", part) for part in output.content] == [
        "a://1 (text/plain):\none",
        "[@r1: a file a://2, 3 bytes; it stands for the bytes]",
        "[@r2: image/png a://3, 4 bytes; it stands for the bytes]",
        PICTURE,
    ]
    assert output.value == ["one", b"xyz", b"\x89PNG"]
    assert contents_output([], where).content == "The resource is empty."
