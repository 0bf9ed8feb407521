"""Law: text of others is matched in linear time.

`re` holds the interpreter's lock, so a match that takes minutes stops the whole kernel, its
interrupts included. Each row is a text that took quadratic time, or more, with a plausible pattern.
"""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from agent_magics.delegation.files import parse_type
from agent_magics.dispatch.foreign_schemas.sanitizer import sanitize_parameters
from agent_magics.engine.arriving import ArrivingCall
from agent_magics.engine.channels.redaction import redact_text
from agent_magics.engine.results.structured import json_in
from agent_magics.exec.protected import git_changes
from agent_magics.files.git.settings import settings_in
from agent_magics.files.search.patterns import refuse_ambiguous, refuse_unsearchable
from agent_magics.kernel.commands.recordings import notebook_prompts
from agent_magics.kernel.commands.recordings.notebook_prompts import NotebookPrompts
from agent_magics.kernel.completion import cells
from agent_magics.kernel.live.namespace import interpolate
from agent_magics.mcp.client.schemas import endless_reference
from agent_magics.models.base import CallChunk
from agent_magics.models.recordings.redaction import Hider
from agent_magics.models.wires.schema_forms import resolve_references
from agent_magics.patch.files import decode_text
from agent_magics.patch.replacement import ReplaceText, replace_text
from agent_magics.project.front_matter import split_front_matter
from agent_magics.protocol.errors import AgentMagicsError, FatalError
from agent_magics.rows.prompts import Template
from agent_magics.symbols import edits
from agent_magics.symbols.parsing import parse_symbols
from agent_magics.symbols.servers import framing
from agent_magics.symbols.text import SourceText
from agent_magics.symbols.types import Position, Range, Symbol, TextEdit
from agent_magics.tools.commands import confinement, scripted_patch
from agent_magics.tools.structure import editing
from agent_magics.tools.structure.notebooks import _blanked

# Seconds of the processor. In linear time each row takes some milliseconds; before, 4 s or more.
MOST = 1.0
N = 100_000
KEY = "sk-0123456789abcdefghij"


def git_config(text):
    return any(git_changes._runs_program(*each) for each in settings_in(text))


def front_matter(value):
    split_front_matter(f"---\nkey: {value}\n---\n")


def agent_file(budget):
    parse_type("x", f"---\ndescription: d\nbudget: {budget}\n---\n".encode())


def notebook_prompt(recorded):
    fixed = notebook_prompts._fixed_parts("x{{a}}" * 10 + "!")
    return NotebookPrompts((fixed,), "").uses(recorded)


def header(line):
    return framing._HEADER.fullmatch(line) or framing._LENGTH.fullmatch(line)


def refusal(line):
    return list(confinement._paths_in(f"{line} permission denied"))


CHAIN = {"a": {str(at): {"$ref": f"#/a/{at + 1}"} for at in range(10_000)}}


def rename_in_one_line(text):
    source = SourceText(text)
    places = (Range(Position(0, at), Position(0, at + 1)) for at in range(0, len(text), 2))
    edits.apply_edits(source, [TextEdit(place, "new") for place in places])


