"""Drives a real JupyterLab in headless Chromium: the server, notebooks, and the page."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import URLError

import nbformat
from nbformat.reader import NotJSONError
from playwright.sync_api import (
    BrowserContext,
    Error,
    Locator,
    Page,
    Playwright,
    ViewportSize,
    WebSocket,
    expect,
)

from tests.support import forks
from tests.support.gates import Gate
from tests.support.kernels import forked
from tests.support.needs import CHROMIUM, require
from tests.support.pages.items import unfolded
from tests.support.ports import free_port

ITEM = "application/vnd.agent-magics.item+json"
WIDGET = "application/vnd.jupyter.widget-view+json"
TOKEN = "t"
# Milliseconds and seconds that anything on the page may take: only what hangs takes so long.
SLOW = 60_000
LIMIT = 120.0
_TOLD = 700  # bytes of a message, whose end says most
_ENDING = 30.0  # seconds for a server to end by itself
expect.set_options(timeout=SLOW)

# The full page would unload cells that are out of sight, and drop the completions of a provider
# that answers after a second; the rest keeps the network out of it.
_SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "completer-extension/manager": {"providerTimeout": SLOW},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}
_KERNEL = {
    "display_name": "Python 3",
    "language": "python",
    "metadata": {"debugger": True},
    # Seconds: else the first question of each kernel is typed where the page is late to draw it.
    "env": {"TESTS_DRAWN_LIMIT": "30"},
}
_VIEWPORT: ViewportSize = {"width": 1100, "height": 900}
_CHROMIUM_FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-smooth-scrolling",
)
# What no test needs of the server, and starts a language server for each notebook.
_NOT_SERVED = ("jupyter_lsp",)
# What no test needs of the page: to list the formats that it exports to, the server looks through
# all that is installed, at each load.
_NOT_SHOWN = tuple(f"@jupyterlab/notebook-extension:{n}" for n in ("export", "update-raw-mimetype"))
# Real-time collaboration: its parts of the server and of the page.
_SHARING = ("jupyter_server_ydoc", "jupyter_server_fileid")
_SHARED = ("@jupyter/collaboration-extension", "@jupyter/docprovider-extension")
# All that pages load of what is installed, since they load also what is disabled.
_LOADED = (
    "agent-magics",
    "anywidget",
    "jupyterlab_pygments",
    "@jupyter-widgets/jupyterlab-manager",
)
# Closes what is open, and what stands beside it, without a question about saving; but not while a
# kernel starts: JupyterLab would throw errors later, when that kernel is shut down.
CLOSE = """async () => {
  const {shell} = window.jupyterapp, open = [...shell.widgets('main')];
  await Promise.all(open.map(each => each.sessionContext?.ready));
  const closed = open.map(each => new Promise(done => each.disposed.connect(done)));
  for (const each of open) {
    if (each.context) each.context.model.dirty = false;
    each.close();
  }
  await Promise.all(closed);
  shell.collapseLeft(), shell.collapseRight();
}"""
# Opens a notebook as the file browser does.
OPEN = "path => window.jupyterapp.commands.execute('docmanager:open', {path}).then(() => null)"
# Takes the execution count of a code cell away, so that it is not taken for that of the next run.
_UNCOUNT = """number => {
  const cells = window.jupyterapp.shell.currentWidget.content.widgets;
  cells.filter(cell => cell.model.type === 'code')[number].model.executionCount = null;
}"""
# The reply to an empty request, which may be that it was not run: an earlier one failed.
_PASSED = """() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
  .requestExecute({code: '', silent: true}).done.then(() => null)"""
# Which extensions the page was loaded without.
_LACKED = """() => JSON.parse(document.getElementById('jupyter-config-data').textContent)
  .disabledExtensions"""
# Whether a test has put functions of its own in the place of the browser's, such as its clock.
_PATCHED = """() => [performance, navigator, history, screen]
  .some(each => Object.getOwnPropertyNames(each).length)"""
_EXTENSIONS = Path(sys.prefix) / "share" / "jupyter" / "labextensions"
EXTENSION = _EXTENSIONS / "agent-magics"


def launch(playwright: Playwright, profile: Path) -> BrowserContext:
    """Start the system's Chromium, since Playwright's own would have to be downloaded.

    Args:
        profile: a folder that the browser keeps for the next one: JupyterLab is ten megabytes of
            script, which it compiles once.
    """
    require("chromium")
    found = next(filter(None, map(shutil.which, CHROMIUM)))
    context = playwright.chromium.launch_persistent_context(
        profile, executable_path=found, args=list(_CHROMIUM_FLAGS), viewport=_VIEWPORT
    )
    context.set_default_timeout(SLOW)
    # Pages of http://server:8888 lack it, and are what most servers of a team have.
    context.add_init_script("delete Crypto.prototype.randomUUID")
    return context


class Lab:
    """A JupyterLab server with a folder of notebooks; used as a context manager.

    Args:
        home: a folder for all that it writes.
        front: "lab", or "notebook" for Notebook 7.
        shared: with real-time collaboration.
    """

    def __init__(self, home: Path, *, front: str = "lab", shared: bool = False) -> None:
        assert EXTENSION.is_dir(), "the JupyterLab extension is not built: run `make labextension`"
        self.folder = home / "notebooks"
        self.folder.mkdir(parents=True)
        self._home = home
        self._port = free_port()
        # Where its kernels have their sockets, whose paths have at most 107 bytes.
        self._runtime = tempfile.TemporaryDirectory(prefix="agent-magics-lab-")
        self._front = front
        self._shared = shared
        for name, values in _SETTINGS.items():
            file = home / "settings" / "@jupyterlab" / f"{name}.jupyterlab-settings"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(values), encoding="utf-8")
        for name in (*_LOADED, *(_SHARED if shared else ())):
            link = home / "extensions" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(_EXTENSIONS / name)
        spec = home / "jupyter/kernels/python3/kernel.json"
        spec.parent.mkdir(parents=True)
        spec.write_text(json.dumps({**_KERNEL, "argv": forked.command()}), encoding="utf-8")

    @property
    def url(self) -> str:
        """The address of the server."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "Lab":
        own = {"JUPYTERLAB_SETTINGS_DIR": "settings", "JUPYTER_CONFIG_DIR": "config"}
        own |= {
            "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
            "JUPYTER_RUNTIME_DIR": self._runtime.name,
        }
        own |= {"IPYTHONDIR": "ipython", "JUPYTER_PATH": "jupyter"}
        apps = {"lab": ("jupyterlab", "LabApp"), "notebook": ("notebook", "JupyterNotebookApp")}
        module, app = apps[self._front]
        off = (*_NOT_SERVED, *(() if self._shared else _SHARING))
        self._log = (self._home / "lab.log").open("wb")
        self._server = subprocess.Popen(
            [
                *(sys.executable, "-m", module, "--no-browser", "--allow-root"),
                *("--ip=127.0.0.1", f"--port={self._port}", "--ServerApp.port_retries=0"),
                *(f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={self.folder}"),
                # A port that it finds free for a kernel may be another process's a moment later.
                "--KernelManager.transport=ipc",
                *("--LabApp.news_url=None", "--LabApp.extension_manager=readonly"),
                f"--{app}.expose_app_in_browser=True",
                f"--LabServerApp.labextensions_path={self._home / 'extensions'}",
                f"--ServerApp.jpserver_extensions={dict.fromkeys(off, False)}",
            ],
            env={**os.environ, **{name: str(self._home / sub) for name, sub in own.items()}},
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=forks.bound(),
        )
        deadline = time.monotonic() + LIMIT
        while not self._answers():
            assert self._server.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(URLError, AssertionError):
            self.shut_down_kernels()
        self._server.terminate()
        try:
            self._server.wait(_ENDING)
        except subprocess.TimeoutExpired:  # as with a shared document that is open in a page
            self._server.kill()
            self._server.wait()
        finally:
            self._log.close()
            self._runtime.cleanup()

    @property
    def log(self) -> str:
        """The output of the server and the kernels."""
        return (self._home / "lab.log").read_text(encoding="utf-8", errors="replace")

    def _answers(self) -> bool:
        try:
            self.ask("GET", "/api")
        except URLError:
            return False
        return True

    def ask(self, method: str, path: str) -> Any:
        """Send a request to the server's own API."""
        headers = {"Authorization": f"token {TOKEN}"}
        request = urllib.request.Request(self.url + path, method=method, headers=headers)
        with urllib.request.urlopen(request, timeout=LIMIT) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def disable(self, extension: str) -> None:
        """Disable an extension for the pages opened from now on; "" enables all again."""
        file = self._home / "config" / "labconfig" / "page_config.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        # To see whether JupyterLab must be built anew, its server runs Node for each page.
        disabled = dict.fromkeys((*_NOT_SHOWN, *filter(None, [extension])), True)
        config = {"disabledExtensions": disabled, "buildCheck": False}
        file.write_text(json.dumps(config), encoding="utf-8")

    def address(self, name: str) -> str:
        """Return where a notebook is opened."""
        place = {"lab": "doc/tree", "notebook": "notebooks"}[self._front]
        return f"{self.url}/{place}/{name}?token={TOKEN}"

    def settings_file(self, plugin: str) -> Path:
        """Return the file of what the person has set of a plugin."""
        package, _, name = plugin.partition("/")
        return self._home / "settings" / package / f"{name}.jupyterlab-settings"

    def write(self, name: str, cells: Sequence[str | nbformat.NotebookNode]) -> None:
        """Write a notebook of these code cells."""
        made = [nbformat.v4.new_code_cell(c) if isinstance(c, str) else c for c in cells]
        kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3"}}
        notebook = nbformat.v4.new_notebook(cells=made, metadata=kernel)
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        nbformat.write(notebook, path)

    def read(self, name: str) -> nbformat.NotebookNode:
        """Read a notebook as it was saved; its server, which writes it in place, may be at it."""
        deadline = time.monotonic() + LIMIT
        while True:
            try:
                return nbformat.read(self.folder / name, as_version=4)
            except NotJSONError:
                assert time.monotonic() < deadline, f"{name} is not whole"
                time.sleep(0.02)

    def shut_down_kernels(self) -> None:
        """Shut down every kernel."""
        for session in self.ask("GET", "/api/sessions"):
            self.ask("DELETE", f"/api/sessions/{session['id']}")


class NotebookPage:
    """One notebook, open in a page of its own.

    Attributes:
        frames: the messages of the kernel on the page's web sockets.
        errors: uncaught exceptions in the page.
        closed: whether it is open no more, and another may have the page.

    Args:
        without: an extension that this front end does not have.
        spare: pages that others have left, of which this takes one, and to which it adds its own:
            in a new page JupyterLab takes twice as much to load.
    """

    def __init__(
        self,
        browser: BrowserContext,
        lab: Lab,
        name: str,
        *,
        without: str = "",
        spare: list[Page] | None = None,
    ) -> None:
        self.lab = lab
        self.name = name
        self.frames: list[bytes] = []
        self.errors: list[str] = []
        self.closed = False
        self._spare = [] if spare is None else spare
        self.page: Page = self._spare.pop() if self._spare else browser.new_page()
        self.page.on("pageerror", self._keep_error)
        self.page.on("websocket", self._listen)
        self._without = without
        self._signs = itertools.count(1)

    def make_gate(self, name: str = "gate") -> Gate:
        """Make a gate in the notebook's folder, which is where its kernel works."""
        return Gate((self.lab.folder / self.name).with_name(name))

    def open(self, *, kernel: bool = True, anew: bool = False) -> "NotebookPage":
        """Open the notebook; with `kernel`, wait until cells can be run.

        Args:
            kernel: whether to wait for it.
            anew: whether to load JupyterLab also where the page that another has left shows it.
        """
        if not anew and self._shows_lab and self._lacks == self._without:
            self.page.evaluate(OPEN, self.name)
            self._wait_for_cells(0, kernel=kernel)
            return self
        self.lab.disable(self._without)
        self.go(f"{self.lab.address(self.name)}&reset", kernel=kernel)
        return self

    def go(self, address: str, *, kernel: bool) -> None:
        """Load the page of a notebook; with `kernel`, wait until cells can be run."""
        before = len(self.frames)
        self.page.goto(address)
        self._wait_for_cells(before, kernel=kernel)

    def _wait_for_cells(self, before: int, *, kernel: bool) -> None:
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")
        if kernel:
            self.wait_for_kernel(before)

    def wait_for_kernel(self, before: int = 0) -> None:
        """Wait until cells can be run: one that is run earlier is silently dropped.

        Args:
            before: how many messages are those of an earlier connection.
        """
        told = b"kernel_info_reply"
        self.wait_until(lambda: any(told in frame for frame in self.frames[before:]))
        self.page.wait_for_selector(".jp-Notebook-ExecutionIndicator[data-status=idle]")

    def wait_for_link(self) -> None:
        """Wait until the extension speaks with the kernel, which it does soon after `%load_ext`."""
        self.page.wait_for_selector(".jp-NotebookPanel.am-linked")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that Playwright cannot see, processing the page's events."""
        deadline = time.monotonic() + LIMIT
        while not condition():
            assert time.monotonic() < deadline, "it did not come about"
            self.page.wait_for_timeout(20)

    def reload(self) -> None:
        """Reload the page, as the browser's button does, with no wait for the kernel."""
        self.page.goto(self.lab.address(self.name))
        self.page.wait_for_selector(".jp-Notebook .jp-Cell")

    def describe(self) -> str:
        """Return what the page shows, and what it and the server were told last."""
        try:
            shown = self.page.locator("body").inner_text(timeout=5_000)
        except Error as error:
            shown = f"it cannot be looked at: {error}"
        told = "\n".join(frame[-_TOLD:].decode(errors="replace") for frame in self.frames[-10:])
        parts = {"shows": shown, "was told last": told, "server said last": self.lab.log[-4_000:]}
        return "\n".join(f"-- {name}\n{text}" for name, text in parts.items())

    def shoot(self, name: str) -> None:
        """Leave a picture of the page in the folder that AGENT_MAGICS_PICTURES names, if any."""
        if folder := os.environ.get("AGENT_MAGICS_PICTURES"):
            self.page.screenshot(path=Path(folder) / f"{name}.png")

    @property
    def _shows_lab(self) -> bool:
        return self.page.url.startswith(self.lab.url)

    @property
    def _lacks(self) -> str:
        """The extension without which the page was loaded."""
        return " ".join(each for each in self.page.evaluate(_LACKED) if each not in _NOT_SHOWN)

    def close(self) -> None:
        """Close all that the page shows, JupyterLab too; the kernel goes on."""
        self._give_up()
        self.page.goto("about:blank")

    def leave(self) -> None:
        """Close the notebook; leave JupyterLab open for the next one, if it is as it was loaded."""
        if self.closed:
            return
        if self.errors or not self._shows_lab or self.page.evaluate(_PATCHED):
            self.close()
        else:
            self._give_up()
            self.page.evaluate(CLOSE)

    def _give_up(self) -> None:
        self.closed = True
        self.page.remove_listener("pageerror", self._keep_error)
        self.page.remove_listener("websocket", self._listen)
        self.page.set_viewport_size(_VIEWPORT)
        self.page.emulate_media(reduced_motion="no-preference", forced_colors="none")
        self._spare.append(self.page)

    def _keep_error(self, error: Error) -> None:
        # JupyterLab itself gives up what a kernel that restarts has not answered, and what it was
        # saving when its notebook was closed; and a page without the extension has errors of its
        # own alone.
        own = (
            "message before replies were done" in str(error)
            or str(error) == "Disposed"
            or self._without == "agent-magics"
        )
        if not own:
            self.errors.append(str(error))

    def _listen(self, socket: WebSocket) -> None:
        def keep(frame: bytes | str) -> None:
            self.frames.append(frame if isinstance(frame, bytes) else frame.encode())

        socket.on("framereceived", keep)

    # -- cells -------------------------------------------------------------------------------------

    def cell(self, number: int) -> Locator:
        """Return one code cell."""
        return self.page.locator(".jp-CodeCell").nth(number)

    def start(self, number: int) -> Locator:
        """Run a cell, without waiting for its end."""
        cell = self.cell(number)
        self.page.evaluate(_UNCOUNT, number)
        cell.locator(".jp-InputArea-editor").click()
        self.page.keyboard.press("Shift+Enter")
        return cell

    def run(self, number: int) -> Locator:
        """Run a cell to its end."""
        cell = self.start(number)
        self.wait_for_end(number)
        return cell

    def run_all(self) -> None:
        """Choose Run > Run All Cells."""
        self.page.get_by_role("menuitem", name="Run", exact=True).click()
        self.page.locator(".lm-Menu-item[data-command='runmenu:run-all']").click()

    def wait_for_end(self, number: int) -> None:
        """Wait until a cell has its execution count."""
        prompt = self.cell(number).locator(".jp-InputPrompt")
        expect(prompt).to_have_text(re.compile(r"\[\d+\]:"))

    def wait_until_passed(self) -> None:
        """Wait until the kernel has done all that it was sent, also for cells that are gone."""
        self.page.evaluate(_PASSED)

    def outputs(self, number: int) -> Locator:
        """Return the outputs of a cell."""
        return self.cell(number).locator(".jp-OutputArea-output")

    def area(self, number: int) -> Locator:
        """Return what holds all outputs of a cell."""
        return self.cell(number).locator(".jp-Cell-outputArea")

    def wait_for_text(self, number: int, *texts: str) -> None:
        """Wait until the outputs of a cell show these texts; many are drawn after its end."""
        for text in texts:
            expect(self.area(number)).to_contain_text(text, use_inner_text=True)

    def cards(self, number: int) -> Locator:
        """Return the calls in a cell, drawn by the extension."""
        return self.cell(number).locator("details.am-card")

    # -- questions ---------------------------------------------------------------------------------

    @property
    def questions(self) -> Locator:
        """The questions on the page."""
        return self.page.locator(".agm-question")

    def wait_for_question(self, number: int = 0) -> Locator:
        """Wait until question `number` can be answered."""
        question = self.questions.nth(number)
        expect(question.locator(".agm-button:enabled").first).to_be_visible()
        return question

    def answer(self, button: str, feedback: str = "", number: int = 0) -> None:
        """Click a button of a question."""
        question = self.wait_for_question(number)
        if feedback:
            question.locator(".agm-feedback").fill(feedback)
        question.get_by_role("button", name=button, exact=True).click()

    # -- the rest ----------------------------------------------------------------------------------

    def interrupt(self) -> None:
        """Click the stop button of the toolbar."""
        self.page.locator("[data-command='notebook:interrupt-kernel']").first.click()

    def save(self) -> nbformat.NotebookNode:
        """Press Ctrl+S and read the file."""
        place = f"/api/contents/{self.name}"
        with self.page.expect_response(
            lambda response: response.request.method == "PUT" and place in response.url
        ):
            self.page.keyboard.press("Control+s")
        return self.lab.read(self.name)

    def sources(self) -> list[str]:
        """Return the text of all cells in the open document."""
        model = "window.jupyterapp.shell.currentWidget.content.model.sharedModel"
        return self.page.evaluate(f"() => {model}.cells.map(cell => cell.source)")

    def value(self, expression: str) -> str:
        """Return the value of an expression in the kernel, using the last cell, which is free."""
        cell = self.page.locator(".jp-CodeCell").last
        cell.locator(".jp-InputArea-editor").click()
        self.page.keyboard.press("Control+a")
        # What stands there until the cell runs is older; what is printed may be drawn in pieces.
        sign, end = f"value {next(self._signs)}:", ":end of it"
        self.page.keyboard.insert_text(f"print({sign!r}, {expression}, {end!r})")
        self.page.keyboard.press("Control+Enter")
        output = cell.locator(".jp-OutputArea-output", has_text=sign).filter(has_text=end)
        return output.inner_text().strip().removeprefix(sign).removesuffix(end).strip()


def items_of(cell: nbformat.NotebookNode) -> list[dict[str, Any]]:
    """Return the agent's items of a saved cell, with blocks and groups opened."""
    data = (output.get("data", {}) for output in cell.outputs)
    return unfolded(each[ITEM] for each in data if ITEM in each)


def mimes_of(notebook: nbformat.NotebookNode) -> list[set[str]]:
    """Return the MIME types of each saved output of a notebook."""
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    return [set(output.get("data", ())) for output in outputs]
