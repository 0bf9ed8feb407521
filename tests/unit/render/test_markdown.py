"""What a model or a tool wrote becomes Markdown that can do nothing: its readers judge."""

import re
from collections import Counter
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from agent_magics.render.markdown import code_span, fenced, harmless_prose, make_harmless
from tests.support.pages.readers import Page, Readers

COMMONMARK = MarkdownIt("commonmark", {"html": True})


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
        *("<img src=x onerror=y>", "![x](http://h/?d=S)", "\\![x](http://h/)", "![x][r]"),
        *("\\\\![x](http://h/)", "\n\n[r]: http://h/\n", "[^1]: ![x](http://h)", "  - ", "\n    "),
        *("```html\n", "\n```\n", "$$", "\\end{a}", "\\\\]", "\\(", "\\)", "\\]", "{", "}", "%"),
        *("| a |\n|-|\n| ", "`|", "|`", '<http://h"onx=y>', "<pre>", "</code>", "~~", "**"),
        *("&lt;img&gt;", "&#96;", "$x<y$", "$\\text{<img src=x>}$", "\n2. ", "\n===\n", "\n> "),
        *("\u00a0", "\u2028", "\x0b", "\x0c", "\x00", "\u200b", "*", "_", '"', "'", '$"$', "é"),
    ]
)
TEXTS = st.lists(PIECES, max_size=20).map("".join) | st.text(max_size=40)


def tokens(markdown: str):
    """Return all tokens, those inside paragraphs too."""
    for token in COMMONMARK.parse(markdown):
        yield token
        yield from token.children or ()


def check_harmless(readers: Readers, markdown: str) -> None:
    for name, html in readers.pages(markdown).items():
        assert not Page(html).acts, (name, markdown, html)


@pytest.mark.soak
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
@example(r"\\![x](http://host/?d=SECRET)")
@example("[![x](http://h)](http://h)")
@example("- a\n  ```\n  \\begin{a}\n  ```\n- \\end{a}\n  ```\n  <img src=x>\n  ```")
@example("a `$$` b\n\n```\n$$\n<img src=x>\n```")
def test_nothing_in_it_can_act(readers, text):
    check_harmless(readers, make_harmless(text))
    check_harmless(readers, "\n> ".join(["", *make_harmless(text, nested=True).split("\n")]))


@pytest.mark.soak
@settings(deadline=None, max_examples=300)
@given(TEXTS)
@example('\\http://e$"$')
@example('\\\\HTTPS://e$" onmouseover=y x="$')
def test_nothing_in_a_line_of_it_can_act(readers, text):
    check_harmless(readers, f"- {code_span(text)} {harmless_prose(text)}")


@pytest.mark.soak
@settings(deadline=None, max_examples=300)
@given(code=TEXTS, before=TEXTS, after=TEXTS)
@example(code="```\n<b>\n````", before="", after="<b>")
@example(code="", before="\u2028```", after="")
def test_what_we_put_in_a_code_block_is_shown_exactly(readers, code, before, after):
    code = code.replace("\r\n", "\n").replace("\r", "\n")
    markdown = "\n".join([make_harmless(before), fenced(code, "text"), make_harmless(after)])
    check_harmless(readers, markdown)
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
        "`a < b` and `List[int]`, **bold**",
        "- `a_b < c`\n- `x` and `y`\n\nGo to `$HOME`.",
        "R² is $r^2$, and $$\\frac{a_1}{b} = x$$ too.",
        "See [`DataFrame`](https://example.org/a_b.html#x), [x] and y[0].",
        "- [x] done\n- [ ] open",
        "- one\n- two\n\n1. three",
        "| a | b |\n| - | - |\n| 1 | 2 |",
        "> quoted\n> lines",
        "# Title\n\ntext\n\n---",
        "Wow! [link](x.html)",
        "d[key] is x: y, at 12:30",
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
        ("[![a](x.png)](/y)", "[a](/y)"),
        ("[a](javascript:x)", "a (`javascript:x`)"),
        ("https://example.org/a_b.", "<https://example.org/a_b>."),
        ("https://example.org/a_(b)_(c(d))", "<https://example.org/a_(b)_(c(d))>"),
        ("(https://example.org/a_(b).)", "(<https://example.org/a_(b)>.)"),
        ("(See https://example.org/a).", "(See <https://example.org/a>)."),
        ("https://example.org/(a))),", "<https://example.org/(a)>)),"),
        ("https://example.org/(a and b)", "<https://example.org/>(a and b)"),
        ("f(https://a.org)(https://b.org/)", "f(<https://a.org>)(<https://b.org/>)"),
        ("http://) http://(a) http://.)", "http:&#47;/) http:&#47;/(a) http:&#47;/.)"),
        ("[a]\n\n[a]: https://example.org", "[a](https://example.org)"),
        ("It costs $5.", "It costs &#36;5."),
        ("It costs $5, not $6.", "It costs <span>&#36;</span>5, not <span>&#36;</span>6."),
        ("``a < ` b``", "<code>a &#60; &#96; b</code>"),
        ("`List<int>`", "<code>List&#60;int&#62;</code>"),
        ("    indented", "```\nindented\n```"),
        ("x\n```\ny\n```\nz", "x\n\n```\ny\n```\n\nz"),
        ("a\u2028<b>\x0b", "a &lt;b>"),
        ("- ```\n  <b>\n\n  c\n  ```", "- <pre><code>&#60;b&#62;&#10;&#10;c</code></pre>"),
    ],
)
def test_what_could_act_somewhere_is_written_otherwise(text, expected):
    assert make_harmless(text) == expected


