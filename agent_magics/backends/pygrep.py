"""The search without ripgrep: a script of its own, so that a regex that never ends can be killed.

Run as ``python -I -S -X utf8 pygrep.py PATTERN CASE CONTEXT FILE...`` with CASE "s" (sensitive) or
"i". It prints what ``rg --json`` would, as far as `search.py` reads it, and imports nothing of the
package. Its exit code is 2 when PATTERN is no regular expression; standard error then says why.
"""

import codecs
import collections
import io
import json
import os
import re
import sys
from typing import TextIO


def main(arguments: list[str]) -> int:
    """Search every file; return the exit code."""
    pattern, case, context, *files = arguments
    try:
        regex = re.compile(pattern, re.IGNORECASE if case == "i" else 0)
    except (re.error, OverflowError, RecursionError) as error:
        sys.stderr.write(str(error))
        return 2
    for path in files:
        try:
            search_file(regex, path, int(context))
        except OSError as error:
            sys.stderr.write(f"{path!a}: {error.strerror}\n")
    return 0


def search_file(regex: re.Pattern[str], path: str, context: int) -> None:
    """Print the matching lines of one file, with `context` lines around each."""
    before: collections.deque[tuple[int, str]] = collections.deque(maxlen=context)
    left_after, begun, binary = 0, False, None
    with open_text(path) as lines:
        for number, line in enumerate(lines, start=1):
            if "\0" in line:
                binary = number
                break
            found = regex.search(line.removesuffix("\n"))
            if found:
                if not begun:
                    show("begin", path=path)
                begun = True
                for earlier in before:
                    show_line("context", *earlier)
                before.clear()
                show_line("match", number, line, found.start())
                left_after = context
            elif left_after:
                show_line("context", number, line)
                left_after -= 1
            else:
                before.append((number, line))
    if begun:
        show("end", path=path, binary_offset=binary)


def open_text(path: str) -> TextIO:
    """Open a regular file by its byte order mark, else as UTF-8; lines end with "\\n" alone."""
    folder, _, name = path.rpartition("/")
    if folder == "/dev/fd":  # opened already, by whoever started us
        descriptor = os.dup(int(name))
    else:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    raw = os.fdopen(descriptor, "rb")
    head = raw.peek(2)[:2]
    encoding = "utf-16" if head in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig"
    return io.TextIOWrapper(raw, encoding, errors="replace", newline="\n")


def show_line(kind: str, number: int, line: str, start: int | None = None) -> None:
    """Print one line of a file; `start` is where the match begins, in bytes as ripgrep counts."""
    hits = [] if start is None else [{"start": len(line[:start].encode())}]
    show(kind, lines={"text": line}, line_number=number, submatches=hits)


def show(kind: str, path: str | None = None, **data: object) -> None:
    """Print one record."""
    if path is not None:
        data["path"] = {"text": path}
    sys.stdout.write(json.dumps({"type": kind, "data": data}, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
