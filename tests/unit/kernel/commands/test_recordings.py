"""What `%agent recording trim` leaves out of a file, and what `rerecord` puts in its place."""

import json
import shutil
from pathlib import Path

import pytest

from agent_magics.kernel.cell.request.rerecording import Rerecording
from agent_magics.kernel.commands.recordings.report import trim_recording
from agent_magics.models.recordings.format import read_recording

HEADER = {"format": "agent-magics-recording", "version": 1, "by": "hand"}
CALL, TEXT = [{"call": "list_dir", "arguments": {}}], [{"text": "Done."}]


def test_trim_leaves_out_a_stopped_turn_that_another_one_repeats(tmp_path):
    replies = [("Count.", CALL), ("Count.", CALL), ("Count.", TEXT), ("Look.", CALL)]
    numbers = (1, 1, 2, 1)
    lines = [
        {"prompt": prompt, "number": number, "reply": reply}
        for number, (prompt, reply) in zip(numbers, replies, strict=True)
    ]
    path = tmp_path / "x.agent.jsonl"
    path.write_text("\n".join(map(json.dumps, [HEADER, *lines])), encoding="utf-8")
    cells = [{"cell_type": "code", "source": f"%%agent\n{p}"} for p in ("Count.", "Look.")]
    path.with_name("x.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")

    assert "were left out of `x.agent.jsonl`: 1." in trim_recording(path, str(tmp_path))
    kept = [(each.prompt, each.number) for each in read_recording(path).exchanges]
    assert kept == [("Count.", 1), ("Count.", 2), ("Look.", 1)]
    assert "nothing was changed" in trim_recording(path, str(tmp_path))


NOTEBOOKS = Path(__file__).parents[4] / "notebooks"


@pytest.mark.parametrize("name", [path.name for path in sorted(NOTEBOOKS.glob("*.agent.jsonl"))])
def test_trim_takes_nothing_from_a_tutorial(tmp_path, name):
    notebook = name.replace(".agent.jsonl", ".ipynb")
    for each in (name, notebook):
        shutil.copy(NOTEBOOKS / each, tmp_path)
    assert "nothing was changed" in trim_recording(tmp_path / name, str(tmp_path))


SPAWN = [{"call": "spawn_agent", "arguments": {"task": "Count  the files."}}]
ASK = "Task of default/explore-1:"
OF_SUB_AGENTS = [
    (f"{ASK}\nCount the files.", [{"call": "spawn_agent", "arguments": {"task": "Look."}}]),
    (f"{ASK}\nCount the files.\n\nThe conversation so far:\nPerson: Go.", TEXT),
    ("Task of default/explore-1/explore-1:\nLook.", TEXT),
    ("Message to default/explore-1:\nGo on.", TEXT),
]
OF_OTHERS = [
    (f"{ASK}\nCount the files that are new.", TEXT),
    ("Message to default/worker-1:\nGo on.", TEXT),
    ("Count the files.", TEXT),
]


def write(path, *exchanges):
    lines = [{"prompt": prompt, "number": 1, "reply": reply} for prompt, reply in exchanges]
    path.write_text("\n".join(map(json.dumps, [HEADER, *lines])), encoding="utf-8")
    return path


def prompts_in(path):
    return [exchange.prompt for exchange in read_recording(path).exchanges]


def test_trim_keeps_the_sub_agents_of_what_it_keeps(tmp_path):
    path = write(tmp_path / "x.agent.jsonl", *OF_SUB_AGENTS, ("Go.", SPAWN), *OF_OTHERS)
    cells = [{"cell_type": "code", "source": "%%agent\nGo."}]
    path.with_name("x.ipynb").write_text(json.dumps({"cells": cells}), encoding="utf-8")
    trim_recording(path, str(tmp_path))
    assert prompts_in(path) == [*(prompt for prompt, _ in OF_SUB_AGENTS), "Go."]


def test_a_cell_is_recorded_anew_with_its_sub_agents(tmp_path):
    others = [("Before.", TEXT), *OF_OTHERS]
    path = write(tmp_path / "x.agent.jsonl", others[0], ("Go.", SPAWN), *OF_SUB_AGENTS, *others[1:])
    anew = Rerecording()
    anew.want("next", path)
    staged, _ = anew.begin("default", path, "Go.", tmp_path)
    write(staged, ("Go.", SPAWN), OF_SUB_AGENTS[0])
    anew.settle("default", ended_well=True)
    expected = ["Before.", "Go.", OF_SUB_AGENTS[0][0], *(prompt for prompt, _ in OF_OTHERS)]
    assert prompts_in(path) == expected
