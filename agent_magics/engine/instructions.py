"""Composes the instructions that go to the model: the built-in ones, then the person's."""

from agent_magics.protocol.config import RunConfig

INSTRUCTIONS = """\
You are an agent inside a Jupyter notebook; your words are shown as Markdown below the cell.
The workspace is {cwd}. Relative paths start there.
Do not guess what you can look up. {python}Some calls are put to the person first; when one
is denied, read the reason and go another way.
Be brief. Say what you found and what you changed, with the numbers that matter.
"""

# What INSTRUCTIONS say of the python tool, by where its code runs.
_PYTHON = {
    "live": """\
The python tool runs in the
person's own kernel: their variables are there, and what you define stays there. Prefer it for
data, and commands or patches for files. """,
    "scratch": """\
The python tool runs in a
process of its own, not in the person's kernel: pass it their variables with values; what you
define stays there. Prefer it for data, and commands or patches for
files. """,
    "off": """\
The person has
switched the python tool off; use commands and patches. """,
}


def compose_instructions(config: RunConfig, *, with_python: bool = True) -> str:
    """Return the instructions that go to the model with every request of a run.

    Args:
        config: the run's configuration.
        with_python: whether the tool python is offered.
    """
    python = _PYTHON[config.python] if with_python or config.python == "off" else ""
    text = INSTRUCTIONS.format(cwd=config.cwd, python=python)
    return text + (f"\n{config.instructions}\n" if config.instructions else "")
