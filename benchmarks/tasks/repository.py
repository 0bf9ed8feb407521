"""Writes the small repository in which every task begins: the same bytes each time."""

import json
import os
import subprocess
from functools import partial
from pathlib import Path

# A module of the package and what its functions are about.
MODULES = {
    "orders": "order",
    "prices": "price",
    "stock": "item",
    "customers": "customer",
    "report": "row",
}
MEASURES = ("amount", "weight", "age", "margin", "volume", "discount", "delay", "rating")

FUNCTION = '''

def {measure}_of_{noun}s({noun}s, least=0, rate={rate}):
    """Return the {measure} of all {noun}s with at least `least`, times the rate."""
    total = 0.0
    for {noun} in {noun}s:
        if {noun}["{measure}"] >= least:
            total += {noun}["{measure}"] * rate
    return round(total, 2)
'''
HEAD = """import unittest

from shop import {module}


class {name}(unittest.TestCase):"""
TEST = """
    def test_{measure}(self):
        rows = [{{"{measure}": 2.0}}, {{"{measure}": 3.0}}]
        self.assertEqual({module}.{measure}_of_{noun}s(rows), {expected})
"""
BUILD = """import sys

for step in range(1, 401):
    done = f"\\r\\x1b[32m[{step:3d}/400]\\x1b[0m"
    sys.stdout.write(f"{done} compiling unit_{step:03d}.c ({step / 4:.0f} %)")
    sys.stdout.flush()
    if step % 40 == 0:
        print(f"\\nwarning: unit_{step:03d}.c: unused variable 'x' [-Wunused-variable]")
print("\\nbuilt 400 units")
"""
TRAIN = """import sys

for epoch in range(1, 13):
    for step in range(101):
        bar, time = "#" * (step // 5), step // 20
        sys.stderr.write(f"\\repoch {epoch:2d}: {step:3d}%|{bar:20}| {step}/100 [00:0{time}]")
    sys.stderr.write("\\n")
    for _ in range(25):
        print("UserWarning: Mean of empty slice; the learning rate is not set, the default is used")
    print(f"epoch {epoch} loss={1 / epoch:.4f} accuracy={1 - 1 / (epoch + 2):.4f}")
"""
ORDERS = "id,day,customer,amount,weight,country\n"
AGENTS = """# For agents

- Tests: `python3 -m unittest`. They take a second; run them after every change.
- Every function has a docstring of one line. No new dependencies.
- Data in `data/` are not to be changed by hand.
"""


def write_repository(folder: Path) -> None:
    """Write the repository into the new folder `folder`, with one commit."""
    for path, text in _files().items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    when = "2026-01-01T00:00:00Z"
    env = {**os.environ, "GIT_AUTHOR_DATE": when, "GIT_COMMITTER_DATE": when}
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    for words in (("init", "-q", "-b", "main"), ("add", "."), ("commit", "-qm", "The shop")):
        subprocess.run(["git", *who, *words], cwd=folder, env=env, check=True)


def state_of(folder: Path) -> str:
    """Return git's name for the present files: equal for equal files."""
    run = partial(subprocess.run, cwd=folder, check=True, capture_output=True, text=True)
    run(["git", "add", "-A"])
    return run(["git", "write-tree"]).stdout


def _files() -> dict[str, str]:
    """Return the text of each file by its path."""
    files = {
        ".gitignore": "__pycache__/\n",
        "AGENTS.md": AGENTS,
        "README.md": "# shop\n\n"
        + "".join(f"- `shop.{m}`: figures of each {n}.\n" for m, n in MODULES.items()),
        "pyproject.toml": '[project]\nname = "shop"\nversion = "1.2.0"\n',
        "shop/__init__.py": '"""Figures of a shop."""\n',
        "tests/__init__.py": "",
        "scripts/build.py": BUILD,
        "scripts/train.py": TRAIN,
        "data/orders.csv": ORDERS + "".join(map(_order, range(2000))),
        "data/stock.json": json.dumps(list(map(_item, range(300)))),
        "logs/service.log": "".join(map(_logged, range(3000))),
    }
    for module, noun in MODULES.items():
        made = [
            {"measure": measure, "noun": noun, "module": module, "rate": 1 + number / 4}
            for number, measure in enumerate(MEASURES)
        ]
        code = "".join(FUNCTION.format(**each) for each in made)
        tests = "".join(TEST.format(**each, expected=5 * each["rate"]) for each in made)
        files[f"shop/{module}.py"] = f'"""Figures of each {noun}."""\n{code}'
        files[f"tests/test_{module}.py"] = HEAD.format(module=module, name=module.title()) + tests
    return files


def _order(number: int) -> str:
    day = f"2026-{number % 12 + 1:02d}-{number % 28 + 1:02d}"
    country = ("DE", "FR", "IT", "ES")[number % 4]
    figures = f"{number * 37 % 9973 / 100},{number * 13 % 500}"
    return f"{number},{day},c{number * 7 % 211},{figures},{country}\n"


def _item(number: int) -> dict[str, object]:
    left = number * 31 % 97
    return {"id": number, "name": f"item {number}", "left": left, "tags": ["a", "b"]}


def _logged(second: int) -> str:
    failed = f"ERROR payment refused order={second}"
    said = "INFO  request served in 12 ms" if second % 151 else failed
    return f"2026-01-01 00:{second // 60:02d}:{second % 60:02d} {said}\n"
