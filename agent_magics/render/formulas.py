r"""Finds formulas in Markdown as JupyterLab does, and writes them so that every reader shows them.

A formula stands between ``$``, ``$$``, ``\(`` and ``\)``, or ``\[`` and ``\]``. All are written
with dollars and on one line, on which JupyterLab, nbconvert and GitHub agree.
"""

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline

_INLINE = re.compile(
    r"\$\$(?P<dollars>[^$]{1,4000})\$\$|\\\[(?P<brackets>.{1,4000}?)\\\]"
    r"|\\\((?P<parens>.{1,1000}?)\\\)"
    r"|\$(?![\s$])(?P<dollar>(?:\\.|[^$\n\\]){0,1000}?(?:\\\S|[^\s\\$]))\$(?!\d)",
    re.DOTALL,
)
_MOST_LINES = 60
_CLOSERS = {"$$": "$$", "\\[": "\\]"}

# What would end the formula, hide its end, or reach beyond it, in one reader or another; LaTeX
# reads characters by their codes after two carets.
_UNSAFE = re.compile(r"\$|`|\^\^|(?<!\\)%|@@|[^\S \n]|[\x00-\x09\x0b-\x1f\x7f]")
# Macros that make links, styles and elements, that change what later formulas mean, or by which one
# lies over what stands beside it.
_ACTS = re.compile(
    r"\\(?:begin\s*\{)?(?:href|url|class|cssId|style|data|html\w*|require|include\w*|bbox|enclose"
    r"|texttip|mmlToken|action\w*|unicode|char|catcode|csname|[gex]?def|let|futurelet"
    r"|\w*newcommand|providecommand|\w*newenvironment"
    r"|Newextarrow|Declare\w+|definecolor|\w*newtagform|usetagform|mathtoolsset"
    r"|newcolumntype|smash|\w*[rlc]lap|f?colorbox|mathtip|tip|toggle)(?![a-zA-Z])"
)
# What reads or writes files, runs programs or makes other commands where LaTeX prints the notebook.
# ``\begin{input}`` is the command of that name too.
_ACTS_IN_LATEX = re.compile(
    r"\\(?:begin\s*\{)?(?:\w*[iI]nput\w*|read\w*|(?:open|close)(?:in|out)|write|immediate|special"
    r"|(?:direct|late)?lua\w*|\w*[sS]hell\w*|pdf\w+|XeTeX\w+|scantokens|\w*[vV]erbatim\w*|lst\w+"
    r"|IfFile\w+|file\w+|\w*image|\w*include\w*|\w*import|subfile|usepackage|Require\w+|Load\w+"
    r"|documentclass|minted|bibliography\w*"
    r"|externaldocument|graphicspath|makeat\w+|Expl\w+|every\w+|type(?:in|out))"
    r"(?![a-zA-Z])"
)
# A length as MathJax reads it: after a macro such as \\kern, or as an argument of one.
_LENGTH = re.compile(
    r"(?:\\[a-zA-Z]+|[{\[])\s*[-+]?(\d+(?:[.,]\d*)?|[.,]\d+)\s*"
    r"(em|ex|px|pt|pc|in|cm|mm|mu|bp|dd|cc)(?![a-zA-Z])"
)
_QUADS = re.compile(r"\\(qq|q)uad(?![a-zA-Z])")  # of 2 em, and of 1
_EMS = {"em": 1, "ex": 0.43, "px": 0.063, "pt": 0.1, "pc": 1.2, "in": 7.3, "cm": 2.9}
_EMS |= {"mm": 0.29, "mu": 0.056, "bp": 0.1, "dd": 0.11, "cc": 1.3}
_MOST_EMS = 40  # of all lengths of a formula; more would lie over what stands beside it
# TeX skips a space at these places; Markdown would read a tag, a link or an image without it.
_MEANS_MORE = re.compile(r"<(?=[A-Za-z/!?])|\](?=[(\[:])|!(?=\[)|\\\\(?=[(\[])")


def find_formulas(parser: MarkdownIt) -> None:
    """Add rules to `parser` that return formulas as tokens ``math`` and ``math_block``."""
    before = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("fence", "math_block", _read_block, {"alt": before})
    parser.inline.ruler.before("escape", "math", _read_inline)


def _read_inline(state: StateInline, silent: bool) -> bool:
    found = _INLINE.match(state.src, state.pos) if state.src[state.pos] in "$\\" else None
    if found is None:
        return False
    if not silent:
        token = state.push("math", "", 0)
        token.content = found[found.lastgroup or 0]
        token.markup = "$$" if found.lastgroup in ("dollars", "brackets") else "$"
        token.meta = {"source": found[0]}
    state.pos = found.end()
    return True


def _read_block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a display formula (a markdown-it block rule), up to an empty line."""
    begin = state.bMarks[start] + state.tShift[start]
    closer = _CLOSERS.get(state.src[begin : begin + 2])
    if closer is None or state.is_code_block(start):
        return False
    last = _last_line(state, start, end, closer)
    if last is None:
        return False
    if not silent:
        token = state.push("math_block", "", 0)
        text = state.getLines(start, last + 1, state.blkIndent, False).strip()
        token.content, token.markup, token.meta = text[2:-2], "$$", {"source": text}
        token.map = [start, last + 1]
        state.line = last + 1
    return True


def _last_line(state: StateBlock, start: int, end: int, closer: str) -> int | None:
    """Return the index of the first line that contains `closer`, if `closer` ends that line."""
    for last in range(start, min(end, start + _MOST_LINES)):
        line = state.src[state.bMarks[last] + state.tShift[last] : state.eMarks[last]].rstrip()
        if not line or state.sCount[last] < state.blkIndent:
            return None
        line = line[2:] if last == start else line
        if closer in line:
            return last if line.index(closer) == len(line) - 2 else None
    return None


def write_formula(formula: str, dollars: str, *, in_table: bool) -> str | None:
    """Return the formula as Markdown with dollars, or None if it could reach beyond its place.

    That is where readers could disagree on its end, where it acts, and where its lengths are large.

    Args:
        formula: TeX without its delimiters.
        dollars: the delimiter: "$" or "$$".
        in_table: whether it stands in a table cell, in which "|" would end the cell.
    """
    acts = _ACTS.search(formula) or _ACTS_IN_LATEX.search(formula)
    if acts or _UNSAFE.search(formula) or not _is_closed(formula):
        return None
    lengths = (float(n.replace(",", ".")) * _EMS[unit] for n, unit in _LENGTH.findall(formula))
    if sum(lengths) + sum(map(len, _QUADS.findall(formula))) > _MOST_EMS:
        return None
    formula = _MEANS_MORE.sub(r"\g<0> ", " ".join(formula.split()))
    if in_table:
        formula = re.sub(
            r"\\?\|", lambda bar: r"\Vert " if bar[0][0] == "\\" else r"\vert ", formula
        )
    return f"{dollars}{formula}{dollars}" if formula and formula[-1] != "\\" else None


def _is_closed(formula: str) -> bool:
    """Return whether all braces and environments that the formula opens are closed in it."""
    depth = 0
    for brace in re.findall(r"[{}]", re.sub(r"\\[{}]", "", formula)):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    opened: list[str] = []
    for word, name in re.findall(r"\\(begin|end)\b *(\{[a-zA-Z]*\*?\}|)", formula):
        if word == "begin":
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return depth == 0 and not opened
