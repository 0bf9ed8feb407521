"""Skills, prompts and the project in a real kernel: lists, texts as written, trust, completion."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from agent_magics import Agent, Call, ScriptedModel, tool
from tests.support.kernels.cells import AGENTS, scripted
from tests.support.kernels.driver import LIMIT, Kernel
from tests.support.skills import TOOL, write_skill


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel's workspace."""
    return tmp_path_factory.mktemp("mine")


@pytest.fixture(scope="module")
def kernel(place: Path) -> Iterator[Kernel]:
    with Kernel(cwd=str(place), env={"HOME": str(place / "home")}) as kernel:
        done = repr("Done.")
        assert kernel.run("%load_ext agent_magics\n" + scripted(*[done] * 4)).status == "ok"
        yield kernel


def shown(kernel: Kernel, line: str) -> str:
    outcome = kernel.run(line)
    assert outcome.status == "ok", outcome.text
    return "".join(str(item["text"]) for item in outcome.items)


def test_skills_are_listed_shown_and_trusted(kernel: Kernel, place: Path) -> None:
    assert shown(kernel, "%agent skills").startswith("There are no skills:")
    write_skill(place / ".agent_magics/skills", "sales", "# Hi\u202e", test_dot_ipynb="{}")
    (place / ".agent_magics/skills/broken").mkdir()
    (place / ".agent_magics/skills/broken/SKILL.md").write_text("No front matter.")
    listing = shown(kernel, "%agent skills")
    assert "| `sales` | `What sales is for.` | not trusted |" in listing
    assert "`%agent skills test sales` runs its test." in listing
    assert "broken is left out: SKILL.md, name: expected" in listing
    assert "# Hi" in shown(kernel, "%agent skills show sales")
    digest = re.search(r"%agent skills trust ([0-9a-f]{12})", shown(kernel, "%agent skills trust"))
    assert digest is not None
    assert kernel.run("%agent skills trust 000000000000").error == "UsageError"
    trusted = shown(kernel, f"%agent skills trust {digest[1]}")
    assert trusted == "Used from the next cell on: `sales`."
    assert shown(kernel, "%agent skills trust") == "No skill waits for your trust."
    assert "| yes |" in shown(kernel, "%agent skills")
    assert kernel.run("%agent skills dance").error == "UsageError"
    assert kernel.run("%agent skills show nothing").error == "UsageError"


def test_all_of_one_name_are_shown(kernel: Kernel, place: Path) -> None:
    own = kernel.value("str(__import__('platformdirs').user_config_path('agent-magics'))")
    folders = (place / ".agent_magics", Path(own))
    for folder in folders:
        write_skill(folder / "skills", "twice", f"Of {folder.name}.")
        (folder / "prompts").mkdir()
        (folder / "prompts/twice.md").write_text(f"Of {folder.name}.", encoding="utf-8")
    for word in ("skills", "prompts"):
        said = shown(kernel, f"%agent {word} show twice")
        found = re.findall(rf"/([.\w-]+)/{word}/twice|(Of [.\w-]+)\.\n", said)
        assert ["".join(each) for each in found] == [
            *(".agent_magics", "Of .agent_magics"),
            *("agent-magics", "Of agent-magics"),
        ]
    for folder in folders:
        shutil.rmtree(folder / "skills/twice")
        shutil.rmtree(folder / "prompts")


def notebook_of(*cells: tuple[str, str]) -> str:
    """Return a notebook of cells and what they printed, as JSON."""
    made = [
        nbformat.v4.new_code_cell(
            source,
            execution_count=1,
            outputs=[nbformat.v4.new_output("stream", name="stdout", text=text)],
        )
        for source, text in cells
    ]
    return nbformat.writes(nbformat.v4.new_notebook(cells=made))


PLAYED = (
    "%load_ext agent_magics\n"
    "from agent_magics import Agent\n"
    "print(Agent(replay='auto', approval='never').run_sync('Read it.').text)"
)


@pytest.mark.timeout(600)
def test_the_notebook_of_a_skill_is_its_test(kernel: Kernel, place: Path) -> None:
    folder = place / ".agent_magics/skills"
    skill = write_skill(folder, "tested", tools_dot_py=TOOL.format(name="revenue"))
    (skill / "test.agent.jsonl").write_text(recorded(place))
    for text, how in (("revenue\n", "passed"), ("other\n", "failed")):
        (skill / "test.ipynb").write_text(notebook_of((PLAYED, text)))
        refused = kernel.run("%agent skills test tested")
        assert "is not trusted, and its test runs code with your rights" in refused.text
        digest = re.search(r"`tested`.*`([0-9a-f]{12})`", shown(kernel, "%agent skills trust"))
        assert digest is not None
        shown(kernel, f"%agent skills trust {digest[1]}")
        outcome = kernel.run("%agent skills test tested", limit=3 * LIMIT)  # starts pytest
        said = "".join(str(item["text"]) for item in outcome.items)
        assert f"The test of `tested` {how}" in said, said
        assert outcome.status == ("ok" if how == "passed" else "error")
    assert "revenue" in said and "other" in said
    assert "There is no test of a skill 'nothing'; skills with one: " in (
        kernel.run("%agent skills test nothing").text
    )


