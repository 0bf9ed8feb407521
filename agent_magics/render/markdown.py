"""Rewrites Markdown of a model or a tool so that every reader shows it and none acts on it.

A CommonMark parser says what the text is; only what is known to be harmless is written again, in
one plain form, and every other sign becomes an entity, which no reader takes for syntax. So
images, HTML, reference definitions and dangerous addresses cannot pass, however disguised, and
readers that differ (JupyterLab's marked, nbconvert's mistune, GitHub's) have nothing to differ on.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import chain, starmap
from typing import Any
from urllib.parse import quote

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.tree import SyntaxTreeNode

from agent_magics.render.formulas import find_formulas, write_formula
from agent_magics.text.line_ends import with_newlines

# Control characters and line ends: a blank stands for them before a text is judged, so that none
# is left to be taken out afterwards, which would join what stands around it.
_SEPARATORS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_TICKS = re.compile(r"`+")
_PUNCTUATION = re.compile(r"[!-/:-@\[-`{-~]")
_DEEPEST = 40  # of lists and quotations inside each other
# Characters of one paragraph, list or table, of a text's link definitions, and of a whole text.
_LONGEST_PIECE, _LONGEST_DEFINITIONS, _LONGEST = 8_000, 4_000, 400_000
_KEPT = 1_000  # pieces whose written form is remembered, for the next update of a growing answer

# Where blocks end wherever they began: code at the margin, and an empty line with words behind it.
_CUT = re.compile(
    r"^(?P<fence>(?P<sign>[`~])(?P=sign){2,})(?P<info>[^`\n]*)(?:\n(?P<code>.*?))??"
    r"(?:\n {0,3}(?P=fence)(?P=sign)*[ \t]*$|\Z)|\n[ \t]*\n(?=[^ \t\n])",
    re.DOTALL | re.MULTILINE,
)
_INDENTED_FENCE = re.compile(r"^[ \t>*+\d.)-]+(?:```|~~~)", re.MULTILINE)
# Lines together: below one that only looks like a definition, the next ones are its paragraph.
_DEFINITIONS = re.compile(r"(?:^ {0,3}\[[^\]\n]{1,99}\]:[^\n]*(?:\n|\Z))+", re.MULTILINE)

# What may follow `](`: a page, mail, or a place beside the notebook.
_ADDRESS = re.compile(r"https?://|mailto:|[^:]*(?:[/?#]|$)", re.IGNORECASE)
_IN_ADDRESS = ":/?#=&%+,~"
# Stops and brackets belong to it as on GitHub: within it, and balanced (two deep).
_URL = (
    r"https?://(?!\()(?:[\w~+=%/&#-]|[.,:?]++(?=[\w~+=%/&#-])"
    r"|\((?:[\w.~+,=:%/?&#-]|\([\w.~+,=:%/?&#-]*\))*\))+"
)

# Signs that some reader may take for syntax where the parser saw words.
# A backslash is one before an address too: it would escape the `<` that is written there. Before
# letters it is a command to LaTeX, to which nbconvert prints by pandoc.
_SIGNS = re.compile(
    rf"(?P<url>\b{_URL})|(?P<opens>\\(?=[(\[]|begin|end|eqref|ref)|\$)"
    r"|(?<=:)/(?=/)|(?<=www)\.|\\(?=[!-~]|$)|&(?=#?\w+;)|[<`~]|(?<!\w)_|_(?!\w)"
    r"|(?<![ ])\*|\*(?![ ])|!(?=\[)|\](?=[(\[:])|@(?=@\d)",
    re.IGNORECASE,
)
_IN_LINK = re.compile(r"[\[\]$]")
_BEGINS_BLOCK = re.compile(
    r"#|>|[-+*=:](?=\s|$)|[-|:](?=[-\s|:]*$)|=(?==*\s*$)|\d{1,9}[.)](?=\s|$)"
)

# Code with these inside is shown through entities: readers look into code for some of them.
_UNSAFE_IN_CODE = re.compile(
    r"[`\n]|<[A-Za-z/!?]|\]\(|\]\[|!\[|\$\$|\\\\?[(\[]|\\(?:begin|end)|@@|\\$"
)
_IN_NESTED_CODE = re.compile(rf"{_UNSAFE_IN_CODE.pattern.replace('[`', '`{3}|~{3}|^[', 1)}")
_OUR_TAGS = re.compile(r"</?(?:code|span)>|<pre><code>[^<>]*</code></pre>\n?")


@dataclass(frozen=True)
class _InlineContext:
    """The context of inline text within a block.

    Attributes:
        in_link: the text is a link's label.
        in_table: the text is a table cell.
        dollars: a formula could begin and end in the text, so dollar signs are escaped.
    """

    in_link: bool = False
    in_table: bool = False
    dollars: bool = False


def make_harmless(text: str, *, nested: bool = False, before: str = "") -> str:
    """Return `text` as Markdown that looks the same but contains nothing active.

    Args:
        text: the Markdown of a model, a tool or a server.
        nested: whether it will stand in a list or a quotation.
        before: the Markdown that a person wrote in its place; unchanged paragraphs of it are
            copied.

    Returns:
        CommonMark without HTML, images, reference definitions and unsafe addresses; a text that is
        too long or nested too deeply as a code block.
    """
    text = _without_separators(text)
    if len(text) > _LONGEST:
        return _shown_code(text, "", nested=nested)
    definitions = "\n".join(_DEFINITIONS.findall(text))[:_LONGEST_DEFINITIONS]
    kept = {piece for piece, info in _pieces(before) if info is None}

    def written(piece: str, info: str | None) -> str:
        if info is not None:
            return _shown_code(piece, info, nested=nested)
        return piece if piece in kept else _piece(piece, definitions, nested)

    return "\n\n".join(filter(None, starmap(written, _pieces(text))))


def _pieces(text: str) -> Iterator[tuple[str, str | None]]:
    """Split `text` into independent blocks, and fenced code blocks with their info strings.

    Blocks are rendered and cached one by one, so that a growing text costs time linear in its
    length.
    """
    begin = end = 0
    is_open = False
    for cut in _CUT.finditer(text):
        is_open ^= len(_INDENTED_FENCE.findall(text, end, cut.start())) % 2 == 1
        end = cut.end()
        if is_open:
            continue  # in code further to the right
        yield text[begin : cut.start()].strip("\n"), None
        if cut["fence"]:
            yield cut["code"] or "", cut["info"]
        begin = end
    yield text[begin:].strip("\n"), None


def _piece(text: str, definitions: str, nested: bool) -> str:
    if len(text) > _LONGEST_PIECE:
        return _shown_code(text, "", nested=nested)
    return _judged(text, definitions if "[" in text else "", nested)


@lru_cache(_KEPT)
def _judged(text: str, definitions: str, nested: bool) -> str:
    known = {"references": {**_references(definitions)}}  # a copy, to which the parser adds
    nodes = SyntaxTreeNode(_parser().parse(text, known)).children
    written = "\n\n".join(filter(None, (_block(node, nested=nested) for node in nodes)))
    is_shown = _is_harmless(written) and not _is_too_deep(nodes)
    return written if is_shown else _shown_code(text, "", nested=nested)


@lru_cache(8)
def _references(definitions: str) -> dict[str, Any]:
    """Return what `definitions` define, without the words of lines that only look like some."""
    read: dict[str, dict[str, Any]] = {"references": {}}
    _parser().parse(definitions, read)
    return read["references"]


def harmless_prose(text: str) -> str:
    """Do the same as `make_harmless` for inline text, in which no block may begin."""
    return "\n".join(map(_prose_line, _without_separators(text).split("\n")))


def _prose_line(line: str) -> str:
    [inline] = SyntaxTreeNode(_parser().parseInline(line.strip())).children
    written = _paragraph(inline)
    return written if _is_harmless(written) else as_entities(line)


def _without_separators(text: str) -> str:
    return _SEPARATORS.sub(" ", with_newlines(text))


@cache
def _parser() -> MarkdownIt:
    # HTML is not parsed, so it is plain text; addresses are checked when they are written.
    parser = MarkdownIt("commonmark", {"html": False, "maxNesting": _DEEPEST})
    parser.enable(["table", "strikethrough"])
    parser.validateLink = lambda url: True  # type: ignore[method-assign] # as its docs say
    find_formulas(parser)
    return parser


@cache
def _reader() -> MarkdownIt:
    """Return a parser with all syntax that any reader supports, to check the written Markdown."""
    reader = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    reader.validateLink = lambda url: True  # type: ignore[method-assign] # as its docs say
    return reader


def _is_harmless(markdown: str) -> bool:
    blocks = _reader().parse(markdown)
    return all(map(_may_stand, chain(blocks, *(block.children or () for block in blocks))))


def _may_stand(token: Token) -> bool:
    if token.type.startswith("html"):
        return _OUR_TAGS.fullmatch(token.content) is not None
    if token.type == "link_open":
        return _ADDRESS.match(str(token.attrs["href"])) is not None
    return token.type != "image"


def _is_too_deep(nodes: Sequence[SyntaxTreeNode]) -> bool:
    """Return whether the tree reaches the parser's nesting limit, where parsing stops."""
    return any(node.level >= _DEEPEST - 2 for root in nodes for node in root.walk())


