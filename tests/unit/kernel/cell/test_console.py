"""What a console prints of running calls: an output writes over nothing that stands above it."""

import pytest

from agent_magics.kernel.cell.console import ConsoleOutputs
from agent_magics.protocol.events import ExecCommandOutputDelta
from agent_magics.render.blocks.display import DisplayBlock


@pytest.mark.parametrize("move", ["\x1b[9A\r", "\x1b[9F", "\x1b[H"], ids=ascii)
def test_of_two_commands_at_once_each_line_has_its_command_above_it(
    move: str, capsys: pytest.CaptureFixture[str]
) -> None:
    console = ConsoleOutputs(publisher=None)  # type: ignore[arg-type]
    calls = {key: DisplayBlock(key, {"name": "shell", "title": f"run {key}"}) for key in "ab"}
    for key in "aba":
        text = f"one\n{move}… running shell: harmless\x1b[K\n"
        console.follow(ExecCommandOutputDelta(call_id=key, text=text), calls)
    printed = capsys.readouterr().out
    assert [each for each in printed.split("\n") if "run " in each] == [
        f"… running shell: run {key}" for key in "aba"
    ]
