"""The tree of the package: a subject a folder, found from its name."""

import re
import tomllib
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import agent_magics

PACKAGE = Path(agent_magics.__file__).parent
TESTS = Path(__file__).parents[1]
PAGE = (PACKAGE.parent / "ARCHITECTURE.md").read_text("utf-8")
BUILT = {"build/servers", "build/mcp", "build/kernels"}  # by make
MODULES = [file for file in PACKAGE.rglob("*.py") if not file.name.startswith("_")]


def test_a_folder_has_at_most_twelve_modules():
    tests = [file for file in TESTS.rglob("*.py") if not file.name.startswith("_")]
    sizes = Counter(module.parent for module in [*MODULES, *tests])
    assert not {str(folder): size for folder, size in sizes.items() if size > 12}


def test_no_module_repeats_its_folder():
    for module in MODULES:
        folder = module.parent.name
        assert not re.match(rf"{folder}_|{folder.removesuffix('s')}(_|$)", module.stem), module


def test_no_two_classes_have_one_name():
    names = Counter(
        name.lstrip("_")
        for file in PACKAGE.rglob("*.py")
        for name in re.findall(r"^ *class (\w+)", file.read_text("utf-8"), re.MULTILINE)
    )
    assert len(names) > 500
    assert not [name for name, count in names.items() if count > 1]


def test_each_folder_says_which_module_to_read_first():
    for folder in {module.parent for module in MODULES} - {PACKAGE}:
        first = (folder / "__init__.py").read_text("utf-8").split('"""')[1]
        named = {name.rstrip("/") for name in re.findall(r"``([\w/]+)``", first)}
        places = (folder / name for name in named)
        assert any(place.is_dir() or place.with_suffix(".py").is_file() for place in places), folder


def test_the_index_leads_to_modules():
    places = re.findall(r"^\| .+ \| `([\w/]+/)` \| `(\w+\.py)` \|$", PAGE, re.MULTILINE)
    assert len(places) >= 20
    assert not [place for place in places if not (PACKAGE / "".join(place)).is_file()]


def test_the_map_has_a_line_for_each_folder():
    names = set(re.findall(r"(?<![\w/])([a-z_]+)/(?=[\s,;]|$)", PAGE.split("```")[1], re.MULTILINE))
    folders = {module.parent.name for module in MODULES} - {PACKAGE.name}
    assert folders == names


def test_no_module_needs_itself_not_even_for_a_type():
    graph = grimp.build_graph("agent_magics", cache_dir=None)
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert len(needs) > 600
    TopologicalSorter(needs).prepare()  # a `CycleError` names the circle


def test_folders_of_the_extension_import_downward_too():
    """Law: each has at most twelve modules, and imports those below it in the table only."""
    root = PACKAGE.parent / "labextension"
    table = (root / "README.md").read_text("utf-8")
    rows = re.findall(r"^\| `(src/\w*)/?` \|.*\| `(\w+\.ts)` \|$", table, re.MULTILINE)
    floors = [root / folder for folder, _ in rows]
    assert [first for folder, first in rows if not (root / folder / first).is_file()] == []
    modules = list((root / "src").rglob("*.ts"))
    sizes = Counter(module.parent for module in modules)
    assert sizes.keys() == set(floors) and max(sizes.values()) <= 12
    for module in modules:
        names = re.findall(r"from '(\..+)\.js';$", module.read_text("utf-8"), re.MULTILINE)
        needed = {(module.parent / name).resolve().parent for name in names}
        assert needed <= set(floors[floors.index(module.parent) :]), module


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_each_file_and_folder_that_a_page_of_contributors_names_is_there(page):
    root = PACKAGE.parent
    parts = ("agent_magics", "benchmarks", "docs", "labextension/src", "make", "tests")
    files = [str(root / "labextension")]  # whose other folders hold what npm installs
    files += [each.as_posix() for part in parts for each in (root / part).rglob("*")]
    text = (root / page).read_text("utf-8")
    named = set(re.findall(r"`([\w/-]+/[\w-]*(?:\.(?:py|ts|toml|md))?)`", text))
    ends = {f"/{name.rstrip('/')}" for name in named - BUILT}
    assert len(ends) > 5
    assert [end for end in ends if not any(file.endswith(end) for file in files)] == []


def test_each_dependency_has_its_reason():
    project = tomllib.loads((PACKAGE.parent / "pyproject.toml").read_text("utf-8"))["project"]
    reasons = PAGE.partition("## What we depend on")[2].partition("\n## ")[0]
    needed = {re.split("[><=]", each)[0] for each in project["dependencies"]}
    rows = " ".join(re.findall(r"^\| ([^|]+) \|", reasons, re.MULTILINE))
    assert needed <= set(re.findall(r"[\w-]+", rows))
    assert [name for name in project["optional-dependencies"] if f"`{name}`" not in reasons] == []