def recorded(place: Path) -> str:
    """Return the recording of a conversation in which the skill's tool is called."""
    file = place / "made.agent.jsonl"
    model = ScriptedModel([Call("revenue"), "revenue"])
    with Agent(model, [revenue], approval="never", record=file) as agent:
        agent.run_sync("Read it.")
    return file.read_text()


@tool
def revenue() -> str:
    """Stand for the tool of the skill."""
    return "revenue"


def test_a_prompt_is_trusted_completed_and_filled_in(kernel: Kernel, place: Path) -> None:
    assert shown(kernel, "%agent prompts").startswith("There are no prompts:")
    folder = place / ".agent_magics/prompts"
    folder.mkdir(parents=True)
    (folder / "monthly.md").write_text(
        "---\ndescription: A report.\n---\nReport {{month}} of {{ region }}, not {{a b}}.\n"
    )
    refused = kernel.run("%%agent --prompt monthly month=May region=EU")
    assert "You have not trusted the prompt monthly" in refused.text
    assert "`monthly month= region=` | `A report.` | not trusted" in shown(kernel, "%agent prompts")
    waiting = shown(kernel, "%agent prompts trust")
    assert "Report {{month}} of {{ region }}" in waiting
    digest = re.search(r"%agent prompts trust ([0-9a-f]{12})", waiting)
    assert digest is not None
    assert shown(kernel, f"%agent prompts trust {digest[1]}") == "You may use: `monthly`."
    assert "monthly" in kernel.complete("%%agent --prompt mon")
    assert "region=" in kernel.complete("%%agent --prompt monthly month=May ")
    assert "month=" not in kernel.complete("%%agent --prompt monthly month=May ")
    missing = kernel.run("%%agent --prompt monthly month=May")
    assert (
        "The prompt monthly needs region; write: --prompt monthly month=... region=..."
        in missing.text
    )
    assert "has no field x" in kernel.run("%%agent --prompt monthly month=1 region=2 x=3").text
    assert "got 'month'" in kernel.run("%%agent --prompt monthly month").text
    assert (
        "There is no prompt 'weekly'; there are: monthly. %agent prompts says where"
        in kernel.run("%%agent --prompt weekly").text
    )
    unclosed = kernel.run("%%agent --prompt monthly month='May").text
    assert "A quotation mark is missing in this line" in unclosed
    kernel.run("where = 'the EU'")
    cell = "%%agent --new --prompt monthly month='May 2024' region={{where}}\nBe brief.\n"
    outcome = kernel.run(cell)
    assert outcome.status == "ok", outcome.text
    items = f"{AGENTS}['default'].session.conversation.history.items"
    said = kernel.value(f"{items}[0].content")
    assert "/monthly" in kernel.complete("%%agent\n/mon")
    cell = "%%agent --new\n/monthly month='May 2024' region={{where}}\nBe brief.\n"
    assert kernel.run(cell).status == "ok"
    assert kernel.value(f"{items}[0].content") == said
    assert said == "Report May 2024 of the EU, not {{a b}}.\n\nBe brief."


def test_the_project_stands_in_one_place_and_is_trusted_there(kernel: Kernel, place: Path) -> None:
    (place / "AGENTS.md").write_text("Be brief.")
    ours = place / ".agent_magics"
    (ours / "rules.toml").write_text(
        '[[rule]]\npermission = "command"\npattern = ["make"]\ndecision = "allow"\n'
    )
    (ours / "config.toml").write_text("max_turns = 5\n")
    (ours / "tools").mkdir()
    (ours / "tools/mine.py").write_text("x = 1\n")
    (ours / "agents").mkdir()
    (ours / "agents/mine.md").write_text("Look.\n")
    write_skill(ours / "skills", "later")
    listed = shown(kernel, "%agent project")
    assert str(place) in listed and "| Instructions | `AGENTS.md` | none needed |" in listed
    waiting = re.findall(r"waits: `([0-9a-f]{12})`", listed)
    assert len(waiting) >= 5, listed
    assert kernel.run("%agent project trust 000000000000").error == "UsageError"
    for digest in waiting:
        listed = shown(kernel, f"%agent project trust {digest}")
    assert "waits:" not in listed, listed
    assert "| yes |" in shown(kernel, "%agent skills")


def test_another_project_is_activated_with_a_new_conversation(
    kernel: Kernel, place: Path, tmp_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    assert kernel.run("%agent project activate /nowhere-at-all").error == "UsageError"
    listed = shown(kernel, f"%agent project activate {tmp_path}/src")
    assert f"The project's root is `{tmp_path}`; the workspace is `{tmp_path}`" in listed
    assert kernel.value(f"str({AGENTS}['default'].config.cwd)") == str(tmp_path)
    assert shown(kernel, "%agent history") == "This conversation is empty."
    shown(kernel, f"%agent project activate {place}")
