"""Tools found in folders and packages: nothing of a project runs before it is trusted."""

import errno
import importlib
import os
import sys
from pathlib import Path

import pytest

from agent_magics import Agent, FatalError, ScriptedModel
from agent_magics.config_files.trust import digest_of
from agent_magics.tools.catalog import discovery
from agent_magics.tools.catalog.discovery import Discovery, ProjectTools, installed_tools
from tests.support.turns import scripted

FILE = """
from agent_magics import tool

@tool
def {name}() -> str:
    "Found."
    return "{name}"

def helper():
    return 1
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A workspace whose tools mark that they ran, and a config folder of its own."""
    monkeypatch.setattr(discovery, "user_tools_folder", lambda: tmp_path / "config" / "tools")
    folder = tmp_path / "work" / ".agent_magics" / "tools"
    folder.mkdir(parents=True)
    return tmp_path / "work"


def write(project: Path, name: str, text: str) -> Path:
    path = project / ".agent_magics" / "tools" / name
    path.write_text(text)
    return path


def names(found):
    return [fn.tool_options.name for fn in found.tools]


def trust(project: Path) -> None:
    tools = ProjectTools(project)
    tools.trust(tools.digest(tools.read()))


# -- trust -----------------------------------------------------------------------------------------


def test_nothing_runs_before_it_is_trusted(project):
    mark = project / "ran"
    write(project, "a.py", f"open({str(mark)!r}, 'w').close()\n" + FILE.format(name="mine"))
    found = Discovery(project).find()
    assert found.tools == ()
    assert "you have not trusted these files" in found.warnings[0]
    assert not mark.exists()
    trust(project)
    assert names(Discovery(project).find()) == ["mine"]
    assert mark.exists()


@pytest.mark.parametrize("change", ["edit", "add", "rename", "remove"])
def test_any_change_takes_the_trust_away(project, change):
    path = write(project, "a.py", FILE.format(name="mine"))
    other = write(project, "b.py", FILE.format(name="more"))
    trust(project)
    finder = Discovery(project)
    assert names(finder.find()) == ["mine", "more"]
    match change:
        case "edit":
            path.write_text(path.read_text() + "#")
        case "add":
            write(project, "c.py", "")
        case "rename":
            path.rename(path.with_name("z.py"))
        case "remove":
            other.unlink()
    assert finder.find().tools == ()
    trust(project)
    finder.forget()
    assert finder.find().tools


def test_what_was_seen_is_what_is_trusted(project):
    path = write(project, "a.py", FILE.format(name="mine"))
    tools = ProjectTools(project)
    seen = tools.digest(tools.read())
    path.write_text(FILE.format(name="swapped"))
    with pytest.raises(FatalError, match="look at them again"):
        tools.trust(seen)
    assert not tools.is_trusted(tools.read())


def test_no_two_lists_of_files_have_one_digest():
    assert digest_of([("a", b"bc")]) != digest_of([("ab", b"c")])
    assert digest_of([("a", b""), ("b", b"")]) != digest_of([("a", b"b")])
    assert digest_of([("a", b"1"), ("b", b"2")]) == digest_of([("b", b"2"), ("a", b"1")])


def test_trust_of_one_project_is_not_that_of_another(project, tmp_path):
    write(project, "a.py", FILE.format(name="mine"))
    trust(project)
    copy = tmp_path / "copy" / ".agent_magics" / "tools"
    copy.mkdir(parents=True)
    (copy / "a.py").write_text(FILE.format(name="mine"))
    assert Discovery(tmp_path / "copy").find().tools == ()


# -- files -----------------------------------------------------------------------------------------


def test_only_tools_that_a_file_defines_itself_are_taken(project):
    text = "from agent_magics.tools import read_file\n" + FILE.format(name="mine")
    write(project, "a.py", text + "again = mine\n")
    write(project, "notes.txt", "not Python")
    trust(project)
    found = Discovery(project).find()
    assert names(found) == ["mine"]
    assert found.tools[0]() == "mine"
    assert sys.modules[found.tools[0].__module__].helper() == 1


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def f(:\n", "SyntaxError"),
        ("x = 1\nraise ValueError('no')\n", "line 2 raised ValueError: no"),
        ("raise SystemExit(3)", "SystemExit"),
        ("import nowhere_at_all", "ModuleNotFoundError"),
        (
            "from agent_magics import tool\n@tool(name='a b')\ndef f(): ...",
            "cannot be a tool's name",
        ),
    ],
)
def test_a_broken_file_is_told_and_the_others_stay(project, text, words):
    path = write(project, "a.py", text)
    write(project, "b.py", FILE.format(name="fine"))
    trust(project)
    found = Discovery(project).find()
    assert names(found) == ["fine"]
    assert str(path) in found.warnings[0]
    assert words in found.warnings[0]