# -- blocks ---------------------------------------------------------------------------------------


def _block(node: SyntaxTreeNode, *, nested: bool) -> str:
    return _BLOCKS[node.type](node, nested)


def _paragraph(inline: SyntaxTreeNode) -> str:
    lines = _inline(inline.children, _place(inline)).split("\n")
    return "\n".join(map(_without_block, lines))


def _without_block(line: str) -> str:
    """Escape the beginning of a line that would start a heading, list, quotation, rule or table."""
    found = _BEGINS_BLOCK.match(line)
    return f"{as_entities(found[0])}{line[found.end() :]}" if found else line


def _heading(node: SyntaxTreeNode, _nested: bool) -> str:
    inline = node.children[0]
    text = _inline(inline.children, _place(inline)).replace("\n", " ")
    return f"{'#' * int(node.tag[1])} {text}"


def _list(node: SyntaxTreeNode, _nested: bool) -> str:
    items = [_item(item) for item in node.children]
    tight = all(child.hidden for child in node.walk() if child.type == "paragraph")
    return ("\n" if tight else "\n\n").join(items)


def _item(item: SyntaxTreeNode) -> str:
    marker = f"{item.info}{item.markup} "
    tight = any(child.hidden for child in item.children)
    written = [_block(child, nested=True) for child in item.children]
    return marker + _indented(("\n" if tight else "\n\n").join(written), " " * len(marker))


