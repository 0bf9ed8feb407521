"""Items as Markdown and plain text: what a saved notebook shows without anything of ours."""

import json
import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent_magics.render.blocks.display import notice_item
from agent_magics.render.markdown import code_span, make_harmless
from agent_magics.render.tables import table
from agent_magics.render.text import _MARKDOWN, to_markdown, to_plain
from tests.support.pages.readers import Page

EVIL = "<script>press()</script> ![x](http://x) [a](javascript:x) `<b>"


def tool_item(**fields):
    return {
        "version": 1,
        "kind": "tool",
        "name": "shell",
        "title": "ls",
        "status": "completed",
        "arguments": "{}",
        "language": "bash",
        "output": "a.txt\n",
        "exit_code": 0,
        "note": "",
        **fields,
    }


PLAN = {
    "kind": "plan",
    "explanation": "Two things.",
    "steps": [
        {"id": "1", "description": "look", "status": "completed"},
        {"id": "2", "description": "act", "status": "in_progress"},
        {"id": "3", "description": "tell", "status": "pending"},
    ],
}
USAGE = {
    "kind": "usage",
    "input_tokens": 12000,
    "output_tokens": 5,
    "cached_tokens": 1000,
    "requests": 1,
}


def test_a_call():
    assert to_markdown(tool_item()) == "**shell** `ls` (ran, exit code 0)\n\n```\na.txt\n```"
    assert to_plain(tool_item()) == "[shell] ls (ran, exit code 0)\na.txt"


@pytest.mark.parametrize(
    "text",
    [
        "```html\n<p>Run <code>pip install &lt;x&gt;</code> now</p>\n```",
        "~~~\n<code>a &#60; b</code>\n~~~",
        "Write <code>x</code> or <code>a.b()</code>, or `<code>1 &lt; 2</code>`.",
        "<code>a & b</code> <code>&amp;</code>\n<code>\n</code>",
    ],
)
def test_code_in_html_of_an_answer_stays_as_it_is(text):
    assert to_plain({"kind": "text", "text": text}) == text
    cell = text.partition("\n")[0]
    shown = to_plain({"kind": "text", "text": f"| a |\n|---|\n| <code>x</code> {cell} |"})
    assert "<code>x</code>" in shown


@given(st.text(st.sampled_from("ab <>&;#`|[]($\\1é"), min_size=1))
def test_code_of_ours_reads_as_what_it_holds(text):
    """However it is written: as a span, or as an element of entities."""
    span = code_span(text)
    shown = to_plain({"kind": "text", "text": f"It is {span}."})
    assert shown == (f"It is {text}." if span.startswith("<code>") else f"It is {span}.")
    if text.strip():
        listed = to_plain({"kind": "text", "text": table(("Name",), [(span,)])})
        found = "".join(listed.split("\n")[2:])
        assert "".join(found.split()) == "".join(text.split())


HIDDEN = "\u202e\u2066\u200b\x1b[2J\x9b\xad\U000e0041\ufeff\u2028\x07\x08\x7f\u3164\u034f"


@pytest.mark.parametrize(
    "item",
    [
        tool_item(title=f"rm {HIDDEN} x", output=""),
        tool_item(title="", language="python", arguments=json.dumps({"code": f"# {HIDDEN}"})),
        tool_item(title="", language="python", arguments=f"{{{HIDDEN}"),
        tool_item(kind="patch", title=HIDDEN, diff=f"-a\n+{HIDDEN}\n"),
        tool_item(name=f"mcp__{HIDDEN}", title=""),
        {"kind": "changes", "runs": [], "notes": [], "diff": f"+{HIDDEN}\n"}
        | {
            "files": [
                {"path": f"a{HIDDEN}.txt", "added": 1, "removed": 0, "change": "added", "note": ""}
            ]
        },
    ],
)
def test_what_ran_and_what_changed_hide_nothing(item):
    """Law: what a reader judges, later too, shows every sign that hides or turns text."""
    for text in (to_markdown(item), to_plain(item)):
        assert not set(HIDDEN) - set("[2J") & set(text)


def test_a_call_without_output_or_title():
    item = tool_item(output="", title="", exit_code=None)
    assert to_markdown(item) == "**shell** (ran)"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"status": "failed", "exit_code": 2}, "(failed, exit code 2)"),
        ({"status": "denied", "exit_code": None}, "(not run)"),
        ({"status": "running", "exit_code": None}, "(running)"),
        ({"note": "approved by the person"}, "(ran, exit code 0, approved by the person)"),
    ],
)
def test_what_happened_is_said_in_words(fields, words):
    assert words in to_markdown(tool_item(**fields))
    assert words in to_plain(tool_item(**fields))


def test_python_shows_its_code():
    item = tool_item(name="python", language="python", arguments='{"code": "x < 1\\n"}', output="")
    assert "```python\nx < 1\n```" in to_markdown(item)
    broken = tool_item(name="python", language="python", arguments='{"code": "x', output="")
    assert '{"code": "x' in to_markdown(broken)


