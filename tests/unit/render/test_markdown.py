"""What a model or a tool wrote becomes Markdown that can do nothing; a CommonMark parser judges."""

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent_magics.render.markdown import code_span, fenced, make_harmless

COMMONMARK = MarkdownIt("commonmark", {"html": True})
COMMONMARK.validateLink = lambda url: True  # the parser itself must not do our work
SAFE = ("http:", "https:", "mailto:")

# Pieces that together make HTML, links, images, code, lists and quotes; and what breaks them.
PIECES = st.sampled_from(
    [
        *(
            "<b>",
            "<script>",
            "</p>",
            "<!--",
            "-->",
            "<?x",
            "<![CDATA[",
            "<a href='",
            "'>",
            "<",
            ">",
        ),
        *("<javascript:x>", "<div\n", "&lt;", "&#60;", "\\<", "\\", "\\\\", "\\`", "\\!", "\\["),
        *("`", "``", "```", "````", "~~~", "~~~~", "```py", "  ```", " ~~~", "    ", "\t", "   "),
        *("![", "!", "!!", "[", "]", "](", "]: ", "]:", ")", "(", "a", "x:", "java", "script:"),
        *("javascript:x", "JAVASCRIPT:x", "java&#10;script:x", "&#106;avascript:x", "data:x"),
        *("javascript&colon;x", "vbscript:x", "http://x", "\\javascript:x", "file:///x", "//x"),
        *(
            "\n",
            "\n\n",
            "> ",
            "- ",
            "1. ",
            "# ",
            "---\n",
            "===\n",
            "|",
            "| - |\n",
            " ",
            "\r",
            "\r\n",
        ),
        *("$", "$x$", "$a{b$", "c}d$", "\\begin{a}", "\\end{a}", "\\\\[", "http://e", "www.e", "~"),
        *("`<b>`", "` <b>", '](/y "', '")', "[`a`](/y)", "@", "@@0@@"),
        *("\u00a0", "\u2028", "\x0b", "\x0c", "\x00", "\u200b", "*", "_", '"', "'", "é"),
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map("".join) | st.text(max_size=40)


def tokens(markdown: str):
    """Return all tokens, those inside paragraphs too."""
    for token in COMMONMARK.parse(markdown):
        yield token
        yield from token.children or ()


def check_harmless(markdown: str) -> None:
    for token in tokens(markdown):
        assert token.type not in ("html_inline", "html_block", "image"), (token, markdown)
        address = token.attrGet("href")
        if token.type == "link_open" and ":" in str(address):
            scheme = str(address).partition(":")[0]
            local = any(mark in scheme for mark in "/#?")
            assert local or str(address).lower().startswith(SAFE), (address, markdown)


@settings(deadline=None, max_examples=600)
@given(TEXTS)
@example("  ```\n```\n<b>")
@example("!![a](b)")
@example("> [a]: javascript:x\n\n[a]")
@example("- [a]: javascript:x\n\n[a]")
@example("[a\\]b]: javascript:x\n\n[a\\]b]")
@example("> [a](\n> javascript:x)")
@example("[a]:\n  javascript:x\n\n[a]")
@example("[x\ny]: javascript:x\n\n[x y]")
@example("1. a\n   ```\n<b>")
@example("`a\n<b>`")
@example("``` `\n<b>")
@example("\\`<b>`")
@example("|`a|<b>`|\n|-|-|\n|`a|<b>`|")
@example("[a](<javascript:x>)")
@example('[a](/x "\n` ") <b>`')
def test_nothing_in_it_can_act(text):
    check_harmless(make_harmless(text))


@settings(deadline=None, max_examples=300)
@given(code=TEXTS, before=TEXTS, after=TEXTS)
@example(code="```\n<b>\n````", before="", after="<b>")
@example(code="", before="\u2028```", after="")
def test_what_we_put_in_a_code_block_is_shown_exactly(code, before, after):
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    markdown = "\n".join([make_harmless(before), fenced(code, "text"), make_harmless(after)])
    check_harmless(markdown)
    shown = [token.content for token in tokens(markdown) if token.type == "fence"]
    expected = f"{code}\n" if code else ""
    assert expected.replace("\x00", "\ufffd") in shown


@pytest.mark.parametrize(
    "text",
    [
        "```python\nif a < b:\n    print('<b>')  # ![x](y) [a](javascript:x)\n```",
        "before\n```\n<b> `tick` ``two``\n```\nafter",
        "~~~\n```\n<b>\n```\n~~~",
        "````md\n```\n<b>\n```\n````",
        "```\nnever closed <b>",
        "1. First\n   ```bash\n   cat < a.txt\n   ```\n2. Second",
    ],
)
def test_code_blocks_of_a_model_are_shown_exactly(text):
    before = [t.content.rstrip("\n") for t in tokens(text) if t.type == "fence"]
    after = [t.content.rstrip("\n") for t in tokens(make_harmless(text)) if t.type == "fence"]
    assert after == before
    assert [t.info for t in tokens(make_harmless(text)) if t.type == "fence"] == [
        t.info for t in tokens(text) if t.type == "fence"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Plain words, **bold** and *soft*.",
        "A [link](https://example.org/a?b=c#d) and [another](other.ipynb).",
        "`a < b` and `List<int>`, **bold**",
        "- `a_b < c`\n- `x` and `y`\n\nGo to `$HOME`.\nThis is ``x ` y``.",
        "R² is $r^2$, and $$\\frac{a_1}{b} = x$$ too.",
        "See [`DataFrame`](https://example.org/a_b.html#x), [x] and y[0].",
        "- [x] done\n- [ ] open",
        "- one\n- two\n\n1. three",
        "| a | b |\n| - | - |\n| 1 | 2 |",
        "> quoted\n> lines",
        "# Title\n\ntext\n\n---",
        "Wow! [link](x.html)",
        "d[key] is x: y, at 12:30",
        "    indented code",
        "Mail [me](mailto:me@example.org)",
    ],
)
def test_harmless_text_stays_as_it_is(text):
    assert make_harmless(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('[a](https://example.org "title")', "[a](https://example.org)"),
        ("![a](x.png)", "&#33;[a](x.png)"),
        ("[a](javascript:x)", "[a]&#40;javascript:x)"),
        ("[a]: https://example.org", "[a]&#58; https://example.org"),
        ("It costs $5, not $6.", "It costs &#36;5, not &#36;6."),
        ("$a{b$ and $c}d$", "&#36;a{b&#36; and &#36;c}d&#36;"),
        ("``a < ` b``", "``a &lt; ` b``"),
        ("`a[0](<b>)`", "`a[0]&#40;&lt;b>)`"),
        ("x\n```\ny\n```\nz", "x\n\n```\ny\n```\n\nz"),
        ("a\u2028<b>\x0b", "a &lt;b> "),
    ],
)
def test_what_is_not_surely_harmless_is_shown_as_signs(text, expected):
    assert make_harmless(text) == expected


