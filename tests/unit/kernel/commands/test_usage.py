"""The column of `%agent usage` that says how full the model's window was."""

from agent_magics.engine.cost import Spending
from agent_magics.kernel.commands.usage import _context
from agent_magics.models.providers.catalog import find_model
from agent_magics.protocol.items import Usage


def test_the_share_is_that_of_the_last_request():
    window = find_model("gpt-5.5").context_window
    spending = Spending().add("gpt-5.5", Usage(window, 1)).add("gpt-5.5", Usage(window // 4, 1))
    assert _context(spending, None) == f"██░░░░░░░░ 25.0% of {window:,}"


def test_a_window_that_is_set_holds_before_the_catalogue():
    for model in ("qwen3:8b", "gpt-5.5"):
        spending = Spending().add(model, Usage(8_192, 1))
        assert _context(spending, 32_768) == "██░░░░░░░░ 25.0% of 32,768"


def test_what_is_not_known_is_said():
    assert _context(Spending(), 32_768) == "not known"
    assert _context(Spending().add("gpt-5.5", Usage()), None) == "not known"
    unknown = Spending().add("gpt-99", Usage(1_000, 1))
    assert _context(unknown, None) == "1,000 tokens; window of `gpt-99` not known"