def test_code_nested_too_deeply_is_shown_as_it_came():
    deep = '{"code": ' + "[" * 200_000
    item = tool_item(name="python", language="python", arguments=deep, output="")
    assert "[[[[" in to_markdown(item)


@pytest.mark.parametrize("kind", ["tool", "patch"])
@pytest.mark.parametrize("language", ["python", "json"])
def test_the_name_of_a_tool_is_only_a_name(kind, language):
    name = "<img src=x>\n\n[x](javascript:y)"
    item = tool_item(kind=kind, name=name, language=language, title="")
    assert to_markdown(item).startswith("**?img?src?x????x??javascript?y?** (ran")
    assert to_markdown(tool_item(name="mcp__a-b.c")).startswith("**mcp__a-b.c** ")


def test_a_title_cannot_leave_its_line():
    item = tool_item(title="a\r\r<img src=x>", output="")
    assert to_markdown(item) == (
        "**shell** <code>a⟨U&#43;000D⟩⟨U&#43;000D⟩&#60;img src&#61;x&#62;</code> (ran, exit code 0)"
    )


def test_a_patch_shows_its_diff_and_on_failure_its_output():
    item = tool_item(kind="patch", name="apply_patch", diff="-a\n+b\n", exit_code=None)
    assert to_markdown(item) == "**apply_patch** (ran)\n\n```diff\n-a\n+b\n```"
    assert to_plain(item).endswith("-a\n+b")
    failed = {**item, "status": "failed", "diff": "", "output": "no such file"}
    assert "no such file" in to_markdown(failed)


def test_a_plan():
    assert to_markdown(PLAN) == "*Two things.*\n\n- [x] look\n- [ ] act *(now)*\n- [ ] tell"
    assert to_plain(PLAN) == "Two things.\n[x] look\n[ ] act (now)\n[ ] tell"


def test_usage():
    line = "12,000 tokens in (1,000 cached), 5 out, 1 request"
    assert to_plain(USAGE) == line
    assert to_markdown(USAGE) == f"*{line}*"
    assert "2 requests" in to_plain({**USAGE, "requests": 2, "cached_tokens": 0})


def test_usage_with_reasoning_and_cost():
    item = {**USAGE, "reasoning_tokens": 3, "cost": "0.042 USD"}
    line = "12,000 tokens in (1,000 cached), 5 out (3 reasoning), 1 request, 0.042 USD"
    assert to_plain(item) == line
    assert to_markdown(item) == f"*{line}*"
    bold = to_markdown({**USAGE, "cost": "price of a*b<i>c not known"})
    assert "<i>" not in bold


def test_a_notice_of_several_lines_stays_in_its_quotation():
    item = {"kind": "notice", "level": "error", "text": "one\ntwo"}
    assert to_markdown(item) == "> **Error:** one\n> two"
    assert to_plain(item) == "Error: one\ntwo"


def test_a_block_is_its_items():
    item = {"kind": "block", "items": [tool_item(), USAGE]}
    assert to_markdown(item) == f"{to_markdown(tool_item())}\n\n{to_markdown(USAGE)}"
    assert to_plain(item) == f"{to_plain(tool_item())}\n\n{to_plain(USAGE)}"


def test_plain_text_is_the_words_themselves():
    assert to_plain({"kind": "text", "text": EVIL}) == EVIL


def evil_items(words):
    return [
        {"kind": "text", "text": words},
        {"kind": "notice", "level": "info", "text": words},
        tool_item(title=words.replace("\n", " "), output=words, note=words),
        tool_item(language="python", arguments=words, title="", output=words, note=words),
        tool_item(kind="patch", diff=words, output=words, note=words, status="failed"),
        {
            "kind": "plan",
            "explanation": words,
            "steps": [{"id": "1", "description": words, "status": "pending"}],
        },
        {"kind": "text", "text": "", "sources": [{"title": words, "url": f"http://x/{words}"}]},
        {"kind": "reasoning", "text": words, "left_out": 0},
        {
            "kind": "changes",
            "files": [{"path": words, "change": words, "added": 1, "removed": 0, "note": words}],
            "diff": words,
            "runs": [words],
            "notes": [words],
        },
        {
            "kind": "table",
            "columns": [{"name": words}],
            "rows": [[words]],
            "total": 1,
            "width": 1,
        },
        {**USAGE, "cost": words},
        {"kind": "group", "title": words, "items": [{"kind": "text", "text": words}]},
    ]


def test_words_stand_in_every_kind_of_item():
    assert {each["kind"] for each in evil_items("x")} == {*_MARKDOWN} - {"block"}


def check(readers, item):
    markdown = to_markdown(item)
    for name, html in readers.pages(markdown).items():
        assert not Page(html).acts, (name, markdown)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(len(evil_items(""))))
@pytest.mark.parametrize(
    "words",
    [
        *(EVIL, f"```\n{EVIL}", f"a\n\n{EVIL}", f"x`\n\n```\n```\n{EVIL}"),
        f"{'>' * 45} nested too deeply\n\n {EVIL}",
        f"{'too long, ' * 800}\n\n {EVIL}",
    ],
)
def test_no_words_of_a_model_or_a_tool_can_act(readers, number, words):
    check(readers, evil_items(words)[number])


