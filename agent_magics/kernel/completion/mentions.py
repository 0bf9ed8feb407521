"""Completes mentions in a prompt: variables and files after ``@``, prompts after ``/``.

Law: completion runs no code of the person's, and no name of a file that it inserts can become an
expression, since names with ``{{`` are not offered.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from agent_magics.config_files.places import FOLDER
from agent_magics.dispatch.results.values import describe_value, kind_of, library_class
from agent_magics.dispatch.tool import is_tool
from agent_magics.files.folders import FolderWalk, WalkRights
from agent_magics.files.paths import read_judge
from agent_magics.project.digests import usable
from agent_magics.project.prompts import find_prompts
from agent_magics.protocol.errors import RespondToModel

_MENTION = re.compile(r"(?:^|(?<=[\s(\[\"'`,;:]))@([^\s@{}()\[\]\"'`]*)\Z")
_EXPRESSION = re.compile(r"\{\{\s*([^\W\d]\w*)?\Z")
_COLUMN = re.compile(r"\{\{\s*([^{}\n]*)\Z")
_COLUMNS = re.compile(r"(?<= columns) \(.*", re.DOTALL)  # the names, which are too long here
_PROMPT = re.compile(r"\s*(/[\w-]*)\Z")
# Nothing that a person would show to a model as data.
_NO_DATA = ("module", "class", "function")
# Tables that are in memory, and what has the names of their columns.
_TABLES = {
    ("pandas", "DataFrame"): "columns",
    ("polars", "DataFrame"): "columns",
    ("pyarrow", "Table"): "column_names",
}
_MOST_VARIABLES, _MOST_FILES = 100, 50
_PATIENCE = 0.3  # seconds for the files of a large workspace
_NO_SIZE = 1 << 62  # bytes below which a description leaves the size out
_SEARCHED = 2  # characters of a name that is looked for in all folders


class Candidate(NamedTuple):
    """One completion.

    Attributes:
        text: what is inserted.
        kind: what it is, in a few words: a variable's type and shape, "file".
    """

    text: str
    kind: str = ""


def complete_mention(
    text: str, namespace: Mapping[str, object], hidden: Iterable[str], workspace: Path
) -> tuple[str, tuple[Candidate, ...]]:
    """Return the begun mention at the end of a prompt, and what it may become.

    Args:
        text: the prompt up to the cursor.
        namespace: the variables of the kernel.
        hidden: names of variables that are not the person's.
        workspace: the folder whose files and prompts are offered.
    """
    if begun := _EXPRESSION.search(text):
        name = begun[1] or ""
        return name, tuple(find_variables(name, namespace, hidden))
    if begun := _MENTION.search(text):
        variables = find_variables(begun[1], namespace, hidden)
        inserted = [Candidate(f"{{{{{each.text}}}}}", each.kind) for each in variables]
        return begun[0], (*inserted, *find_files(begun[1], workspace))
    if begun := _PROMPT.fullmatch(text):
        return begun[1], tuple(_prompts(begun[1], workspace))
    return "", ()


def complete_column(text: str, rows: object) -> tuple[str, tuple[Candidate, ...]]:
    """Return the begun column at the end of a prompt about rows, and what it may become.

    Args:
        text: the prompt up to the cursor.
        rows: a table, or a list of dicts; nothing is offered for what would have to run code.
    """
    if begun := _COLUMN.search(text):
        return begun[1], tuple(_columns(rows, begun[1], "{}"))
    if begun := _MENTION.search(text):
        return begun[0], tuple(_columns(rows, begun[1], "{{{{{}}}}}"))
    return "", ()


def _columns(rows: object, begun: str, form: str) -> Iterator[Candidate]:
    names: Iterable[object] = ()
    library = library_class(rows)
    if library in _TABLES:
        names = list(getattr(rows, _TABLES[library]))
    elif type(rows) is list and rows and type(rows[0]) is dict:
        names = list(rows[0])
    fitting = [name for name in names if type(name) is str and name.startswith(begun)]
    for name in fitting[:_MOST_VARIABLES]:
        yield Candidate(form.format(name), "column")


def find_variables(
    begun: str, namespace: Mapping[str, object], hidden: Iterable[str]
) -> list[Candidate]:
    """Return the person's variables whose names begin so, with their types and shapes."""
    own = set(hidden)
    names = sorted(
        name
        for name, value in list(namespace.items())
        if type(name) is str  # code may have put in others
        and name.startswith(begun)
        and not name.startswith("_")
        and name not in own
        and kind_of(value) not in _NO_DATA
        and not is_tool(value)
    )
    return [
        Candidate(name, _COLUMNS.sub("", describe_value(namespace[name], least=_NO_SIZE)))
        for name in names[:_MOST_VARIABLES]
        if name in namespace  # the kernel may be at work
    ]


def find_files(begun: str, workspace: Path) -> list[Candidate]:
    """Return the files and folders of the workspace that a begun path may become.

    Those come first that continue the path, then those of that name in deeper folders. Ignored and
    protected files are left out, and links, whose targets may be anywhere.
    """
    folder, slash, name = begun.rpartition("/")
    folder += slash
    wanted = name.casefold()
    found = []
    for path, kind in _walk(folder, workspace, deep=len(name) >= _SEARCHED):
        inside, _, last = path.removeprefix(folder).rpartition("/")
        fits = last.casefold().startswith(wanted) if not inside else wanted in last.casefold()
        if path.startswith(folder) and fits and path.isprintable() and "{{" not in path:
            found.append((bool(inside), path, kind))
    return [
        Candidate(_quoted(f"{path}/" if kind == "folder" else path), kind)
        for _, path, kind in sorted(found)[:_MOST_FILES]
    ]


def _walk(folder: str, workspace: Path, *, deep: bool) -> Iterator[tuple[str, str]]:
    """Yield path and kind of what is in a folder of the workspace, as far as time allows."""
    root = str(workspace.resolve())
    end = monotonic() + _PATIENCE
    secret = read_judge((Path(root),))
    way = f"{root}/{folder}"

    def judge(path: str) -> str:
        leads = f"{path}/".startswith(way) or way.startswith(f"{path}/")
        return secret(path) if leads else "elsewhere"

    depth = None if deep else folder.count("/") + 1
    rights = WalkRights(judge, is_cancelled=lambda: monotonic() > end)
    walk = FolderWalk(root, depth, f"/{folder}".count("/.") > 0, rights)
    with suppress(OSError, RespondToModel):  # late, or a folder that has gone
        for path, entry in walk.entries():
            if entry.kind in ("file", "folder") and not secret(entry.path):
                yield path, entry.kind
            if monotonic() > end:
                return


def _quoted(path: str) -> str:
    """Return a path as it stands in a prompt."""
    return f"`{path}`" if " " in path else path


def _prompts(begun: str, workspace: Path) -> Iterator[Candidate]:
    prompts = usable(find_prompts(workspace))
    for prompt in prompts:
        if f"/{prompt.name}".startswith(begun):
            yield Candidate(f"/{prompt.name}", prompt.description or "prompt")
    if not prompts:  # taken, it leaves what stands there
        yield Candidate(begun, f"no prompts yet: write {FOLDER}/prompts/name.md")
