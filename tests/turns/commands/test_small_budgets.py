"""However little of an output is asked for, it is cut once; how it ended and where it is stays."""

import json
import re

import pytest

from agent_magics import Agent

MANY = "for i in $(seq 500); do echo line $i of many; done"
CUT = re.compile(r"characters left out …")


@pytest.fixture(params=[20, 400, 10_000])
def agent(request, tmp_path):
    lines = (f"word {number}\n" for number in range(9_000))
    (tmp_path / "long.txt").write_text("".join(lines), encoding="utf-8")
    with Agent(
        tools=["coding", "python"],
        cwd=tmp_path,
        output_budget=request.param,
        approval="on-request",
        python="scratch",
        on_question=lambda question: "approve",
    ) as made:
        yield made


@pytest.mark.parametrize("tokens", [1, 5, 50, 400, None])
@pytest.mark.parametrize("command", [MANY, f"{MANY}; exit 3", f"({MANY}) >&2", "printf '%9999s' x"])
def test_a_command_is_cut_once_and_keeps_header_and_handle(agent, command, tokens):
    text = agent.call_sync("exec_command", {"cmd": command, "max_output_tokens": tokens}).text
    assert text.startswith(f"Exit code: {3 if 'exit 3' in command else 0}\nWall time: ")
    assert len(CUT.findall(text)) <= 1
    if CUT.search(text):
        told = r"^Total output: \d+ characters, \d+ left out; the whole output: @r\d"
        assert re.search(told, text, re.MULTILINE)
    if tokens is not None:
        assert len(text) <= 4 * tokens + 700


def test_a_session_keeps_its_id(agent):
    text = agent.call_sync(
        "exec_command",
        {"cmd": f"{MANY}; sleep 60", "max_output_tokens": 10, "yield_time_ms": 1_500},
    ).text
    number = int(re.match(r"Session (\d+) is running\.", text)[1])
    assert len(CUT.findall(text)) == 1
    more = {"session_id": number, "chars": "", "max_output_tokens": 1}
    said = agent.call_sync("write_stdin", more).text
    assert said.startswith(f"Session {number} is running.")
    agent.call_sync("kill_session", {"session_id": number})


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("python", {"code": "print('word\\n' * 9000)"}),
        ("shell", {"command": ["cat", "long.txt"]}),
    ],
)
def test_other_outputs_are_cut_once_too(agent, tool, arguments):
    text = agent.call_sync(tool, arguments).text
    assert len(CUT.findall(text)) == 1
    assert re.search(r"@r\d", text)


def test_of_a_long_list_the_model_reads_a_few_items(tmp_path):
    with Agent(tools=["python"], cwd=tmp_path, python="scratch", approval="never") as agent:
        text = agent.call_sync("python", {"code": "list(range(3_000_000))"}).text
        assert text.startswith("list, 3,000,000 elements")
        assert len(text) < 1_700
        text = agent.call_sync("python", {"code": "'word ' * 1_000"}).text
        assert len(text) > 5_000


TABLE = "a,b\n" + "1,2\n" * 500
READS = {
    "read_file": ({"path": "long.txt"}, "go on with start_line="),
    "read_file of a table": ({"path": "t.csv"}, "start_line=1 reads"),
    "read_file of a notebook": ({"path": "n.ipynb"}, "go on with start_line="),
    "list_dir": ({"path": "many"}, "go on with offset="),
    "glob": ({"pattern": "many/*"}, "narrow the pattern"),
    "grep_files": ({"pattern": "word"}, "narrow the search"),
    "symbols": ({"path": "many.py"}, "narrow path or query"),
}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "long.txt").write_text("".join(f"word {n} {'x' * 150}\n" for n in range(9_000)))
    (tmp_path / "t.csv").write_text(TABLE)
    (tmp_path / "many.py").write_text("".join(f"def f{n}():\n    pass\n\n\n" for n in range(500)))
    cells = [{"cell_type": "code", "source": "x = 1\n" * 30, "outputs": []} for _ in range(99)]
    notebook = {"cells": cells, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}
    (tmp_path / "n.ipynb").write_text(json.dumps(notebook))
    (tmp_path / "many").mkdir()
    for number in range(300):
        (tmp_path / "many" / f"{number}.md").touch()
    return tmp_path


@pytest.mark.parametrize("budget", [1, 60, 1_000])
def test_how_to_get_the_rest_survives_any_budget(folder, budget):
    with Agent(tools=["coding", "symbols"], cwd=folder, output_budget=budget) as agent:
        for name, (arguments, footer) in READS.items():
            text = agent.call_sync(name.partition(" ")[0], arguments).text
            assert footer in text, (name, text)
            assert len(text) < 1_200, name