ATTACKS = [
    "`<img src=x onerror=y>](javascript:x`",
    "http://e``<img src=x onerror=y>``",
    "www.e`<img src=x onerror=y>`",
    "~`<img src=x onerror=y>`",
    "[r]: \n```\n<img src=x onerror=y>\n```",
    "\\begin{a} ` \\end{a} ` x ` <img src=x onerror=y> `",
    "\\begin{a}\n```\n\\end{a}\n<img src=x onerror=y>\n```",
    '[hover](/y "$" onmouseover=y x="$")',
    '[`a`](/y "\\begin{a}" onmouseover=y x="\\end{a}")',
    'http://e/$a{b$ " onmouseover=y x=" $c$',
    'http://e/@@0@@\n```\n\\begin{a}" onmouseover=y x="\\end{a}\n```',
    "`$a` $`<img src=x onerror=y>`$",
    "\\\\[a](x) ` \\\\] ` <img src=x onerror=y> `",
]


@pytest.mark.parametrize("text", ATTACKS)
def test_other_readers_are_not_deceived_either(text):
    """Outside of code blocks nothing is left that marked, GitHub's or JupyterLab's rules need."""
    prose = "".join(
        part for number, part in enumerate(make_harmless(text).split("```")) if number % 2 == 0
    )
    assert "<" not in prose
    assert not re.search(r"\\(begin|end)|\\\\[(\[]|@@\d|\]:|\]\([^)]*[\"$\\]", prose)
    check_harmless(make_harmless(text))


# As JupyterLab finds them before it looks for formulas (removeMath in its latex.ts).
FENCED = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.DOTALL | re.MULTILINE)


@settings(deadline=None, max_examples=300)
@given(TEXTS)
@example("```---\n$<b>")
def test_formulas_of_jupyterlab_cannot_carry_what_breaks_an_attribute(text):
    for line in FENCED.sub("", make_harmless(text)).split("\n"):
        if "$" in line and "`" not in line:
            for formula in line.split("$")[1::2]:
                assert not set("<>\"'`[]&@#") & set(formula), line


def test_prose_looks_the_same_with_its_signs_shown():
    rendered = COMMONMARK.render(make_harmless("if a < b: <b>bold</b> Wow![x](y.png)"))
    assert "if a &lt; b: &lt;b&gt;bold&lt;/b&gt;" in rendered
    assert "<a href=" in rendered
    assert "Wow!" in rendered


@settings(deadline=None, max_examples=300)
@given(st.text(max_size=30).filter(lambda text: text.strip()))
@example("`")
@example("a``b`")
@example(" `x` ")
def test_a_code_span_shows_its_text_and_nothing_else(text):
    text = re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text) + "x"
    [paragraph] = [t for t in COMMONMARK.parse(f"**name** {code_span(text)}") if t.type == "inline"]
    shown = [child.content for child in paragraph.children if child.type == "code_inline"]
    assert len(shown) == 1
    # (A formula's backslash is followed by a space; another test says how.)
    assert shown[0].replace("\\ ", "\\").strip(" ") == text.replace("\\ ", "\\").strip(" ")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\rb\u2028c\x0bd\r\n", "`a b c d  `"),
        ("\\begin{a} \\\\[", "`\\ begin{a} \\ \\[`"),
    ],
)
def test_a_code_span_is_one_line_that_opens_no_formula(text, expected):
    assert code_span(text) == expected


@given(st.text(max_size=60))
@settings(deadline=None)
def test_what_was_made_harmless_once_is_harmless_twice(text):
    check_harmless(make_harmless(make_harmless(text)))