ATTACKS = [
    '\\http://e$" onmouseover=y x="$',
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


@pytest.mark.soak
@pytest.mark.parametrize("text", ATTACKS)
def test_other_readers_are_not_deceived_either(readers, text):
    check_harmless(readers, make_harmless(text))


def test_a_formula_that_could_act_is_code():
    for formula in (r"\href{javascript:x}{a}", r"\bbox[background:url(//h)]{x}", r"\def\x{y}"):
        assert make_harmless(f"${formula}$") == code_span(f"${formula}$")


@pytest.mark.parametrize(
    "name",
    re.findall(
        r"\S+",
        "input @@input openout1 write18 immediate special directlua luaexec scantokens csname"
        " ShellEscape InputIfFileExists VerbatimInput lstinputlisting usepackage makeatletter"
        " XeTeXpicfile pdffiledump typein subimport include tcbincludepdf adjustimage"
        " filecontents ^^5cinput",
    ),
)
def test_a_formula_that_would_read_write_or_run_in_latex_is_code(name):
    command = name if name.startswith("^") else f"\\{name}"
    formulas = [f"{command}{{/x}}", f"\\text{{{command} /x}}"]
    formulas += [f"\\begin {{{name}}}{{/x}}\\end{{{name}}}"] if name.isalpha() else []
    for formula in formulas:
        assert make_harmless(f"a ${formula}$") == f"a {code_span(f'${formula}$')}"


@pytest.mark.parametrize(
    "around",
    [
        "%s",
        "# %s",
        "- %s",
        "**%s**",
        "| %s |\n|-|",
        "[%s](/x)",
        "![%s](/x)",
        "a^[%s]",
        "\\\\%s",
        "[%s]",
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        r"\input{/x}",
        r"\\input{/x}",
        r"\immediate\write18{id}",
        r"C:\temp",
        "`\\input{/x}`{=latex}",
        "`` \\input{/x} ``\\{=latex}",
        "`\\input{/x}`&#123;=latex}",
    ],
)
@pytest.mark.parametrize("harmless", [make_harmless, harmless_prose], ids=["text", "prose"])
def test_words_are_no_commands_of_latex(around, command, harmless):
    """Nbconvert prints through pandoc, to which both a command and `code`{=latex} are LaTeX."""
    words = re.sub(r"`[^`\n]*`(?!\{)", "", harmless(around % command))
    assert not re.search(r"\\[A-Za-z]|`\{", words), words


@pytest.mark.parametrize(
    "form",
    [
        r"\rule{%s}{1em}",
        r"\rule[%s]{1em}{1em}",
        r"\hspace*{%s}x",
        r"\kern%s x",
        r"x\raise %s{y}",
        r"\begin{array}{p{%s}}x\end{array}",
        r"x\\ [%s]y",
        r"\genfrac{}{}{ %s }{1}{x}{y}",
    ],
)
def test_a_formula_whose_lengths_reach_far_is_code(form):
    for length in ("99em", "-99em", "1e", "9999px", "-20.5cm", "800mu", "9in", "0,5em"):
        formula = f"${form % length}$"
        kept = length in ("1e", "0,5em")
        assert make_harmless(formula) == (formula if kept else code_span(formula))
    many = f"${form % '2em' * 25}$"
    assert make_harmless(many) == code_span(many)


@pytest.mark.parametrize(
    "formula", [r"d = 250\,\text{mm}", r"x_{99} \in \{3pt\}", r"99 em \cdot 2"]
)
def test_numbers_beside_units_are_no_lengths(formula):
    assert make_harmless(f"${formula}$") == f"${formula}$"


def test_what_is_deeper_than_the_parser_reads_is_shown_as_it_is():
    text = "> " * 60 + "deep"
    assert make_harmless(text) == fenced(text)


def test_prose_looks_the_same_with_its_signs_shown():
    rendered = COMMONMARK.render(make_harmless("if a < b: <b>bold</b> Wow![x](y.png)"))
    assert "if a &lt; b: &lt;b&gt;bold&lt;/b&gt;" in rendered
    assert "<a href=" in rendered
    assert "Wow!" in rendered


@pytest.mark.soak
@settings(deadline=None, max_examples=300)
@given(st.text(max_size=30).filter(lambda text: text.strip()))
@example("`")
@example("a``b`")
@example(r"\begin{a} \\[ $x$ $$")
def test_a_code_span_shows_its_text_and_nothing_else(readers, text):
    text = re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text) + "x"
    for html in readers.pages(f"**name** {code_span(text)}").values():
        page = Page(html)
        assert [shown.strip() for shown in page.code] == [text.strip()]


