"""Each guide shows a picture, and each picture is shown."""

import re
from pathlib import Path

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
