"""Each guide shows a picture, and each picture is shown; what they show as code is code."""

import ast
import re
from pathlib import Path

import pytest
from IPython.core.inputtransformer2 import TransformerManager

DOCS = Path(__file__).parents[2] / "docs"
WITHOUT = {"scale"}  # it is about clusters, of which a page shows nothing


def test_each_guide_shows_pictures_that_are_there() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    guides = re.search(r":caption: Guides\n\n(.*?)\n:::", index, re.DOTALL)
    assert guides
    shown = {}
    for page in DOCS.glob("*.md"):
        shown[page.stem] = re.findall(r"!\[[^\]]+\]\(images/(\S+?)\)", page.read_text("utf-8"))
    assert [name for name in guides[1].split() if not shown[name]] == sorted(WITHOUT)
    used = {image for images in shown.values() for image in images}
    assert used == {path.name for path in (DOCS / "images").iterdir()}


PAGES = [*sorted(DOCS.glob("*.md")), DOCS.parent / "README.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_each_cell_of_the_pages_is_one_that_a_notebook_accepts(page: Path) -> None:
    for cell in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.DOTALL | re.M):
        code = TransformerManager().transform_cell(cell)
        compile(code, cell, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