def test_a_code_span_is_one_line():
    assert code_span("a\rb\u2028c\x0bd\r\n") == "`a b c d  `"


@pytest.mark.soak
@given(st.text(max_size=60))
@settings(deadline=None)
def test_what_was_made_harmless_once_is_harmless_twice(readers, text):
    check_harmless(readers, make_harmless(make_harmless(text)))


@pytest.mark.soak
@pytest.mark.parametrize(
    ("text", "formula"),
    [
        (r"so $$\left\|x\right\| \le 1,\, y$$", r"$$\left\|x\right\| \le 1,\, y$$"),
        ("$p < 0.01$", "$p < 0.01$"),
        (r"$\{1, 2\}$ and $\|x\|$", r"$\{1, 2\}$"),
        (r"$\{1, 2\}$ and $\|x\|$", r"$\|x\|$"),
        ("$a<b$", "$a< b$"),
        ("so:\n$$\na = b\\\\\n- c\n$$\nend", r"$$a = b\\ - c$$"),
        ("- so\n\n  \\[\n  x_1 * y_1\n  \\]", "$$x_1 * y_1$$"),
        (r"\(f_*(x)\) and \(g_*\)", "$f_*(x)$"),
        ("| a |\n|-|\n| $\\Pr(x) = 1$ |", r"$\Pr(x) = 1$"),
    ],
)
def test_a_formula_reaches_who_sets_it_as_it_was_written(readers, text, formula):
    pages = readers.pages(make_harmless(text))
    for name in ("marked-16", "marked-17", "mistune"):
        assert formula in Page(pages[name]).text, (name, pages[name])


@pytest.mark.soak
@pytest.mark.parametrize(
    "text",
    [
        "It costs $5, not $6.",
        "costs $5 and\n$7, ($5-$7)",
        r"\$5 and \$6",
        r"$5 and $r^2$",
        r"a \\(x\\) \\begin{a} \\[y\\]",
    ],
)
def test_nothing_else_is_a_formula_to_those_who_look_in_the_page(readers, text):
    for name, html in readers.pages(make_harmless(text)).items():
        outside = re.sub(r"\$r\^2\$", "", html)
        for words in re.split(r"<[^>]*>", outside):
            assert words.count("$") < 2 or words == "$", (name, html)
            assert not re.search(r"\\(\(|\[|begin)", words), (name, html)


@pytest.mark.parametrize(
    "text",
    [
        "- one\n\n- two\n\n  more\n\n3. three",
        "- so\n\n  ```py\n  a\n\n  b\n  ```\n\nend",
        "one\n\n```\ncode\n\n- more\n```\n\ntwo",
        "a\n```\n```\nb\n~~~ x\n```\n~~~~\nc\n```py\nd",
        "> a\n\n> b\n\n| a |\n|-|\n\nend",
        "```a`b\n\n```",
        "  ```\na\n\nb\n  ```\n\nc",
    ],
)
def test_a_text_looks_as_its_parser_read_the_whole(text):
    assert [t.type for t in tokens(make_harmless(text))] == [t.type for t in tokens(text)]


