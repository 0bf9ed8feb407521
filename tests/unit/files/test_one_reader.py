"""Files are opened in few modules; all others ask `files.plain_files`, which nothing holds up."""

import ast
from pathlib import Path

import pytest

import agent_magics

PACKAGE = Path(agent_magics.__file__).parent

# What opens a file, or parses one, in its own way.
CALLS = {"open", "read_text", "read_bytes", "fdopen", "FileIO", "load"}
PARSERS = {"json", "tomllib", "pickle"}

# Modules that open files, by the reason why none of them is one that the kernel reads by itself.
REASONS = {
    "the readers themselves": "files/plain_files.py files/beneath.py",
    "what the model asked for, opened as a regular file and read in windows or bounded": (
        "files/text/windows.py files/search/pygrep.py tools/files/reading.py "
        "tools/files/viewing.py tools/files/table_views.py tools/files/notebook_view.py "
        "approval/commands/identity.py tools/structure/sources.py"
    ),
    "folders": "files/folders.py file_history/scan.py files/locks.py",
    "opened without links or waiting, and copied or put back": (
        "exec/protected/put_back.py file_history/states.py file_history/swaps.py patch/files.py"
    ),
    "only written": (
        "engine/channels/rollout.py file_history/git_objects.py "
        "kernel/commands/live_code.py kernel/lab/pasted_files.py models/recordings/writing.py "
        "project/memory.py rows/tables/folders.py"
    ),
    "temporary files of this process": (
        "dispatch/results/stored.py exec/spool.py exec/temporary_files.py tools/commands/run.py"
    ),
    "pipes, devices and /proc": (
        "exec/launcher/descriptors.py exec/launcher/notifications/notifier.py "
        "exec/launcher/notifications/question.py exec/launcher/notifications/socket_calls.py "
        "exec/launcher/probe.py exec/launcher/rules/namespaces.py exec/launcher/tree.py "
        "exec/launcher/zygote.py exec/spawn.py kernel/live/scratch_driver.py "
        "exec/servers.py symbols/servers/process.py tools/code/scratch_process.py"
    ),
    "only held, by O_PATH, which reads nothing": "exec/protected/tripwire.py",
    "files of this package": "models/providers/catalog.py render/widgets/page.py",
    "tables of the person's, opened as regular files by plain_files": "rows/tables/files.py",
    "folders alone, whose files read_plain reads": "project/texts.py",
    "no files": (
        "composition/agent.py engine/session.py kernel/cell/streams.py mcp/client/server.py "
        "rows/mapping.py symbols/servers/lifecycle.py "
        "symbols/servers/session.py"
    ),
    "files of batches, which this process has made in a folder of the person's own": (
        "rows/batches/pack.py rows/batches/results.py models/transport.py"
    ),
    "journals and records of this person's own, see the law of journals": (
        "records/index.py records/reading.py rows/store.py"
    ),
}
ALLOWED = {module for modules in REASONS.values() for module in modules.split()}


def _opens(tree: ast.AST) -> list[int]:
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and _is_opening(node.func)
    ]


def _is_opening(called: ast.expr) -> bool:
    if isinstance(called, ast.Name):
        return called.id == "open"
    if not isinstance(called, ast.Attribute) or called.attr not in CALLS:
        return False
    of = called.value.id if isinstance(called.value, ast.Name) else ""
    return called.attr != "load" or of in PARSERS


@pytest.mark.soak
def test_only_these_modules_open_files():
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if _opens(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found - ALLOWED == set(), "read_plain of files.plain_files reads what may be hostile"
    assert ALLOWED - found == set(), "these open nothing any more"
