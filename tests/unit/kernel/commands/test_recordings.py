"""What `%agent recording trim` leaves out of a file."""

import json

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