def _indented(text: str, margin: str) -> str:
    return re.sub(r"\n(?!\n)", f"\n{margin}", text)


def _quotation(node: SyntaxTreeNode, _nested: bool) -> str:
    text = "\n\n".join(_block(child, nested=True) for child in node.children)
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n"))


def _code_block(node: SyntaxTreeNode, nested: bool) -> str:
    return _shown_code(node.content.removesuffix("\n"), node.info, nested=nested)


def _shown_code(code: str, info: str, *, nested: bool) -> str:
    if nested and _IN_NESTED_CODE.search(code):
        # One line: neither a margin nor an empty line can end it before its time.
        return f"<pre><code>{as_entities(code)}</code></pre>"
    language = re.sub(r"[^\w+#.-]", "", info.strip().split(" ")[0])
    # JupyterLab draws such diagrams, and loads the pictures that they name.
    return fenced(code, "text" if language.lower() == "mermaid" else language)


def _formula_block(node: SyntaxTreeNode, _nested: bool) -> str:
    written = write_formula(node.content, "$$", in_table=False)
    return written or fenced(node.meta["source"], "latex")


def _table(node: SyntaxTreeNode, _nested: bool) -> str:
    rows = [row.children for part in node.children for row in part.children]
    lines = [[_cell(cell.children[0]) for cell in row] for row in rows]
    lines.insert(1, [_RULERS[str(cell.attrs.get("style", ""))] for cell in rows[0]])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(inline: SyntaxTreeNode) -> str:
    return _inline(inline.children, replace(_place(inline), in_table=True))


_RULERS = {"": "-", "text-align:left": ":-", "text-align:right": "-:", "text-align:center": ":-:"}
_BLOCKS: dict[str, Callable[[SyntaxTreeNode, bool], str]] = {
    "paragraph": lambda node, _nested: _paragraph(node.children[0]),
    "heading": _heading,
    "bullet_list": _list,
    "ordered_list": _list,
    "blockquote": _quotation,
    "fence": _code_block,
    "code_block": _code_block,
    "math_block": _formula_block,
    "table": _table,
    "hr": lambda _node, nested: "***" if nested else "---",
}


# -- words ----------------------------------------------------------------------------------------


def _place(inline: SyntaxTreeNode) -> _InlineContext:
    return _InlineContext(dollars=inline.content.count("$") > 1)


