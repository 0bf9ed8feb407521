"""Makes hostile files, and tries each reader of the kernel on all of them, in a fork of its own.

``python -m tests.support.files.hostile FOLDER`` prints a line for each reader, with a row for each
file: the file, the code, seconds of the processor, MB that the process grew by, and the message.
"""

import json
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent_magics.app import Agent  # the process has loaded what a kernel has
from agent_magics.kernel.commands.recordings.notebook_prompts import prompts_of_notebook
from agent_magics.protocol.errors import AgentMagicsError
from tests.support import forks

LIMIT = 30  # seconds until a reader that hangs is ended
SPARSE = 20 << 30


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        os.chdir(path.parent)  # a name in a socket's address is short
        server.bind(path.name)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(SPARSE)


def _unreadable(path: Path) -> None:
    path.write_text("a = 1", encoding="utf-8")
    path.chmod(0)


_PAIRS = [f"k{n}=1" for n in range(60_000)]
_SERVERS = {f"s{n}": {"command": "x"} for n in range(30_000)}
FILES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "loop": lambda path: path.symlink_to(path.name),
    "link": lambda path: path.symlink_to("/etc/passwd"),
    "socket": _socket,
    "folder": lambda path: path.mkdir(),
    "sparse": _sparse,
    "dots": lambda path: path.write_text("a" + ".a" * 200_000 + " = 1\n", encoding="utf-8"),
    "quoted dots": lambda path: path.write_text("'a'" + ' . "a"' * 200_000 + " = 1\n"),
    "header": lambda path: path.write_text(f"[{'.'.join('a' * 200_000)}]\n", encoding="utf-8"),
    "brackets": lambda path: path.write_bytes(b"[" * 500_000),
    "braces": lambda path: path.write_bytes(b'{"a":' * 150_000),
    "tables": lambda path: path.write_bytes(b"x = " + b"{a=" * 150_000),
    "arrays": lambda path: path.write_bytes(b"x = " + b"[" * 150_000 + b"]" * 150_000),
    "escapes": lambda path: path.write_bytes(b'"' + b'\\"' * 400_000),
    "quotes": lambda path: path.write_bytes(b'"""' + b'\\"' * 400_000),
    "word": lambda path: path.write_bytes(b"a" * 1_000_000),
    "digits": lambda path: path.write_bytes(b'{"a": ' + b"9" * 900_000 + b"}"),
    "number": lambda path: path.write_bytes(b"a = " + b"9" * 900_000),
    "spaces": lambda path: path.write_bytes(b"a" + b" " * 900_000 + b"b"),
    "keys": lambda path: path.write_text("".join(f"k{n} = 1\n" for n in range(60_000))),
    "few keys": lambda path: path.write_text("".join(f"k{n} = 1\n" for n in range(19_000))),
    "headers": lambda path: path.write_text("".join(f"[t{n}]\na.b=1\n" for n in range(9_000))),
    "rules": lambda path: path.write_text("[[rule]]\n" * 19_000, encoding="utf-8"),
    "one line": lambda path: path.write_text(f"x = {{{','.join(_PAIRS)}}}\n", encoding="utf-8"),
    "hexadecimal": lambda path: path.write_bytes(b"x = 0x" + b"f" * 900_000),
    "servers": lambda path: path.write_text(json.dumps({"mcpServers": _SERVERS})),
    "nul": lambda path: path.write_bytes(b"gitdir: /a\0b\n" * 100),
    "latin": lambda path: path.write_bytes(b"\xff\xfe = 1\n"),
    "surrogates": lambda path: path.write_bytes(b'{"a": "\\ud800"}'),
    "index": lambda path: path.write_bytes(b"DIRC\0\0\0\2\xff\xff\xff\xff" + b"\0" * 500_000),
    "empty": lambda path: path.touch(),
    "unreadable": _unreadable,
}