def test_what_has_not_changed_is_not_run_again(project):
    write(project, "a.py", FILE.format(name="mine"))
    trust(project)
    finder = Discovery(project)
    assert finder.find().tools[0] is finder.find().tools[0]


def test_the_persons_own_folder_needs_no_trust_and_is_read_again(project):
    folder = discovery.user_tools_folder()
    folder.mkdir(parents=True)
    path = folder / "a.py"
    path.write_text(FILE.format(name="first"))
    finder = Discovery(project)
    assert names(finder.find()) == ["first"]
    path.write_text(FILE.format(name="second_one"))
    assert names(finder.find()) == ["second_one"]
    path.unlink()
    assert names(finder.find()) == []


def test_a_link_to_nothing_takes_no_other_tool_away(project):
    """Emacs marks a file that is being edited by one, whose name is hidden."""
    write(project, "found.py", FILE.format(name="found"))
    trust(project)
    os.symlink("me@here.1", project / ".agent_magics/tools/.#found.py")
    assert names(Discovery(project).find()) == ["found"]
    os.symlink("nowhere", project / ".agent_magics/tools/old.py")
    trust(project)
    found = Discovery(project).find()
    assert names(found) == ["found"]
    [warning] = found.warnings
    assert "old.py are left out" in warning


def test_a_folder_that_may_not_be_looked_into_is_told(project, monkeypatch):
    user_folder = discovery.user_tools_folder()
    entries = Path.iterdir

    def refuse(folder):
        if folder == user_folder:
            raise PermissionError(errno.EACCES, "Permission denied")
        return entries(folder)

    monkeypatch.setattr(Path, "iterdir", refuse)
    [warning] = Discovery(project).find().warnings
    assert warning == f"The tools of {user_folder} are left out: Permission denied."


def test_a_link_in_a_project_is_not_followed_and_told(project, tmp_path):
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text(FILE.format(name="linked"))
    (project / ".agent_magics" / "tools" / "a.py").symlink_to(elsewhere)
    trust(project)
    finder = Discovery(project)
    found = finder.find()
    assert found.tools == ()
    assert "a.py are left out: it is a symbolic link." in found.warnings[0]


# -- installed packages ----------------------------------------------------------------------------


@pytest.fixture
def package(tmp_path_factory, monkeypatch):
    """An installed package with entry points of every kind."""
    site = tmp_path_factory.mktemp("site")  # not in the working folder
    (site / "ticketing").mkdir(parents=True)
    (site / "ticketing" / "__init__.py").write_text(
        "from agent_magics import tool\n"
        "def plain(x: int) -> int:\n    'Plain.'\n    return x\n"
        "@tool\ndef one() -> str:\n    'One.'\n    return '1'\n"
        "@tool\ndef two() -> str:\n    'Two.'\n    return '2'\n"
        "several = [one, two]\n"
    )
    info = site / "ticketing-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ticketing\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(site))

    def offer(**points):
        lines = [f"{name} = {value}" for name, value in points.items()]
        (info / "entry_points.txt").write_text("[agent_magics.tools]\n" + "\n".join(lines) + "\n")
        importlib.invalidate_caches()
        installed_tools.cache_clear()
        return installed_tools()

    yield offer
    installed_tools.cache_clear()
    for name in ("ticketing", "ticketing.more"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("ticketing:one", ["one"]),
        ("ticketing:plain", ["plain"]),
        ("ticketing:several", ["one", "two"]),
        ("ticketing", ["one", "two"]),
    ],
)
def test_entry_points_name_functions_lists_and_modules(package, value, wanted):
    assert names(package(a=value)) == wanted