@pytest.mark.soak
@settings(deadline=None, max_examples=200)
@given(
    st.lists(
        st.sampled_from(
            ["<b>", "`", "```", "\n", "\n\n", "![a](b)", "- ", "> ", "~~~", "    ", "x"]
        ),
        max_size=9,
    ).map("".join)
)
def test_no_mixture_of_signs_can_act(readers, words):
    for item in evil_items(words):
        check(readers, item)
    check(readers, {"kind": "block", "items": evil_items(words)})


# As such, and by their numbers, which a parser reads.
@pytest.mark.soak
@pytest.mark.parametrize("sign", ["\x80", "\x9b", "\x85", "\x1b", "&#13;", "&#12;"], ids=ascii)
def test_a_sign_that_is_not_written_parts_nothing_that_would_act(readers, sign):
    for whole in ("![x](http://x)", "[a](javascript:x)", "`<b>`", "~~~~\n```\n<b>\n~~~~"):
        for at in range(len(whole)):
            for item in evil_items(whole[:at] + sign + whole[at:])[:3]:
                check(readers, item)
    formula = "$\\href{javascript:x}{y}$"
    for at in range(len(formula)):
        shown = to_markdown({"kind": "text", "text": formula[:at] + sign + formula[at:]})
        assert "\\href" not in re.sub("`.*?`", "", shown)


def test_colours_are_for_those_who_draw_them():
    item = {
        "kind": "tool",
        "name": "shell",
        "title": "make",
        "status": "failed",
        "language": "bash",
        "arguments": "{}",
        "output": "\x1b[1;31mno\x1b[0m\n",
        "exit_code": 2,
        "note": "",
    }
    assert to_plain(item) == "[shell] make (failed, exit code 2)\nno"
    assert to_markdown(item).endswith("```\nno\n```")


@pytest.mark.parametrize(
    "text",
    [
        *("words", "**bold**\n\n- a", "`code` and more", "*a* b", "$x$", "***bold***", "1) 2"),
        *("- a\n- b", "* a\n* b", "+ a\n+ b", "-\n- b", "1. a\n2. b", "3) a\n4) b", "1.\n2. b"),
        *("## a\n\nb", "#\n\na", "> a\n> b", "***\n\na", "| a | b |\n| - | - |\n| 1 | 2 |"),
        *("```python\na\n\n# b\n```", "```\n<b>\n```", f"{'>' * 45} a\n\n <b>", f"{'a ' * 4000}a"),
    ],
)
def test_what_thoughts_begin_with_is_drawn_as_anywhere(text):
    """Below their label where it is a block, else beside it."""
    page = MarkdownIt("commonmark").enable("table").render
    shown = make_harmless(text, nested=True)
    alone = page(shown)
    rest = f" {alone[3:]}" if alone.startswith("<p>") else f"</p>\n{alone}"
    item = {"kind": "reasoning", "text": text, "left_out": 0}
    expected = f"<blockquote>\n<p><strong>Thinking:</strong>{rest}</blockquote>\n"
    assert page(to_markdown(item)) == expected


@given(st.text(), st.sampled_from([to_plain, to_markdown]))
@example("&#13;![&#13;](x)[&#12;](y) `&#13;\x85`", to_markdown)
def test_nothing_saved_acts_on_a_terminal(words, form):
    escapes = f"{words}\x1b]0;title\x07\x1b[2J\x9b5A{words}"
    for item in evil_items(escapes):
        assert not {*form(item)} & {*map(chr, range(32)), *map(chr, range(0x7F, 0xA0))} - {*"\n\t"}


@pytest.mark.parametrize("form", [to_plain, to_markdown])
@pytest.mark.parametrize(
    "move",
    ["\x1b[9A\r", "\x1b[9F", "\x1b[1;1H", "\x1b[H\x1b[2J", "\x1bM" * 9, "\x9b9A\r", "\b" * 99],
    ids=ascii,
)
def test_an_output_changes_nothing_that_stands_above_it(form, move):
    item = tool_item(title="rm -rf x", output=f"a\nb{move}[shell] ls (ran)\x1b[K", exit_code=None)
    before = tool_item(title="first", output="seen", exit_code=None)
    block = form({"kind": "block", "items": [before, item]})
    kept = [form(before), form(tool_item(title="rm -rf x", output="", exit_code=None))]
    assert block.startswith("\n\n".join(kept))


@pytest.mark.parametrize("sign", ["\u202e", "\u200b", "\x1b", "\r", "\U000e0041"], ids=ascii)
def test_a_notice_hides_nothing_of_what_it_quotes(sign):
    item = notice_item(f"The file a{sign}b is left out.", "warning")
    written = f"a⟨U+{ord(sign):04X}⟩b"
    assert written in item["text"]
    assert written in to_plain(item)
    assert written in to_markdown(item)
