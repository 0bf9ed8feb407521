"""``%agent doctor``: reports what this kernel and machine can do, and why not, line by line."""

import os
import shutil
import sys
import tempfile
from pathlib import Path

from agent_magics.exec.launcher_client import current_tier, shared_launcher
from agent_magics.exec.sandbox.plan import build_confinement
from agent_magics.files.beneath import is_below
from agent_magics.files.paths import open_notebook, read_judge, shown_path
from agent_magics.files.survey import survey
from agent_magics.kernel.cell.publishing import is_watched
from agent_magics.kernel.commands.login import describe_key
from agent_magics.kernel.commands.project.language_servers import examine_language_servers
from agent_magics.kernel.lab.link import LabLink
from agent_magics.kernel.questions.ways import NotebookHost, stdin_allowed
from agent_magics.protocol.config import SandboxPolicy, Settings
from agent_magics.records.places import rollout_folder
from agent_magics.render.markdown import code_span
from agent_magics.text.brief import first_of, number_of

_PACKAGES = (
    "agent-magics",
    "ipykernel",
    "ipython",
    "ipywidgets",
    "anywidget",
    "pydantic",
    "aiohttp",
)


def examine(shell: object, host: NotebookHost, settings: Settings) -> list[tuple[str, str]]:
    """Return the findings as (subject, finding) pairs.

    Args:
        shell: the IPython shell.
        host: answers questions in this kernel.
        settings: the settings of the next cell.
    """
    return [
        ("Python", sys.version.split()[0]),
        *((package, _version(package)) for package in _PACKAGES),
        ("Where", _where(shell)),
        ("Questions", _questions(shell, host)),
        ("Python code", _PYTHON[settings.python]),
        ("JupyterLab", _extension(host.lab)),
        ("Key", describe_key(settings)),
        *_sandbox(settings),
        ("rg", shutil.which("rg") or "not found: grep_files searches with Python, slower"),
        *examine_language_servers(settings),
        ("Recorded in", str(rollout_folder())),
    ]


def _version(package: str) -> str:
    from importlib import metadata  # noqa: PLC0415 - 45 ms that only this word pays

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _where(shell: object) -> str:
    if getattr(shell, "kernel", None) is None:
        return "terminal IPython, no kernel: what happens is printed at once, line by line"
    if is_watched(shell):
        return "a notebook front end: output is live"
    how = "at once, line by line" if stdin_allowed(shell) else "when it is complete"
    return f"a kernel without a notebook front end: output comes {how}"


def _questions(shell: object, host: NotebookHost) -> str:
    queued = f" ({number_of(len(host.queued), 'answer')} queued)" if host.queued else ""
    if not stdin_allowed(shell):
        return "nobody can be asked: policy answers, a question is denied with a reason" + queued
    if not (is_watched(shell) and host.widgets_work):
        return "you type the answers at an input() prompt" + queued
    if not host.lab.reach:
        return f"{_BUTTONS}; while code runs, you type the answers below the cell" + queued
    return f"{_BUTTONS}, also while code runs ({_REACHES[host.lab.reach]})" + queued


_PYTHON = {
    "live": "live: in this kernel, which is no sandbox; in scratch where the model asks for it",
    "scratch": "scratch: beside this kernel, in the sandbox, with copies of variables",
    "off": "off: the model's Python code is refused (commands may run Python all the same)",
}
_BUTTONS = "buttons below the cell"
_REACHES = {"subshell": "by a subshell", "control": "by the control channel"}


def _extension(lab: LabLink) -> str:
    """Describe the notebooks that the labextension has reported."""
    if not lab.pages:
        return (
            "its extension has not said hello (another front end, or it is not installed): no "
            "notebook tools, and questions of code that holds the main thread are typed in"
        )
    paths = ", ".join(code_span(path) for path in dict.fromkeys(p.path for p in lab.pages))
    tools = ", ".join(map(code_span, lab.tools()))
    return f"its extension is connected: {paths}" + (f"; it offers {tools}" if tools else "")


_TIERS = {
    0: "tier 0: commands cannot be confined here, so approval asks for each",
    1: "tier 1: Landlock, seccomp and a supervisor that judges calls",
    2: "tier 2: Landlock, seccomp, a supervisor that judges calls, and namespaces",
}


def _sandbox(settings: Settings) -> list[tuple[str, str]]:
    """Describe how commands are confined in the workspace of the settings."""
    able = shared_launcher().capabilities()
    tier = current_tier()
    abi = f" (Landlock ABI {able.abi})" if tier else ""
    lowered = f"; AGENT_MAGICS_TIER lowers it from {able.tier}" if tier < able.tier else ""
    reason = f"; not more, because: {able.reason}" if able.reason else ""
    who = "root, without its privileges inside" if os.geteuid() == 0 else "an unprivileged user"
    rows = [("Sandbox", f"{_TIERS[tier]}{abi}{lowered}{reason}"), ("Commands run as", who)]
    if settings.sandbox == SandboxPolicy.DANGER_FULL_ACCESS:
        return [*rows, ("Policy", "danger-full-access: commands are not confined")]
    return [*rows, *(_confinement(settings, tier) if tier else ())]


def _confinement(settings: Settings, tier: int) -> list[tuple[str, str]]:
    cwd = settings.cwd
    confinement = build_confinement(
        tier=tier,
        policy=settings.sandbox,
        roots=settings.roots,
        cwd=cwd,
        tmp=Path(tempfile.gettempdir(), "agent-magics"),
        network=settings.network,
        notebook=open_notebook(),
    )
    folders = ", ".join(confinement.writable[:-1]) or "nothing"
    network = "ports 80 and 443 of other machines" if settings.network else "off; asks if needed"
    how = "mounted read-only" if tier >= 2 else _TRIPWIRE_NOTE
    readable = [p for p in confinement.hidden if tier < 2 and is_below(p, confinement.writable)]
    open_ones = f"; inside the workspace {_names(readable, cwd)} stays readable" if readable else ""
    hidden = number_of(len(confinement.hidden), "place")
    home = Path.home().resolve()
    missed = survey(confinement.writable[:-1], read_judge()).missed
    unprotected = [f"{path}: {why}" for path, why in missed.items()]
    return [
        ("Writable", f"{folders}, and a temporary folder of their own"),
        ("Network", network),
        ("Protected", f"{number_of(len(confinement.protected), 'place')}, {how}"),
        ("Hidden", f"{hidden} (keys, Jupyter's files, ...){open_ones}"),
        *([("Not protected", "; ".join(unprotected[:3]))] if missed else ()),
        *([("Workspace", _HOME_NOTE)] if is_below(str(home), confinement.writable) else ()),
    ]


_TRIPWIRE_NOTE = (
    "compared four times a second while commands run, put back and told; until then what a command "
    "wrote there stands"
)
_HOME_NOTE = (
    "it is your home, or holds it: start files of shells, Python and Jupyter in it are protected; "
    "a folder of its own is safer"
)


def _names(paths: list[str], cwd: Path) -> str:
    return first_of([shown_path(path, cwd) for path in paths], 3)
