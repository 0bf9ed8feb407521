"""Each guide shows pictures; what pages show as code is code, and what they name is there."""

import ast
import builtins
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from importlib import import_module
from itertools import chain, product
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager

import agent_magics
from agent_magics import AgentBudget, tools
from agent_magics.approval.rules_file import _KEYS as RULE_KEYS
from agent_magics.approval.rules_file import DECISIONS as RULE_DECISIONS
from agent_magics.approval.rules_file import PERMISSIONS, parse_rules
from agent_magics.config_files.places import CONFIG, MCP_JSON
from agent_magics.delegation.files import _KEYS as AGENT_KEYS
from agent_magics.delegation.files import parse_type
from agent_magics.dispatch.tool import _TO_GIVE
from agent_magics.kernel.cell.request.options import parse_options
from agent_magics.kernel.commands.control import WORDS
from agent_magics.kernel.commands.words import _read
from agent_magics.kernel.magics import AgentMagics
from agent_magics.mcp.config.parsing import servers_of
from agent_magics.mcp.config.table import KEYS
from agent_magics.models.providers.endpoints import HOSTS, PROVIDERS
from agent_magics.models.providers.families import FEATURES
from agent_magics.models.recordings.format import read_recording
from agent_magics.project.front_matter import split_front_matter
from agent_magics.protocol.config import LoopLimits
from agent_magics.protocol.ops import DECISIONS
from agent_magics.rows.planning import MapOptions
from agent_magics.settings.table import SETTINGS

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
WITHOUT = {"scale"}  # it is about clusters, of which a page shows nothing


def test_each_guide_shows_pictures_that_are_there() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    guides = re.search(r":caption: Guides\n\n(.*?)\n:::", index, re.DOTALL)
    assert guides
    shown = {}
    for page in DOCS.glob("*.md"):
        shown[page.stem] = re.findall(r"!\[[^\]]+\]\(images/(\S+?)\)", page.read_text("utf-8"))
    assert [name for name in guides[1].split() if not shown[name]] == sorted(WITHOUT)
    used = {image for images in shown.values() for image in images}
    assert used == {path.name for path in (DOCS / "images").iterdir()}


PAGES = [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
OF_CONTRIBUTORS = [
    ROOT / name
    for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "tests/README.md", "benchmarks/README.md")
]
MAGIC = re.compile(r"^%agent (\S+) ?(.*)$|^%%agent(.*)\n|AgentMagics\.(\w+)", re.MULTILINE)


@pytest.mark.parametrize(
    "page", [*PAGES, OF_CONTRIBUTORS[2]], ids=lambda page: page.parent.name + page.stem
)
def test_each_cell_of_the_pages_is_one_that_a_notebook_accepts(page: Path) -> None:
    for cell in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M):
        code = TransformerManager().transform_cell(cell)
        tree = compile(code, cell, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST)
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith(
                ("agent_magics", "tests")
            ):
                module = import_module(str(node.module))
                assert [name.name for name in node.names if not hasattr(module, name.name)] == []


