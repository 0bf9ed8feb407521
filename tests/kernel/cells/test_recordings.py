"""Recordings in a notebook: played by themselves, looked at, trimmed, and recorded anew."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent_magics.models.recordings.format import Header, read_recording
from agent_magics.models.recordings.writing import start_recording
from agent_magics.tools.proposal import RUN_PROMPT
from tests.support.kernels.cells import AGENTS
from tests.support.kernels.driver import Kernel, Outcome
from tests.support.models.responses_server import Reply, function_call, message
from tests.support.models.server import ModelServer

HAND = {"format": "agent-magics-recording", "version": 1, "by": "hand", "note": "No model."}
NOTHING_LIVE = "no_live_answer"


def _answer(body: dict) -> Reply | str:
    """What the live model says: to a cell that begins with "List", it first lists the folder."""
    asked = [item for item in body["input"] if item.get("role") == "user"][-1]["content"]
    if NOTHING_LIVE in asked:
        return Reply(status=400, error="not today")
    if asked.startswith("Plan") and body["input"][-1].get("role") == "user":
        return Reply([function_call("propose_plan", {"steps": ["Look."]})])
    if asked.startswith("List") and body["input"][-1].get("role") == "user":
        return Reply([message("Let me see."), function_call("list_dir", {"path": "."})])
    return f"Live: {asked}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


@pytest.fixture(scope="module")
def kernel(folder: Path) -> Iterator[Kernel]:
    with ModelServer(responses=_answer) as server:
        env = {"JPY_SESSION_NAME": "deep/x.ipynb", "OPENAI_BASE_URL": server.base_url}
        with Kernel(cwd=str(folder), env=env) as kernel:
            yield kernel


@pytest.fixture
def path(folder: Path, kernel: Kernel) -> Path:
    """The recording beside the notebook, with three prompts; nothing of an earlier test is left."""
    for file in folder.iterdir():
        file.unlink()
    path = folder / "x.agent.jsonl"
    exchanges = [(f"Say {name}.", 1, [{"text": name}]) for name in ("one", "two", "three")]
    _write(path, *exchanges)
    outcome = kernel.run("%reload_ext agent_magics")
    assert outcome.status == "ok", outcome.text
    return path


def _write(path: Path, *exchanges: tuple[str, int, list[dict]]) -> None:
    lines = [HAND]
    lines += [{"prompt": prompt, "number": n, "reply": reply} for prompt, n, reply in exchanges]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def _say(kernel: Kernel, prompt: str, options: str = "") -> str:
    outcome = kernel.run(f"%%agent {options}\n{prompt}\n")
    assert outcome.status == "ok", outcome.text
    return kernel.value("_agent.text")


def _word(kernel: Kernel, line: str) -> str:
    outcome = kernel.run(f"%agent recording {line}")
    assert outcome.status == "ok", outcome.text
    (item,) = outcome.items
    return item["text"]


def test_a_recording_that_cannot_be_read_costs_no_conversation(kernel, path):
    conversation = f"{AGENTS}['default'].conversation_id"
    assert _say(kernel, "Say one.") == "one"
    first = kernel.value(conversation)
    path.with_name("bad.agent.jsonl").write_text("no recording")
    refused = _refused(kernel.run("%%agent --new --replay bad.agent.jsonl\nSay two.\n"))
    assert "bad.agent.jsonl" in refused
    assert kernel.value(conversation) == first


def test_a_cell_records_or_plays(kernel, path):
    said = _refused(kernel.run(f"%%agent --record y.jsonl --replay {path.name}\nSay one.\n"))
    assert "leave one of them out" in said
    assert not path.with_name("y.jsonl").exists()


@pytest.mark.parametrize(
    ("setting", "option", "said", "written"),
    [
        ("record", "", "Live: Say one.", True),
        ("record", "--replay x.agent.jsonl", "one", False),
        ("replay", "", "one", False),
        ("replay", "--record y.jsonl", "Live: Say one.", True),
    ],
)
def test_an_option_goes_before_the_notebooks_setting(kernel, path, setting, option, said, written):
    file = {"record": "y.jsonl", "replay": "x.agent.jsonl"}[setting]
    kernel.run(f"%config AgentMagics.{setting} = {file!r}")
    try:
        assert _say(kernel, "Say one.", option) == said
        assert path.with_name("y.jsonl").exists() == written
    finally:
        kernel.run("%config AgentMagics.record = ''\n%config AgentMagics.replay = 'auto'")


def _refused(outcome: Outcome) -> str:
    assert outcome.status == "error"
    assert outcome.error == "UsageError", outcome.error
    (said,) = (each["text"] for each in outcome.outputs if each.get("name") == "error")
    return said


# -- playing ---------------------------------------------------------------------------------------


def test_the_recording_beside_the_notebook_is_played_and_named(kernel: Kernel, path: Path) -> None:
    outcome = kernel.run("%%agent\nSay one.\n")
    assert outcome.status == "ok"
    (note,) = outcome.items_of("notice")
    assert "played from the recording `x.agent.jsonl`" in note["text"]
    assert kernel.value("_agent.text") == "one"


def test_cells_in_another_order_and_again(kernel: Kernel, path: Path) -> None:
    prompts = [f"Say {name}." for name in ("three", "one", "one", "two", "three")]
    assert [_say(kernel, prompt) for prompt in prompts] == ["three", "one", "one", "two", "three"]


def test_without_a_recording_the_live_model_is_asked(kernel: Kernel, path: Path) -> None:
    path.unlink()
    assert _say(kernel, "Say one.") == "Live: Say one."


def test_an_edited_cell_names_the_nearest_and_the_ways_out(kernel: Kernel, path: Path) -> None:
    said = _refused(kernel.run("%%agent\nSay ones.\n"))
    for part in ("Say ones.", "Say one.", "x.agent.jsonl", "rerecord next", "OPENAI_BASE_URL"):
        assert part in said


def test_strict_holds_from_the_next_cell_on(kernel: Kernel, path: Path) -> None:
    call = [{"call": "list_dir", "arguments": {"path": "."}}]
    _write(path, ("Look.", 1, call), ("Look.", 2, [{"text": "ok"}]))
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "outputs": ["something else"]})
    path.write_text("\n".join(lines), encoding="utf-8")
    outcome = kernel.run("%%agent\nLook.\n")
    assert any("-something else" in item["text"] for item in outcome.items_of("notice"))
    kernel.run("%config AgentMagics.replay_strict = True")
    assert "-something else" in _refused(kernel.run("%%agent\nLook.\n"))
    kernel.run("%config AgentMagics.replay_strict = False")
    assert _say(kernel, "Look.") == "ok"


# -- show, diff, trim ------------------------------------------------------------------------------


def test_show_lists_the_exchanges(kernel: Kernel, path: Path) -> None:
    call = {"call": "list_dir", "arguments": {"path": "."}}
    _write(path, ("Look | here.", 1, [call, call]), ("Look | here.", 2, [{"text": "ok"}]))
    for line in ("", "show", "show x.agent.jsonl", f"show '{path}'"):
        said = _word(kernel, line)
        assert "`x.agent.jsonl`, written by hand. No model." in said
        assert "| 1 | `Look \\| here.` | 1 | 2 | `list_dir`, `list_dir` | whole |" in said
        assert "|  |  | 2 | 3 |  | whole |" in said


def test_diff_shows_what_another_recording_says(kernel: Kernel, path: Path) -> None:
    other = path.with_name("other file.jsonl")
    _write(other, ("Say one.", 1, [{"text": "uno"}]), ("Say four.", 1, [{"text": "four"}]))
    said = _word(kernel, "diff 'other file.jsonl'")
    assert "-  says: one\n+  says: uno" in said
    assert "`Say two.`: only in the first" in said
    assert "`Say four.`: only in the second" in said
    assert "say the same" in _word(kernel, "diff x.agent.jsonl x.agent.jsonl")


def _notebook(path: Path, *sources: str) -> None:
    cells = [{"cell_type": "code", "source": source.splitlines(True)} for source in sources]
    cells.append({"cell_type": "markdown", "source": "%%agent\nSay three.\n"})
    path.write_text(json.dumps({"cells": cells}), encoding="utf-8")


def test_trim_keeps_what_the_cells_use(kernel: Kernel, path: Path, folder: Path) -> None:
    prompts = ["Say one.", "Say 7 times x.", "Say two.", "[summary of the conversation] Say one."]
    _write(path, *((p, 1, [{"text": "ok"}]) for p in (*prompts, "Say nothing.", "Say 7.")))
    before = path.read_bytes()
    _notebook(
        folder / "x.ipynb",
        "%%agent --new\nSay  one.\n",
        "%%agent\nSay {{number}} times {{what}}.",
        "agent.run_sync('Say two.')",
    )
    said = _word(kernel, "trim")
    assert [exchange.prompt for exchange in read_recording(path).exchanges] == prompts
    assert "left out of `x.agent.jsonl`: 2." in said
    assert "- `Say nothing.`\n- `Say 7.`" in said
    assert (folder / "x.agent.jsonl.bak").read_bytes() == before
    assert "nothing was changed" in _word(kernel, "trim x.agent.jsonl x.ipynb")


def test_trim_without_a_notebook_changes_nothing(kernel: Kernel, path: Path) -> None:
    before = path.read_bytes()
    said = _refused(kernel.run("%agent recording trim"))
    assert "Cannot read the notebook" in said
    assert "x.ipynb" in said
    path.with_name("x.ipynb").write_text("[]", encoding="utf-8")
    assert "is not a notebook" in _refused(kernel.run("%agent recording trim"))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "show [FILE], diff A [B], trim"),
        ("diff", "takes: diff A [B]; without a file"),
        ("show 'x", "quotation mark"),
        ("show gone.jsonl", "Cannot read the recording gone.jsonl"),
        ("rerecord some", "rerecord next|all|off"),
    ],
)
def test_misuse_is_told_in_one_sentence(kernel: Kernel, path: Path, line: str, words: str) -> None:
    assert words in _refused(kernel.run(f"%agent recording {line}"))


def test_without_a_recording_a_file_must_be_named(kernel: Kernel, path: Path) -> None:
    path.unlink()
    assert "plays no recording; name a file" in _refused(kernel.run("%agent recording"))
    said = _refused(kernel.run("%agent recording rerecord next"))
    assert 'plays no recording; name one (%config AgentMagics.replay = "FILE")' in said


# -- recording anew --------------------------------------------------------------------------------


def _files(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_one_cell_is_recorded_anew(kernel: Kernel, path: Path, wrapper: str) -> None:
    old = path.read_bytes().splitlines()
    assert "The next %%agent cell" in _word(kernel, "rerecord next")
    outcome = kernel.run(f"{wrapper}%%agent\nSay two.\n")
    assert outcome.status == "ok", outcome.text
    assert "The live model is asked." in outcome.items_of("notice")[0]["text"]
    new = path.read_bytes().splitlines()
    assert [new[1], new[3]] == [old[1], old[3]]
    assert len(new) == 4
    recording = read_recording(path)
    assert recording.header.by.startswith("hand, in part; agent-magics ")
    assert recording.exchanges[1].prompt == "Say two."
    assert _say(kernel, "Say two.") == "Live: Say two."
    assert _say(kernel, "Say one.") == "one", "only the next cell was"
    assert _files(path) == ["x.agent.jsonl"]


def test_a_turn_with_tools_takes_the_place_of_all_its_exchanges(kernel: Kernel, path: Path) -> None:
    say = [{"text": "ok"}]
    _write(path, ("List it.", 1, say), ("Say one.", 1, say), ("List it.", 1, say))
    _word(kernel, "rerecord next")
    _say(kernel, "List it.", "--approval never")
    found = [(each.prompt, each.number) for each in read_recording(path).exchanges]
    assert found == [("List it.", 1), ("List it.", 2), ("Say one.", 1)]
    assert _say(kernel, "List it.", "--approval never") == "Live: List it."
    (listed,) = read_recording(path).exchanges[1].outputs or ()
    assert "x.agent.jsonl" in listed
    assert "hidden" not in listed, "nothing of ours was in the sight of the model"


def test_all_cells_are_recorded_anew_until_that_is_over(kernel: Kernel, path: Path) -> None:
    assert "every %%agent cell" in _word(kernel, "rerecord all")
    for name in ("one", "two", "three", "four"):
        assert _say(kernel, f"Say {name}.") == f"Live: Say {name}."
    assert "played again" in _word(kernel, "rerecord off")
    recording = read_recording(path)
    assert [each.prompt for each in recording.exchanges] == [
        *("Say one.", "Say two.", "Say three.", "Say four.")
    ]
    assert all(each.model for each in recording.exchanges)
    path.write_bytes(path.read_bytes().replace(b"Live: ", b"Recorded: "))
    assert _say(kernel, "Say one.") == "Recorded: Say one."


def test_when_nothing_is_by_hand_any_more_the_header_says_so(kernel: Kernel, path: Path) -> None:
    _write(path, ("Say one.", 1, [{"text": "one"}]))
    _word(kernel, "rerecord next")
    _say(kernel, "Say one.")
    header = read_recording(path).header
    assert header.by.startswith("agent-magics ")
    assert header.note == ""


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_a_failed_cell_leaves_the_recording_as_it_was(
    kernel: Kernel, path: Path, wrapper: str
) -> None:
    _write(path, (f"Say {NOTHING_LIVE}.", 1, [{"text": "recorded"}]))
    before = path.read_bytes()
    _word(kernel, "rerecord next")
    assert "not today" in _refused(kernel.run(f"{wrapper}%%agent\nSay {NOTHING_LIVE}.\n"))
    assert path.read_bytes() == before
    assert _files(path) == ["x.agent.jsonl"]
    assert _say(kernel, f"Say {NOTHING_LIVE}.") == "recorded"


@pytest.mark.parametrize("wrapper", ["", "%%time\n"], ids=["awaiting", "blocking"])
def test_a_plan_is_recorded_anew_with_its_run(kernel: Kernel, path: Path, wrapper: str) -> None:
    plan = [{"call": "propose_plan", "arguments": {"steps": ["Look."]}}]
    say = [{"text": "old"}]
    old = [("Plan it.", 1, plan), ("Plan it.", 2, say), (RUN_PROMPT, 1, say)]
    _write(path, *old, ("Plan more.", 1, plan), ("Plan more.", 2, say), (RUN_PROMPT, 1, say))
    kept = path.read_bytes().splitlines()[4:]
    _word(kernel, "rerecord next")
    cell = f"{wrapper}%%agent --plan\nPlan it.\n"
    outcome = kernel.run(cell, answers=["1"], allow_stdin=True)
    assert outcome.status == "ok", outcome.text
    assert kernel.value("_agent.text") == f"Live: {RUN_PROMPT}"
    assert [each.prompt for each in read_recording(path).exchanges[:3]] == [each[0] for each in old]
    assert path.read_bytes().splitlines()[4:] == kept
    assert b"old" not in b"".join(path.read_bytes().splitlines()[1:4])
    played = kernel.run(cell)
    assert played.status == "ok", played.text
    assert kernel.value("_agent.text") == f"Live: {RUN_PROMPT}"


@pytest.mark.parametrize(
    "options",
    ["--tools nothing_such", "--background --tools nothing_such", "--output nothing_such"],
)
def test_a_refused_cell_is_not_the_next_one_and_leaves_nothing_to_others(
    kernel: Kernel, path: Path, options: str
) -> None:
    before = path.read_bytes()
    _word(kernel, "rerecord next")
    assert "nothing_such" in _refused(kernel.run(f"%%agent {options}\nGo.\n"))
    assert _say(kernel, "Say one.", "--record y.jsonl") == "Live: Say one."
    assert path.read_bytes() == before
    assert _files(path) == ["x.agent.jsonl", "y.jsonl"]
    assert [_say(kernel, "Say two.") for _ in range(2)] == ["Live: Say two."] * 2
    assert read_recording(path).exchanges[1].model, "the first of both was recorded, and played"
    assert _say(kernel, "Say one.") == "one"


def test_two_agents_record_to_one_file(kernel: Kernel, path: Path) -> None:
    path.unlink()
    for name in ("left", "right"):
        _say(kernel, "List it.", f"--name {name} --record y.jsonl --approval never")
    start_recording(path.with_name("y.jsonl"), Header("nobody"))  # it is whole
    recording = read_recording(path.with_name("y.jsonl"))
    assert [each.number for each in recording.exchanges] == [1, 2, 1, 2]
    assert len({each.turn for each in recording.exchanges}) == 2
    assert recording.notice == ""