def many_symbols():
    place = Range(Position(0, 0), Position(0, 1))
    inner = [Symbol(f"f{at}", "function", Path("a.py"), place, place) for at in range(N // 5)]
    classes = (Symbol("C", "class", Path("a.py"), place, place, (each,)) for each in inner)
    return [*classes, *inner]


def arriving(text):
    ArrivingCall(lambda *_, **__: None).add(CallChunk("apply_patch", text))


def replaced_everywhere(text):
    replace_text(decode_text(text.encode()), ReplaceText("a.txt", ",", ";", everywhere=True))


def of_one_property(schema, **more):
    return {"type": "object", "properties": {"x": schema}, **more}


BLOCK = of_one_property({"$ref": "#/$defs/Block"})
BLOCK["$defs"] = {"Block": {"anyOf": [{"$ref": "#/$defs/Block"}] * 40}}
ALIKE = {f"a{at}": {"x": {"type": "string", "maxLength": at}} for at in range(1_000)}
REFERENCES = [{"$ref": f"#/$defs/{name}/x"} for name in ALIKE]
MERGED = [{"properties": {f"p{at}": {"type": "string"}}} for at in range(8_000)]


def lost_names(symbols):
    return editing._names_in(symbols) - editing._names_in(symbols[1:])


ROWS = {
    "references of a server's schema": (endless_reference, CHAIN),
    "places of a text in one line": (replaced_everywhere, "x," * N),
    "symbols of one line": (
        lambda text: parse_symbols(Path("a.py"), text, "a.py"),
        "é=1;" * (N // 10),
    ),
    "references to one definition": (resolve_references, BLOCK),
    "definitions of one name": (
        sanitize_parameters,
        {"type": "object", "properties": dict(zip(ALIKE, REFERENCES, strict=True)), "$defs": ALIKE},
    ),
    "members of an allOf": (sanitize_parameters, of_one_property({"allOf": MERGED})),
    "values of an enum": (
        sanitize_parameters,
        of_one_property({"enum": [f"v{at}" for at in range(10_000)]}),
    ),
    "files of a patch that arrives": (arriving, "*** Add File: " * N),
    "paths of a call that arrives": (arriving, '"path": "' * N),
    "git configuration: empty lines": (git_config, "\n" * 1_000_000),
    "git configuration: open sections": (git_config, "[\n" * N),
    "git configuration: blanks": (git_config, f"[{' ' * N}x"),
    "git configuration: a word": (git_config, "a-" * N),
    "git configuration: ends of sections": (git_config, "] " * N),
    "git configuration: folders": (git_config, f"[a]worktree ={' ' * N}" * 2),
    "git configuration: names of files": (lambda text: list(settings_in(text)), f"[{'a' * N}" * 2),
    "a rename in one long line": (rename_in_one_line, "x;" * (N // 2)),
    "names that an edit could lose": (lost_names, many_symbols()),
    "a server's header": (header, b"A:" + b" " * 60_000 + b"\rx"),
    "a server's length": (header, b"content-length:" + b" " * 60_000 + b"x"),
    "a notebook's line of blanks": (_blanked, f"{' ' * N}x"),
    "a notebook's empty lines": (_blanked, "\n" * N + "x"),
    "a notebook's strings without an end": (_blanked, "'" * N),
    "a notebook's words in a line": (_blanked, "a, " * N),
    "code behind a symbol": (edits._BEHIND.match, f"{' ' * N}x"),
    "comments behind a symbol": (edits._BEHIND.match, "/*" * N),
    "open classes of a pattern": (refuse_unsearchable, "[" * 49_999),
    "open classes for Python": (refuse_ambiguous, "[:" * 24_999),
    "a refusal of one word": (refusal, "a" * N),
    "a command of empty lines": (scripted_patch._AS_PROGRAM.search, "\n" * N),
    "a cell of blanks": (cells._LINE.fullmatch, f"{' ' * N}x"),
    "braces in a prompt": (lambda text: interpolate(text, {}), "{{" * N),
    "braces in a map's prompt": (Template, "{{" * N),
    "braces in a notebook's prompt": (notebook_prompts._fixed_parts, "{{" * N),
    "expressions in a notebook's prompt": (notebook_prompt, "x" * N),
    "blanks in an answer's fence": (json_in, f"```{chr(10) * N}"),
    "fences of an answer": (json_in, "```a" * N),
    "open fences of an answer": (json_in, "```\n" * N),
    "blanks in front matter": (front_matter, f"a{' ' * N}b"),
    "backslashes that a command prints": (lambda text: redact_text((KEY,), text), "\\" * N),
    "beginnings of tokens in an error": (lambda text: str(FatalError(text)), "eyJ-" * (N // 4)),
    "line breaks of JSON in an error": (lambda text: str(FatalError(text)), r"\neyJ-" * (N // 5)),
    "escapes of JSON in a recording": (Hider([("/tmp", "tmp")]), r"\u0000eyJ-\\n/tmp" * (N // 15)),
    "a word as an agent's budget": (agent_file, "a" * N),
    "blanks in an agent's budget": (agent_file, f"tokens{' ' * N}"),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_hostile_text_holds_nobody_up(name):
    work, text = ROWS[name]
    began = time.process_time()
    with suppress(ValueError, AgentMagicsError):
        work(text)
    assert time.process_time() - began < MOST


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        ("[core]\n\tfsmonitor = ./x", True),
        ("[core] fsmonitor=./x", True),
        ("\ufeff[include]\npath = x", True),
        ('[a "b]"] [include] path = x', True),
        ("[core]\nfsmonitor", True),
        ("[core]\n\tpager = a\\\nb", True),
        ("[core]\n\tx = a\\\npager = b", False),
        ("[pager]\nlog = ./x", True),
        ('[merge "x"]\ndriver = ./x', True),
        ('[difftool "x"]\ncmd = ./x', True),
        ('[submodule "a"]\nupdate = "!./x"', True),
        ('[submodule "a"]\nupdate = rebase', False),
        ("[core]\n\tbare = false\n[user]\n\tname = editor", False),
        ('[branch "x"]\n\tmerge = process', False),
    ],
)
def test_what_makes_git_run_programs(text, runs):
    assert bool(git_config(text)) is runs


@pytest.mark.parametrize(
    ("cell", "recorded", "fits"),
    [
        *(("Go.", "Go.", True), ("Go.", "Go. ", True), ("Go.", "Go", False), ("", "", True)),
        *(("a {{x}} b", "a 1 b", True), ("a {{x}} b", "a  b", True), ("a{{x}}a", "a", False)),
        *(("{{x}}", "", True), ("{{x}}", "any\nthing", True), ("{{x}}{{y}}", "z", True)),
        *(("a{{x}}b{{y}}c", "a b c", True), ("a{{x}}b{{y}}c", "a c b", False)),
        *(("a{{x}}bc{{y}}c", "a bc", False), ("{{x}} {{ '{' }}.", "1 2.", True)),
    ],
)
def test_a_prompt_with_expressions_is_known_in_a_recording(cell, recorded, fits):
    assert NotebookPrompts((notebook_prompts._fixed_parts(cell),), "!").uses(recorded) is fits