# What of these examples is the reader's own: data, functions, an agent; and what cells have.
OF_READERS = {
    "agent",
    "df",
    "sales",
    "double",
    "find_orders",
    "make_ticket",
    "asyncio",
    "read_file",
}
OF_CELLS = {*dir(builtins), "get_ipython", "mcp"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_name_in_the_cells_of_a_page_comes_from_one_of_them(page: Path) -> None:
    text = page.read_text("utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    tree = ast.parse(TransformerManager().transform_cell(code))
    nodes = [*ast.walk(tree)]
    made = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    made |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    made |= {(n.asname or n.name).split(".")[0] for n in nodes if isinstance(n, ast.alias)}
    names = [node for node in nodes if isinstance(node, ast.Name)]
    made |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    assert {node.id for node in names} - made - OF_READERS - OF_CELLS == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_line_of_a_magic_on_the_pages_is_taken_as_it_stands(page: Path) -> None:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    cells = [block for kind, block in blocks if kind in ("", "python")]
    for word, rest, options, trait in (found for cell in cells for found in MAGIC.findall(cell)):
        if word:
            given = [each for each in shlex.split(rest) if each != "reviewer"]  # an agent's name
            forms = WORDS[word]._of("".join(given[:1]))
            assert any(_read(form, given) is not None for form in forms), (word, rest)
        elif trait:
            assert trait in SETTINGS
        else:
            parse_options(AgentMagics.agent.parser, options)


@pytest.mark.parametrize(
    "page", [*PAGES, *OF_CONTRIBUTORS], ids=lambda page: page.parent.name + page.stem
)
def test_each_link_of_the_pages_leads_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]+`", "", page.read_text("utf-8"), flags=re.DOTALL | re.M)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", prose):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not anchor or anchor in _anchors(there), target


@pytest.mark.parametrize(
    "page", [*PAGES, *OF_CONTRIBUTORS], ids=lambda page: page.parent.name + page.stem
)
def test_each_file_that_the_pages_name_is_there(page: Path) -> None:
    named = re.findall(
        r"`((?:agent_magics|benchmarks|docs|labextension|make|notebooks|tests)/[\w./*-]+)",
        page.read_text("utf-8"),
    )
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


PUBLIC = {
    "names": set(agent_magics.__all__)
    - {"__version__", "load_ipython_extension", "unload_ipython_extension"},
    "tools": set(tools.__all__),
    "words of %agent": {f"%agent {word}" for word in WORDS} - {"%agent welcome"},
    "answers": set(DECISIONS),
    "options of %%agent": {
        flag for each in AgentMagics.agent.parser._actions for flag in each.option_strings
    },
    "providers": set(PROVIDERS),
    "variables of keys": {name for _, each in HOSTS for name in each.key_names},
}


@pytest.mark.parametrize("kind", PUBLIC)
def test_what_is_public_stands_on_a_page(kind: str) -> None:
    text = "\n".join(page.read_text("utf-8") for page in PAGES)
    assert PUBLIC[kind]
    assert {
        name for name in PUBLIC[kind] if not re.search(rf"(?<![\w-]){re.escape(name)}\b", text)
    } == set()


@pytest.mark.parametrize("word", WORDS)
def test_what_may_follow_a_word_of_agent_stands_on_a_page(word: str) -> None:
    """Behind the word, or alone (as in "`%agent mcp login NAME`, `logout NAME`") where that is."""
    pages = [_spans(page) for page in PAGES]
    of_word = rf"%agent {word}\b"
    naming = [page for page in pages if any(re.match(of_word, each) for each in page)]
    spans = [*chain.from_iterable(naming)]
    for following in _followings(word):
        wanted = re.compile(rf"(?:{of_word}.*\s)?{following}(?![\w-])")
        assert any(map(wanted.match, spans)), wanted.pattern


def test_each_option_of_a_tool_and_each_limit_of_a_budget_stands_on_its_page() -> None:
    assert set(_TO_GIVE) - {"in_own_words"} - set(_spans(DOCS / "tools.md")) == set()
    limits = {each.name for each in fields(AgentBudget)}
    assert limits - set(_spans(DOCS / "delegation.md")) == set()


# What a person may write, and the page that explains all of it.
OPTIONS = {
    "mcp_configuration": KEYS.keys(),
    "approvals": RULE_KEYS | {*PERMISSIONS, *RULE_DECISIONS, "bypass"},
    "delegation": AGENT_KEYS,
    "map": MapOptions.__annotations__.keys() | {"output"},
    "models": FEATURES.keys() | {each for values in FEATURES.values() for each in values},
    "context": {each.name for each in fields(LoopLimits)},
}


@pytest.mark.parametrize("page", OPTIONS)
def test_each_option_stands_on_its_page(page: str) -> None:
    text = (DOCS / f"{page}.md").read_text("utf-8")
    assert [each for each in OPTIONS[page] if not re.search(rf"\b{each}\b", text)] == []


def test_each_limit_of_repetition_stands_with_its_default() -> None:
    text = (DOCS / "context.md").read_text("utf-8")
    written = {name: int(n) for n, name in re.findall(r"\| (\d+)[ \w]* \| `(\w+)` \|", text)}
    assert written == asdict(LoopLimits())


def _read_servers(name: str) -> Callable[[Path, str], object]:
    return lambda folder, text: servers_of(
        folder / name, text.encode(), folder, {"TRACKER_TOKEN": ""}
    )


def _read_recording(folder: Path, text: str) -> object:
    (folder / "x.agent.jsonl").write_text(text, encoding="utf-8")
    return read_recording(folder / "x.agent.jsonl")


# Readers of what the pages show of files, by the page and the kind of the block.
READERS: dict[tuple[str, str], Callable[[Path, str], object]] = {
    ("approvals", "toml"): lambda folder, text: parse_rules(text, folder, "your own"),
    ("mcp_configuration", "toml"): _read_servers(CONFIG),
    ("mcp_configuration", "json"): _read_servers(MCP_JSON),
    ("mcp", "json"): _read_servers(MCP_JSON),
    ("delegation", "markdown"): lambda _, text: parse_type("reviewer", text.encode()),
    ("project", "markdown"): lambda _, text: split_front_matter(text),
    ("recordings", ""): _read_recording,
}


@pytest.mark.parametrize(("page", "kind"), READERS)
def test_what_a_page_shows_of_a_file_is_read(page: str, kind: str, tmp_path: Path) -> None:
    text = (DOCS / f"{page}.md").read_text("utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    shown = [block for of, block in blocks if of == kind and not block.startswith("%")]
    assert shown
    for block in shown:
        READERS[page, kind](tmp_path, block.replace("PORT", "8080"))


def _spans(page: Path) -> list[str]:
    """Return what stands in backticks on a page, and its lines of `%agent`."""
    text = re.sub(r"^```.*$", "", page.read_text("utf-8"), flags=re.MULTILINE)
    found = re.findall(r"^%agent .+$|`[^`]+`", text, re.MULTILINE)
    return [" ".join(span.strip("`").split()) for span in found]


def _followings(word: str) -> Iterator[str]:
    """Yield patterns of the words and options that may follow a word of `%agent`."""
    for form in WORDS[word]._forms:
        words = [part for part in form.split() if part.strip("[]").islower()]
        fixed = [part.split("|") for part in words if not part.startswith("[")]
        yield from (r"\s(?:.*\s)?".join(chosen) for chosen in product(*fixed) if chosen)
        for part in words:
            yield from part.strip("[]").split("|") if part.startswith("[") else ()


def _anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}
