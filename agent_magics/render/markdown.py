"""Makes Markdown that a model or a tool wrote harmless: no HTML, no scripts, no remote images.

A trusted notebook runs HTML that stands in Markdown, and a script in the page could press
Approve. Readers differ (CommonMark, GitHub's, marked, the formulas of JupyterLab), so nothing here
follows one of them closely: links and formulas stay only in one plain form, and a `<` stays only in
code that no reader can take for anything else. Signs become entities, which are never syntax.
"""

import re

_FENCE = re.compile(r"( {0,3})(`{3,}|~{3,})(.*)")
_TICKS = re.compile(r"`+")
_SEPARATORS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")

# What stays as it is, on one line: [words](address), `code`, $formula$. Titles are dropped, for
# JupyterLab puts formulas back inside attributes; the signs allowed here cannot leave one.
_WORDS = r"(?:[^`<\[\]$\\@]|`[^`<\[\]$\\@|]+`)*"
_ADDRESS = r"(?:https?://[\w.~+,=:%/?&#-]+|mailto:[\w.+-]+@[\w.-]+|[\w./#~-][\w.~+,=%/?#-]*)"
_LINK = (
    rf"(?<!\\)(?P<image>!?)\[(?P<words>{_WORDS})\]\((?P<address>{_ADDRESS})(?: +\"[^\"`$]*\")?\)"
)
_CODE = r"(?P<code>`[^`]+`)"
_FORMULA = r"(?P<dollars>\${1,2})(?=[^\s$])[\w ^{}()+*/=.,:;!\\|-]+(?<!\s)(?P=dollars)"
_MATH = rf"(?<![\\$\w])(?P<math>{_FORMULA})(?![\w$])"
_LINK_ONLY = re.compile(_LINK)
_LINK_OR_CODE = re.compile(f"{_LINK}|{_CODE}")
_ANY = re.compile(f"{_LINK}|{_CODE}|{_MATH}")

# What begins a link, a definition or an address that readers find by themselves.
_LEADS_AWAY = re.compile(r"\]\(|\]:|://|www\.|@", re.IGNORECASE)
# What begins a formula of several lines, or stands for one that was taken out.
_OPENS_MATH = re.compile(r"\\(?=begin|end)|\\(?=\\[()\[\]])|@(?=@\d)", re.IGNORECASE)
_BRACKETS = {"](": "]&#40;", "]:": "]&#58;"}


def make_harmless(text: str) -> str:
    """Return `text` as Markdown that looks the same and can do nothing."""
    parts: list[str] = []
    prose: list[str] = []
    lines = _lines(text)
    position = 0
    while position < len(lines):
        fence = _FENCE.match(_SEPARATORS.sub(" ", lines[position]))
        if fence is None or (fence[2][0] == "`" and "`" in fence[3]):
            prose.append(lines[position])
            position += 1
            continue
        end = _end_of_fence(lines, position + 1, fence[2])
        code = [_unindented(line, len(fence[1])) for line in lines[position + 1 : end]]
        parts += [_harmless_lines(prose), _fenced(code, fence[3])]
        prose = []
        position = end + 1
    parts.append(_harmless_lines(prose))
    # A blank line on both sides of every code block ends whatever stood open before it.
    return "\n\n".join(filter(None, (part.strip("\n") for part in parts)))


def harmless_prose(text: str) -> str:
    """Do the same for words inside a line or a quotation of ours, where no code block begins."""
    return _harmless_lines(_lines(text))


def _lines(text: str) -> list[str]:
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def _end_of_fence(lines: list[str], start: int, fence: str) -> int:
    closing = re.compile(rf" {{0,3}}{re.escape(fence[0])}{{{len(fence)},}}[ \t]*")
    for position in range(start, len(lines)):
        if closing.fullmatch(lines[position]):
            return position
    return len(lines)


def _unindented(line: str, width: int) -> str:
    """Take away as many spaces as the fence has in front of it."""
    return line[min(width, len(line) - len(line.lstrip(" "))) :]


def _fenced(code: list[str], info: str) -> str:
    """Write a code block anew, with a fence that nothing inside can close."""
    return fenced("\n".join(code), re.sub(r"[^\w+#.-]", "", info.strip().split(" ")[0]))