# Paragraphs, references, what defines them, and what only looks so.
BLOCKS = st.sampled_from(
    [
        *("one `logs[0]` two", "see [three][r] and [r]", "sales [^1] fell", "- [x]\n- four"),
        *("> five [^1]", "| six | [Note] |\n|-|-|\n| [r] | x[1] |", "```\n[LOG]: nine words\n```"),
        *("[r]: http://h/seven", "[r]: a.csv 'eight'", "[^1]: booked twice in March", "## ten [r]"),
        *("[Note]: the figures are in euros\n[WARN]: disk is full", "eleven\n[r]: twelve words"),
    ]
)


@settings(deadline=None)
@given(st.lists(BLOCKS, max_size=8).map("\n\n".join))
def test_no_word_comes_out_more_often_than_it_was_written(text):
    written = Counter(re.findall(r"\w+", text))
    shown = " ".join(token.content for token in tokens(make_harmless(text)) if not token.children)
    assert Counter(re.findall(r"\w+", shown)) <= written


@pytest.mark.parametrize("between", ["", "\n\n[^1]: several words", "\n\n```\n[x]: a b\n```"])
@pytest.mark.parametrize("reference", ["[the table][r]", "[the table][R]", "- [the table][r]"])
def test_a_reference_leads_where_it_is_defined(reference, between):
    assert "[the table](a.csv)" in make_harmless(f"{reference}{between}\n\n[r]: a.csv 'title'\n")


HARD = [
    *("[", "![", "$", "**a_", "- a\n", "> ", "|a|b\n|-|-|\n", "`a\n\n", "\n", "[a](<b", "[x]\n\n"),
    *(
        "[" * 7_000 + "\n\n",
        "  ```\n\nx\n",
        "```\n\n~~~\n\n",
        "[%d]: x\n\n[a]\n\n",
        "[x]: y z\n\n[a]\n",
        "\n" + " " * 999,
        *("http://(", "http://a(b", "http://a((b)", "http://a." + "(" * 999, "http://a(b.?"),
    ),
]


def cpu_seconds(*texts: str) -> float:
    began = process_time()
    for text in texts:
        make_harmless(text)
    return process_time() - began


@pytest.mark.soak
@pytest.mark.parametrize("piece", HARD)
def test_time_grows_no_faster_than_the_text(piece):
    short, long = (f"a{size}{piece * (size // len(piece))}" for size in (20_000, 160_000))
    # Eight times as long; a quarter of a second is for what the first call brings with it.
    assert cpu_seconds(long) < 20 * cpu_seconds(short) + 0.25


@pytest.mark.soak
def test_a_growing_answer_costs_little_more_than_the_whole_one():
    paragraphs = [f"The *{n}th* [fox](x.html) `jumps` over {n} dogs.\n\n" for n in range(400)]
    whole = cpu_seconds("".join(paragraphs).replace("fox", "hare"))
    grown = cpu_seconds(*("".join(paragraphs[:n]) for n in range(1, 401, 2)))
    assert grown < 10 * whole  # judged anew each time it would be a hundred times


def test_a_very_long_paragraph_is_shown_as_it_is():
    text = "word " * 3_000
    assert make_harmless(f"{text}\n\n**end**") == f"{fenced(text)}\n\n**end**"


def test_paragraphs_of_a_persons_stay_as_they_are():
    before = "![mine](a.png)\n\n<b>\n\n[r]: http://h"
    text = "![mine](a.png)\n\n![x](a.png)\n\n![y][r]\n\n```\n<b>\n```\n\n<b>"
    kept = "![mine](a.png)\n\n&#33;[x](a.png)\n\n&#33;[y&#93;[r]\n\n```\n<b>\n```\n\n<b>"
    assert make_harmless(text, before=before) == kept


@pytest.mark.parametrize("info", ["mermaid", " Mermaid title", "mermaid{x}"])
def test_a_diagram_is_shown_as_code(info):
    code = "graph TD\nA@{ img: 'http://h/x.png' }"
    assert "mermaid\n" not in make_harmless(f"```{info}\n{code}\n```").lower()
    assert "mermaid\n" not in make_harmless(f"- ```{info}\n  {code}\n  ```").lower()