def _inline(nodes: Iterable[SyntaxTreeNode], place: _InlineContext) -> str:
    written = ""
    for node in nodes:
        part = _INLINE[node.type](node, place)
        if part[:1] == "[" and written[-1:] in ("]", "!"):
            written = written[:-1] + as_entities(written[-1])
        elif part[:1] == "{" and written[-1:] == "`":  # to pandoc `code`{=latex} is LaTeX
            part = as_entities(part[0]) + part[1:]
        elif part[:1] == "$" == written[-1:]:
            written += " "
        written += part
    return written


def _words(node: SyntaxTreeNode, place: _InlineContext) -> str:
    def shown(found: re.Match[str]) -> str:
        if found["url"] and not place.in_link:
            return f"<{found[0]}>"
        if found["url"]:
            return found[0].replace("//", "&#47;/", 1)
        sign = "&lt;" if found[0] == "<" else "&amp;" if found[0] == "&" else as_entities(found[0])
        # JupyterLab and nbconvert look for formulas in the finished page too; only an element ends
        # their search. One dollar alone makes none.
        alone = found[0] == "$" and not place.dollars
        return f"<span>{sign}</span>" if found["opens"] and not alone else sign

    # Once more: the parser has read numbers of characters, such as that of a carriage return.
    text = _SIGNS.sub(shown, _without_separators(node.content))
    text = _IN_LINK.sub(lambda sign: as_entities(sign[0]), text) if place.in_link else text
    return text.replace("|", "&#124;") if place.in_table else text


def as_entities(text: str) -> str:
    """Return `text` on one line with all punctuation as numeric character references."""
    return _PUNCTUATION.sub(lambda sign: f"&#{ord(sign[0])};", text).replace("\n", "&#10;")


def _around(node: SyntaxTreeNode, place: _InlineContext) -> str:
    text = _inline(node.children, place)
    return f"{node.markup}{text}{node.markup}"


def _link(node: SyntaxTreeNode, place: _InlineContext) -> str:
    return _linked(_inline(node.children, replace(place, in_link=True)), str(node.attrs["href"]))


def _image(node: SyntaxTreeNode, place: _InlineContext) -> str:
    """Render an image as a link: loading the image would notify its server that it was read."""
    label = "".join(each.content for each in node.walk() if each.type in ("text", "code_inline"))
    label = as_entities(_without_separators(label)) or "image"
    return label if place.in_link else f"&#33;{_linked(label, str(node.attrs['src']))}"


def _linked(label: str, address: str) -> str:
    safe = re.sub(r"&(?=#)|@(?=@)", lambda sign: f"%{ord(sign[0]):X}", address)
    safe = quote(safe, safe=_IN_ADDRESS + "@" * address.startswith("mailto:"))
    if not label or not safe:
        return label
    if _ADDRESS.match(address):
        return (
            f"<{safe}>"
            if label.replace("&#47;/", "//") == safe and "://" in safe
            else f"[{label}]({safe})"
        )
    return f"{label} ({code_span(address[:200])})"


def _formula(node: SyntaxTreeNode, place: _InlineContext) -> str:
    written = None
    if not place.in_link:
        written = write_formula(node.content, node.markup, in_table=place.in_table)
    return written or _code(node.meta["source"], place)


def _code(code: str, place: _InlineContext) -> str:
    if (place.in_table and "|" in code) or (place.in_link and re.search(r"[\[\]$]", code)):
        return f"<code>{as_entities(code)}</code>"
    return code_span(code)


_INLINE: dict[str, Callable[[SyntaxTreeNode, _InlineContext], str]] = {
    "text": _words,
    "em": _around,
    "strong": _around,
    "s": _around,
    "link": _link,
    "image": _image,
    "math": _formula,
    "code_inline": lambda node, place: _code(node.content, place),
    "softbreak": lambda _node, _place: "\n",
    "hardbreak": lambda _node, _place: "  \n",
}


# -- code of ours ---------------------------------------------------------------------------------


def fenced(code: str, language: str = "") -> str:
    """Return `code` as a fenced code block with a fence longer than any run of backticks in it."""
    longest = max((len(run) for run in _TICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join(filter(None, (fence + language, code))) + f"\n{fence}"


def code_span(text: str) -> str:
    """Return `text` as inline code on one line, with entities where backticks would not be safe."""
    text = re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text)
    if not text.strip() or _UNSAFE_IN_CODE.search(text):
        return f"<code>{as_entities(text)}</code>"
    return f"`{text}`"