def fenced(code: str, language: str = "") -> str:
    """Return `code` as a fenced block; its content is shown exactly as it is."""
    longest = max((len(run) for run in _TICKS.findall(code)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join(filter(None, (fence + language, code))) + f"\n{fence}"


def _harmless_lines(lines: list[str]) -> str:
    """Treat each paragraph by itself: what stands open in one never reaches the next."""
    out: list[str] = []
    paragraph: list[str] = []
    for line in (_SEPARATORS.sub(" ", line) for line in [*lines, ""]):
        if line.strip():
            paragraph.append(line)
        else:
            out += [*_harmless_paragraph(paragraph), line]
            paragraph = []
    return "\n".join(out[:-1])


def _harmless_paragraph(lines: list[str]) -> list[str]:
    """Keep `<` in code only where every pair of backticks is plain, and no formula may cut it."""
    text = "\n".join(lines)
    # ("~" before a backtick makes marked 16, which is in JupyterLab, overlook the code.)
    plain = all(map(_has_plain_code, lines)) and not set("$\\~") & set(text)
    prose = re.sub(_CODE, "", text)
    # Emphasis that begins in the words must not be able to end inside the code.
    unsafe = "|[]@" + "".join(sign for sign in "*_" if sign in prose)
    return [
        _harmless_line(line, unsafe if plain and not _LEADS_AWAY.search(line) else None)
        for line in lines
    ]


def _has_plain_code(line: str) -> bool:
    """Say whether the backticks of a line are single ones, in pairs, and none is escaped."""
    runs = _TICKS.findall(line)
    return len(runs) % 2 == 0 and all(run == "`" for run in runs) and "\\`" not in line


def _harmless_line(line: str, unsafe: str | None) -> str:
    """Escape all but links, code and formulas.

    Args:
        unsafe: signs that forbid a bare `<` in the same code; None forbids it everywhere.
    """
    kept = _LINK_ONLY
    if _has_plain_code(line):
        kept = _LINK_OR_CODE if _LEADS_AWAY.search(line) else _ANY
    out: list[str] = []
    position = 0
    for match in kept.finditer(line):
        out.append(_escape(line[position : match.start()]))
        out.append(_kept(match, unsafe))
        position = match.end()
    return "".join([*out, _escape(line[position:])])


def _kept(match: re.Match[str], unsafe: str | None) -> str:
    found = match.groupdict()
    if found["address"] is not None:
        image = "&#33;" if found["image"] else ""
        return f"{image}[{found['words']}]({found['address']})"
    if found.get("math") is not None:
        return match[0] if _is_simple_formula(match[0]) else _escape(match[0])
    code = _escape_signs(match[0])
    bare = unsafe is not None and not set(unsafe) & set(code)
    return code if bare else code.replace("<", "&lt;")


def _is_simple_formula(formula: str) -> bool:
    """Say whether the braces match: else JupyterLab takes what follows for the formula too."""
    depth = 0
    for brace in re.findall(r"[{}]", re.sub(r"\\[{}]", "", formula)):
        depth += 1 if brace == "{" else -1
        if depth < 0:
            return False
    return depth == 0 and not _OPENS_MATH.search(formula)


def _escape(text: str) -> str:
    text = _escape_signs(text).replace("<", "&lt;").replace("$", "&#36;")
    return text.replace("![", "&#33;[")


def _escape_signs(text: str) -> str:
    """Escape what must not stand in code either."""
    text = _OPENS_MATH.sub(lambda sign: "@ " if sign[0] == "@" else "&#92;", text)
    return re.sub(r"\]\(|\]:", lambda bracket: _BRACKETS[bracket[0]], text)


def code_span(text: str) -> str:
    """Return `text` as one inline code span, whatever backticks it holds.

    Line ends become spaces, and what opens a formula in JupyterLab gets a space in the middle.
    """
    text = re.sub(r"[\x00-\x1f\x7f\x85\u2028\u2029]", " ", text)
    text = _OPENS_MATH.sub(lambda sign: f"{sign[0]} ", text)
    longest = max((len(run) for run in _TICKS.findall(text)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{ticks}{pad}{text}{pad}{ticks}"
