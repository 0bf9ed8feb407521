"""The page on the file tools says what they take."""

import inspect
import re
from pathlib import Path

import pytest

from agent_magics import tools

PAGE = Path(__file__).parents[4] / "docs" / "files.md"


@pytest.mark.parametrize("name", ["read_file", "list_dir", "glob", "grep_files", "view_image"])
def test_the_page_has_every_parameter_with_its_default(name):
    section = PAGE.read_text(encoding="utf-8").split(f"\n## `{name}`\n")[1].split("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \| (?:`(.*?)`)? ?\|", section, re.MULTILINE)
    parameters = inspect.signature(getattr(tools, name)).parameters.values()
    taken = [
        (each.name, "" if each.default is each.empty else repr(each.default).replace("'", '"'))
        for each in parameters
        if each.kind is not each.KEYWORD_ONLY
    ]
    assert told == taken