def test_a_package_offers_the_tools_of_its_modules_that_it_imports_and_no_others(package):
    folder = Path(sys.path[0]) / "ticketing"
    (folder / "more.py").write_text(FILE.format(name="three") + FILE.format(name="four"))
    with (folder / "__init__.py").open("a") as file:
        file.write("from agent_magics.tools import read_file\nfrom ticketing.more import three\n")
    assert names(package(a="ticketing")) == ["one", "two", "three"]


def test_a_broken_entry_point_is_told_with_its_package(package):
    found = package(good="ticketing:one", bad="ticketing:nothing")
    assert names(found) == ["one"]
    assert "The tools 'bad' of package ticketing are left out: AttributeError" in found.warnings[0]


@pytest.mark.parametrize(
    "code", ["import sys; sys.exit(3)", "raise BaseException", "def f(): f()\nf()"]
)
def test_whatever_a_package_does_when_it_is_imported_the_others_stay(package, tmp_path, code):
    (Path(sys.path[0]) / "ends_all.py").write_text(code)
    found = package(good="ticketing:one", bad="ends_all:one")
    assert names(found) == ["one"]
    assert found.warnings[0].startswith("The tools 'bad' of package ticketing are left out: ")


# -- in an agent -----------------------------------------------------------------------------------


def test_an_agent_offers_what_is_found_beside_its_default_tools(project, monkeypatch):
    write(project, "a.py", FILE.format(name="mine"))
    trust(project)
    agent = Agent(ScriptedModel(["Done.", "Done."]), cwd=project, approval="never")
    result = agent.run_sync("Go.")
    assert result.status == "completed"
    offered = [each.spec.name for each in agent._models.given.requests[0].tools]
    assert offered[-1] == "mine"
    assert "read_file" in offered


@pytest.mark.parametrize(
    "wanted", ["read_file,glob", " read_file , glob ,", ["read_file", "glob"]], ids=str
)
def test_names_of_tools_are_a_list_or_a_text_with_commas(wanted):
    agent = Agent(ScriptedModel(["Done."]), wanted)
    agent.run_sync("Go.")
    offered = [each.spec.name for each in agent._models.given.requests[0].tools]
    assert offered == ["read_file", "glob"]


def test_an_agent_with_a_list_of_its_own_takes_only_what_it_names(project):
    write(project, "a.py", FILE.format(name="mine") + FILE.format(name="other"))
    trust(project)
    assert scripted(tools=["read_file"], cwd=project).call_sync("mine").success is False
    agent = scripted(tools=["read_file", "mine"], cwd=project)
    assert agent.call_sync("mine").text == "mine"
    assert "no tool named 'other'" in agent.call_sync("other").text


def test_what_is_left_out_is_told_once(project):
    write(project, "a.py", FILE.format(name="mine"))
    agent = Agent(ScriptedModel(["Done."] * 2), cwd=project, approval="never")
    told = [
        [e.message for e in agent.run_sync("Go.").events if type(e).__name__ == "Warned"]
        for _ in range(2)
    ]
    assert "not trusted" in " ".join(told[0])
    assert told[1] == []


def test_a_found_tool_of_a_taken_name_is_an_error_that_names_both(project):
    path = write(project, "a.py", FILE.format(name="read_file"))
    trust(project)
    agent = Agent(ScriptedModel(["Done."]), cwd=project, approval="never")
    result = agent.run_sync("Go.")
    assert result.status == "failed"
    assert "a built-in tool" in result.error
    assert f"{os.path.realpath(path)}:" in result.error


def test_a_found_tool_can_be_taken_away(project):
    write(project, "a.py", FILE.format(name="mine") + FILE.format(name="more"))
    trust(project)
    with Agent(ScriptedModel(["Done."]), cwd=project) as agent:
        agent.unregister("mine")
        agent.run_sync("Go.")
        (request,) = agent._models.given.requests
        offered = {each.spec.name for each in request.tools}
        assert "more" in offered and "mine" not in offered
        assert not agent.call_sync("mine", {}).success
        agent.session.registrations.show("mine")
        assert agent.call_sync("mine", {}).text == "mine"
    other = scripted(tools=["read_file"], cwd=project)
    with pytest.raises(FatalError, match="has no tool named 'mine'"):
        other.unregister("mine")
