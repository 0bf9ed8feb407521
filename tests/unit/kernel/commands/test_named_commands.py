"""What messages, guides and notebooks call a command is one."""

import re
from pathlib import Path

from agent_magics.kernel.commands.control import WORDS
from agent_magics.kernel.commands.mcp.control import SERVERS

ROOT = Path(__file__).parents[4]
NAMED = re.compile(r"(?<!%)%agent (mcp )?([a-z]+)")
PROSE = {"commands"}


def test_a_command_that_is_named_is_there() -> None:
    files = [*ROOT.glob("agent_magics/**/*.py"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    files += ROOT.glob("notebooks/*.ipynb")
    named = {
        (mcp, word, path.name)
        for path in files
        for mcp, word in NAMED.findall(path.read_text("utf-8"))
    }
    assert len(named) > 200
    there = {"": {*WORDS, *PROSE}, "mcp ": {*SERVERS.following}}
    assert sorted(each for each in named if each[1] not in there[each[0]]) == []
