"""One JupyterLab and one page of it for all files, and for each test a notebook and a kernel."""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

from tests.support.pages.accessibility import LIGHT, LOOKS
from tests.support.pages.lab import Lab, NotebookPage, launch


@pytest.fixture(scope="package")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="package")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserContext]:
    """Return a browser; not for the session, since Playwright keeps a loop on the main thread."""
    with sync_playwright() as playwright:
        context = launch(playwright, tmp_path_factory.mktemp("profile"))
        yield context
        context.close()


Open = Callable[..., NotebookPage]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each test here minutes: JupyterLab opens in ten seconds on a busy machine, or more."""
    for item in items:
        here = item.path.is_relative_to(Path(__file__).parent)
        if here and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(300))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Function, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    """Say what the pages of a test showed when it failed."""
    report = yield
    if call.when == "call" and report.failed:
        for page in item.funcargs.get("pages", ()):
            if not page.closed:
                report.sections.append((page.name, page.describe()))
    return report


@pytest.fixture(scope="package")
def spare() -> list[Page]:
    """Return the page that the last test has left, if it left one."""
    return []


@pytest.fixture
def pages(lab: Lab, spare: list[Page]) -> Iterator[list[NotebookPage]]:
    """Return the pages of a test, which end with it and must be without errors.

    A picture of each is left in the folder that AGENT_MAGICS_PICTURES names.
    """
    pages: list[NotebookPage] = []
    yield pages
    folder = os.environ.get("AGENT_MAGICS_PICTURES")
    for page in pages:
        if folder and not page.closed:
            page.page.screenshot(
                path=Path(folder) / page.name.replace(".ipynb", ".png").replace("/", "_")
            )
        page.leave()
    for other in spare[1:]:
        other.close()
    del spare[1:]
    lab.shut_down_kernels()
    assert [error for page in pages for error in page.errors] == []


@pytest.fixture
def notebook(
    lab: Lab,
    browser: BrowserContext,
    pages: list[NotebookPage],
    spare: list[Page],
    request: pytest.FixtureRequest,
) -> Open:
    """Return a function that opens a new notebook of these cells, with a kernel."""

    def open_new(cells: Sequence[str], *, without: str = "", kernel: bool = True) -> NotebookPage:
        folder = re.sub(r"\W+", "_", request.node.name).strip("_")
        name = f"{folder}/{len(pages)}.ipynb"
        lab.write(name, cells)
        pages.append(NotebookPage(browser, lab, name, without=without, spare=spare))
        return pages[-1].open(kernel=kernel)

    return open_new


@pytest.fixture
def reopen(lab: Lab, browser: BrowserContext, pages: list[NotebookPage], spare: list[Page]) -> Open:
    """Return a function that opens a saved notebook, with no wait for a kernel.

    JupyterLab is loaded anew for it, unless `anew` is false and a page that was left shows it.
    """

    def open_saved(name: str, *, without: str = "", anew: bool = True) -> NotebookPage:
        pages.append(NotebookPage(browser, lab, name, without=without, spare=spare))
        return pages[-1].open(kernel=False, anew=anew)

    return open_saved


@pytest.fixture(
    params=[(LIGHT,), pytest.param(LOOKS, marks=pytest.mark.long)], ids=["light", "all looks"]
)
def looks(request: pytest.FixtureRequest) -> Sequence[str]:
    """Return the looks in which a page is examined; all of them where time is no matter."""
    return request.param
