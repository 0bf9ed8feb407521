"""Makes a top-level ``%%agent`` cell awaitable, and leaves every other use of the magic unchanged.

While a cell awaits, clicks reach the kernel (ipykernel >= 7.4) and an interrupt arrives. A magic
cannot await, so the one line that IPython makes of the cell is rewritten to a different call.
Inside another cell (``%%time``, ``ip.run_cell``, ``%run``) an await would be a syntax error or meet
a loop that is already running; there the blocking magic stays.
"""

from typing import Any

MAGIC_CALL = "get_ipython().run_cell_magic('agent', "
AWAITED_CALL = "await get_ipython().magics_manager.registry['AgentMagics'].run_awaiting("


class AwaitTopLevelCell:
    """An entry of ``shell.input_transformers_post`` that rewrites top-level ``%%agent`` cells."""

    def __init__(self, shell: Any) -> None:
        self._shell = shell

    def __call__(self, lines: list[str]) -> list[str]:
        """Rewrite the line of a top-level ``%%agent`` cell."""
        if len(lines) != 1 or not lines[0].startswith(MAGIC_CALL):
            return lines
        if not self._shell.autoawait or self._shell.display_trap._nested_level:
            return lines
        return [AWAITED_CALL + lines[0][len(MAGIC_CALL) :]]