# What reads the file: where it stands in a workspace, and the code that makes it be read.
SESSION = "from agent_magics.approval.rules import RuleBook\nRuleBook(here).rules"
SERVERS = "from agent_magics.mcp.config.sources import read_mcp_config\nread_mcp_config(here, {})"
SETTINGS = (
    "from agent_magics.settings.files import ProjectSettings, tightening\n"
    "settings = ProjectSettings(here)\n"
    "found = settings.read()\nsettings.digest(found), tightening(found, {})"
)
GIT = (
    "from agent_magics.file_history.git_objects import index_stamp, read_git\n"
    "index_stamp(str(here)), read_git(str(here))"
)
PROTECTED = (
    "from agent_magics.exec.protected.git_places import git_parts\n"
    "from agent_magics.exec.protected.snapshot import take\n"
    "from agent_magics.exec.protected.git_changes import what_git_would_run\n"
    "git_parts(str(here / '.git')), take(str(here / '.git'), {}), take(str(here / 'a.ipynb'), {})\n"
    "what_git_would_run(str(here / '.git'), ())"
)
NAMED = (
    "from agent_magics.files.git.repositories import is_named_for_git\n"
    "(here / '.git/config').write_text('[include]\\npath = ../included\\n')\n"
    "assert is_named_for_git(str(here / 'included'))"
)
REBASE = (
    "from agent_magics.exec.protected.git_changes import what_a_rebase_runs\n"
    "what_a_rebase_runs(str(here / '.git'))"
)
READERS: dict[str, tuple[str, ...]] = {
    ".git": (GIT, PROTECTED),
    ".git/index": (GIT,),
    ".git/config": (GIT, PROTECTED),
    ".git/commondir": (GIT, PROTECTED),
    ".git/info/attributes": (GIT, PROTECTED),
    ".git/rebase-merge/git-rebase-todo": (REBASE,),
    "included": (NAMED,),
    ".gitattributes": (GIT,),
    ".gitignore": ("from agent_magics.tools import glob, list_dir\nlist_dir('.'), glob('*')",),
    ".agent_magics/rules.toml": (SESSION,),
    ".agent_magics/config.toml": (SERVERS, SETTINGS),
    "pyproject.toml": (SETTINGS,),
    ".agent_magics/tools/t.py": (
        "from agent_magics.tools.catalog.discovery import ProjectTools\n"
        "tools = ProjectTools(here)\ntools.digest(tools.read())",
    ),
    ".mcp.json": (SERVERS,),
    "a.agent.jsonl": (
        "from agent_magics.models.recordings.format import read_recording\n"
        "read_recording(here / 'a.agent.jsonl')",
    ),
    "a.ipynb": (
        PROTECTED,
        "prompts_of_notebook(here / 'a.ipynb', str)",
    ),
    "trusted": (
        "from agent_magics.config_files.trust import TrustedDigest\n"
        "trusted = TrustedDigest(here, here)\n"
        "(here / 'trusted').rename(trusted._file)\ntrusted.read()",
    ),
}


def _place(root: Path, reader: str, make: Callable[[Path], object]) -> None:
    """Make a workspace with a git repository, in which the read file is a hostile one."""
    git = root / ".git"
    for folder in ("objects", "info", "hooks"):
        (git / folder).mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (git / "index").write_bytes(b"DIRC\0\0\0\2\0\0\0\0" + b"\0" * 20)
    path = root / reader
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        path.rename(root / "moved")
    path.unlink(missing_ok=True)
    make(path)


def _used() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _try(code: str, root: Path) -> tuple[float, float, str]:
    before, start, message = _used(), time.process_time(), ""
    signal.alarm(LIMIT)
    try:
        exec(code, {"here": root, "prompts_of_notebook": prompts_of_notebook, "Agent": Agent})
    except AgentMagicsError as error:
        message = str(error)
    except Exception as error:
        message = f"BUG {error!r}"
    finally:
        signal.alarm(0)
    return time.process_time() - start, _used() - before, message


def _try_all(reader: str, folder: Path) -> list[tuple[str, str, float, float, str]]:
    """Try one reader on every file, each in a workspace of its own."""
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("it hangs")))
    rows = []
    for number, (kind, make) in enumerate(FILES.items()):
        root = folder / str(number)
        root.mkdir(parents=True)
        _place(root, reader, make)
        os.chdir(root)
        rows += [(kind, code.splitlines()[0], *_try(code, root)) for code in READERS[reader]]
    return rows


def main(folder: Path) -> None:
    """Try all readers, each in a fork of its own; print what came of each."""
    for number, reader in enumerate(READERS):
        try:
            rows = forks.call(partial(_try_all, reader, folder / str(number)))
        except AssertionError as error:
            rows = str(error)
        sys.stdout.write(f"{(reader, rows)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
