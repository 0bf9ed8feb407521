"""Reads scripts of sed and awk, and tells whether they may run a program.

What is read in two ways, as versions differ, counts as running one where either does.
"""

import re

from agent_magics.approval.commands.words import Words

# -- sed -------------------------------------------------------------------------------------------


def _pattern_before(end: str) -> str:
    """Return the regex of one of sed's up to its end, a character that is written as in a regex.

    Whether a delimiter in brackets ends it depends on the version, so none may stand there.
    """
    return rf"(?>(?:\\[^c]|\[\^?\]?[^{end}\]\\\n]*\]|[^{end}\\\n\[])*){end}"


_ADDRESS = rf"(?:[+~]?\d++(?:~\d++)?|\$|/{_pattern_before('/')}[IM]*+)"


def _substitution(sign: str) -> str:
    """Return the regex of sed's `s` with a delimiter, which is written as in a regex."""
    text = rf"(?:\\[^c]|[^{sign}\\\n])*+{sign}"
    # A delimiter in brackets of a pattern: where it ends the pattern, the script must be refused
    # for what stands in the place of flags. A refused script does nothing.
    in_brackets = (
        rf"(?={text}{text}[gpiImM\d]*+[^\s;}}#\\gpiImMeEwW\d])"
        rf"(?>(?:\\[^c]|\[\^?[^\]\[\\\n]+\]|[^{sign}\\\n\[])*){sign}"
    )
    return rf"s{sign}(?:{_pattern_before(sign)}|{in_brackets}){text}[gpiImM\d]*+"


_SED_COMMAND = (
    "|".join(map(_substitution, map(re.escape, "/|#,:@!%_~")))
    + r"|y/(?:\\[^c]|[^/\\\n])*+/(?:\\[^c]|[^/\\\n])*+/"
    r"|[aic](?:\\.|[^\\\n])*+|[qQl]\s*+\d*+|[dDgGhHnNpPxz={}]"
    r"|[btT:][ \t]*+[^\s;}]*+"  # GNU's reads what is behind a label as the next command
)
_ADDRESSES = rf"(?>(?:{_ADDRESS}(?:,\s*+{_ADDRESS})?)?)\s*+!*+\s*+"
# A piece of a script of sed that is known to neither run nor write anything.
_PLAIN_SED = re.compile(rf"[\s;]|{_ADDRESSES}(?:{_SED_COMMAND})", re.DOTALL)
_SED_EXPRESSION = re.compile(r"(?:-[bnErsuz]*+e|--e[a-z]*+=?+)(.*)", re.DOTALL)


def may_run_in_sed(argv: Words, start: int) -> bool:
    """Tell whether a script of sed from word `start` on may run a program or write a file."""
    return not all(map(_is_plain_sed, _scripts_of_sed(argv, start)))


def _scripts_of_sed(argv: Words, start: int) -> list[str]:
    """Return the words from `start` on that sed reads as scripts."""
    found = [(at, word) for at, word in enumerate(argv) if word and not word.startswith("-")][1:2]
    expressions = list(enumerate(map(_SED_EXPRESSION.fullmatch, argv)))
    if any(each for _, each in expressions):
        glued = [(at, each[1]) for at, each in expressions if each]
        found = [
            (at, text) if text else (at + 1, "".join(argv[at + 1 : at + 2])) for at, text in glued
        ]
    return [script for at, script in found if at >= start]


def _is_plain_sed(script: str) -> bool:
    """Tell whether a script of sed is known to run no program and to write nothing."""
    at = 0
    while at < len(script):
        piece = _PLAIN_SED.match(script, at)
        if piece is None:
            return False
        at = piece.end()
    return True


# -- awk -------------------------------------------------------------------------------------------

# What runs a program in the code of awk, or loads some; "||" is an "or".
_RUNS_IN_AWK = re.compile(r"\bsystem[\s\\]*+\(|@[\s\\]*+[A-Z_]|\|", re.ASCII | re.I)
_TEXT_OF_AWK = re.compile(r'"(?:\\.|[^"\\\n])*+"|#[^\n\\]*+(?![^\n])', re.DOTALL)  # or a comment
# One that ends at the same slash, whether or not a slash in brackets ends it.
_REGEX_OF_AWK = re.compile(
    r"/(?>(?:\\[^\n]|[^/\\\n\[]"
    r"|\[\^?+\]?+(?>(?:\[[:.=][^\]/\n]*\]|\\[^\n]|[^\]\[/\\\n])*)\])+)/"
)
_CODE_OF_AWK = re.compile(r"(?>(?:[ \t\r]|\\\r?\n)+)|\w++|[^/\"#]", re.ASCII)
_SLASH = re.compile("/")
_BEFORE_REGEX = re.compile(r"|[{};,(!~&|?:=\n]")
_BEFORE_DIVISION = re.compile(
    r'(?!(?:print|printf|return|in|else|do|case|exit|getline|length|delete)\Z)\w+|\]|".*',
    re.ASCII | re.DOTALL,
)


def may_run_in_awk(argv: Words, start: int) -> bool:
    """Tell whether a script of awk from word `start` on may run a program.

    Args:
        argv: the command as `without_values` returns it.
        start: as that returns it.
    """
    return not all(map(_is_plain_awk, _scripts_of_awk(argv, start)))


def without_values(argv: Words, start: int) -> tuple[list[str], int]:
    """Return a command of awk without separators and variables, and where `start` is in it."""
    kept, is_value, before, is_over = [argv[0]], False, 1, False
    for at, word in enumerate(argv[1:], 1):
        is_given = not is_over and (is_value or word.startswith(("-F", "-v")))
        is_over = is_over or (not is_value and word == "--")
        is_value = not is_over and not is_value and word in ("-F", "-v")
        if not is_given:
            kept.append(word)
            before += at < start
    return kept, before


def _scripts_of_awk(argv: Words, start: int) -> list[str]:
    """Return the words from `start` on that awk may read as scripts."""
    operand = next((at for at, word in enumerate(argv[1:], 1) if not word.startswith("-")), 0)
    has_options = any(word.startswith("-") and word != "--" for word in argv[1:])
    return list(argv[start:]) if has_options else list(argv[max(start, operand) : operand + 1])


def _is_plain_awk(script: str) -> bool:
    """Tell whether a script of awk is known to run no program."""
    if not _runs_in_awk(script):
        return True  # however its slashes are read
    code = _code_of_awk(script)
    return bool(code) and not _runs_in_awk(code)


def _runs_in_awk(code: str) -> bool:
    return bool(_RUNS_IN_AWK.search(code.replace("||", " ")))


def _code_of_awk(script: str) -> str:
    """Return a script of awk without texts and regexes; "" where a slash might begin a regex or
    divide.
    """
    code, before, at = "", "", 0
    while at < len(script):
        text = _TEXT_OF_AWK.match(script, at)
        found = text or _CODE_OF_AWK.match(script, at)
        if script[at] == "/" and _BEFORE_REGEX.fullmatch(before):
            found = text = _REGEX_OF_AWK.match(script, at)
        elif script[at] == "/" and (
            _BEFORE_DIVISION.fullmatch(before) or "/" not in script[at + 1 :]
        ):
            found = _SLASH.match(script, at)
        if found is None:
            return ""
        code += " " if text else found[0]
        is_blank = found[0][0] in " \t\r\\" or found[0][0] == "#"
        before = before if is_blank else found[0]
        at = found.end()
    return code
