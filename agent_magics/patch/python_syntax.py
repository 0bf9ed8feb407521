"""Checks whether a changed Python file still parses."""

import ast
import warnings

from agent_magics.patch.files import TextFile
from agent_magics.protocol.errors import short_message

_ENDINGS = (".py", ".pyi", ".pyw")
_MOST_CHARACTERS = 500_000  # above that, parsing takes longer than a patch should


def why_unreadable(name: str, before: TextFile, after: TextFile) -> str:
    """Return where a changed Python file has a syntax error, or "".

    A file that had a syntax error before is not judged: it may be a template, or for another
    version of Python.

    Args:
        name: the file's name, whose ending shows whether it is Python.
        before: its text.
        after: its text after the change.
    """
    if not name.endswith(_ENDINGS):
        return ""
    texts = ["\n".join(text.lines) for text in (before, after)]
    if max(map(len, texts)) > _MOST_CHARACTERS or _problem(texts[0]):
        return ""
    return _problem(texts[1])


def _problem(text: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as "\\d" in a string
            ast.parse(text)
    except SyntaxError as error:
        return f"line {error.lineno} is no Python any more ({error.msg})"
    except (ValueError, RecursionError, MemoryError) as error:  # a NUL; nesting beyond the parser
        return f"line 1 and what follows is no Python any more ({short_message(error)})"
    except SystemError:  # of Python 3.11, where another thread parses too (gh-106905)
        return ""
    return ""
