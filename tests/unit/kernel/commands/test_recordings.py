"""What `%agent recording trim` leaves out of a file, and what `rerecord` puts in its place."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent_magics.config_files.places import config_folder
from agent_magics.engine.context.compaction import PROMPT as SUMMARY_OF
from agent_magics.kernel.cell.request.options import parse_options
from agent_magics.kernel.cell.request.reading import CellReader
from agent_magics.kernel.cell.request.rerecording import Rerecording
from agent_magics.kernel.commands.recordings.report import trim_recording
from agent_magics.kernel.magics import AgentMagics
from agent_magics.models.recordings.format import read_recording
from agent_magics.tools.proposal import RUN_PROMPT
from tests.support.skills import home

__all__ = ["home"]

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


def _notebook(path: Path, *sources: str) -> None:
    cells = [{"cell_type": "code", "source": source} for source in sources]
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")


CELLS = (
    "%%agent\n  Say  one,\n\n- and two.\n",
    "%%agent --new\nIs {{n}} times {{n + 1}} is what?",
    "%%agent\nA dict is \\{{x}}, a set of it \\{{ {x} }}; not {{n}}.",
    "%%agent --prompt daily",
    "%%agent --prompt=daily --new\nLeave out the returns.",
    "%%agent --approval never --prompt monthly month=May region='the EU' --new\nFor {{n}} people.",
    "%%agent --pr monthly region={{n}} month=x",
    "%%agent\n/monthly month={{n}} region=x\nAnd /daily.",
    "%%agent\n\n /daily",
    "%%agent\n/etc is full of {{n}} files.",
    "%%agent\n/daily.csv has {{n}} rows.",
    "%%time\n%%agent --new\nOf {{n}}.",
    "%%capture out\n\n%%agent\n/daily\nOf {{n}}.",
)


@pytest.mark.parametrize("source", CELLS)
def test_trim_reads_a_cell_as_it_is_run(home: object, tmp_path: Path, source: str) -> None:
    folder = config_folder() / "prompts"
    folder.mkdir(parents=True)
    (folder / "daily.md").write_text("---\ndescription: x\n---\nThe report of today.\n")
    (folder / "monthly.md").write_text("The report of {{month}} for {{ region }}, {{month}}.\n")
    first, text = source[source.index("%%agent") :].partition("\n")[::2]
    shell, settings = SimpleNamespace(user_ns={"n": 7}), SimpleNamespace(lab=None, cwd=".")
    options = parse_options(AgentMagics.agent.parser, first.removeprefix("%%agent"))
    prompt = CellReader(shell, settings).prompt(options, text, tmp_path)

    others = ("The report of yesterday.", "The report of May", "Say one, and", f"Now. {prompt}")
    path = write(tmp_path / "x.agent.jsonl", *((each, TEXT) for each in (prompt, *others)))
    _notebook(path.with_name("x.ipynb"), source)
    trim_recording(path, str(tmp_path))
    assert prompts_in(path) == [prompt]


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


PROPOSES = [{"call": "propose_plan", "arguments": {"steps": ["Look."]}}]
PLANS = [
    *(("Plan one.", 1, PROPOSES), ("Plan one.", 2, TEXT), (RUN_PROMPT, 1, SPAWN)),
    *((OF_SUB_AGENTS[1][0], 1, TEXT), (f"{SUMMARY_OF} {RUN_PROMPT}", 1, TEXT)),
    (RUN_PROMPT, 2, TEXT),
    *(("Plan two.", 1, PROPOSES), ("Plan two.", 2, TEXT), (RUN_PROMPT, 1, TEXT)),
]


def write_plans(path: Path) -> Path:
    lines = [{"prompt": prompt, "number": n, "reply": reply} for prompt, n, reply in PLANS]
    path.write_text("\n".join(map(json.dumps, [HEADER, *lines])), encoding="utf-8")
    return path


@pytest.mark.parametrize(("cell", "kept"), [("Plan one.", slice(6)), ("Plan two.", slice(6, 9))])
def test_trim_keeps_the_run_of_a_plan_with_it(tmp_path: Path, cell: str, kept: slice) -> None:
    path = write_plans(tmp_path / "x.agent.jsonl")
    _notebook(path.with_name("x.ipynb"), f"%%agent --plan\n{cell}")
    trim_recording(path, str(tmp_path))
    assert prompts_in(path) == [prompt for prompt, *_ in PLANS[kept]]


def test_a_plan_is_recorded_anew_with_its_run(tmp_path: Path) -> None:
    path = write_plans(tmp_path / "x.agent.jsonl")
    anew = Rerecording()
    anew.want("next", path)
    staged, _ = anew.begin("default", path, "Plan one.", tmp_path)
    write(staged, ("Plan one.", TEXT))
    anew.settle("default", ended_well=True)
    assert prompts_in(path) == ["Plan one.", *(prompt for prompt, *_ in PLANS[6:])]
