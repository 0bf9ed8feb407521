"""The 30 tasks: prompts, and after each the steps of a scripted model.

A step is what is to be done, in no client's words; `subjects.py` turns it into a call of a client's
tool. A list of steps is one answer with several calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Step:
    """One step: `kind` is the method of a dialect in `subjects.py`, `given` its arguments."""

    kind: str
    given: tuple


@dataclass(frozen=True)
class Prompt:
    """A prompt of the person, and the model's answers: steps, or lists of them, before its text."""

    text: str
    answers: Sequence[Step | list[Step]]


@dataclass(frozen=True)
class Task:
    """A conversation with a name."""

    name: str
    prompts: tuple[Prompt, ...]


def read(path: str, first: int = 0, last: int = 0) -> Step:
    return Step("read", (path, first, last))


def search(pattern: str, path: str = ".") -> Step:
    return Step("search", (pattern, path))


def listing(path: str) -> Step:
    return Step("listing", (path,))


def find(pattern: str) -> Step:
    return Step("find", (pattern,))


def run(command: str) -> Step:
    return Step("run", (command,))


def edit(path: str, *changes: tuple[str, str]) -> Step:
    return Step("edit", (path, changes))


def write(path: str, text: str) -> Step:
    return Step("write", (path, text))


TESTS = run("python3 -m unittest")
ORDERS, PRICES, STOCK = "shop/orders.py", "shop/prices.py", "shop/stock.py"
OLD = '    """Return the weight of all orders with at least `least`, times the rate."""'
NEW = OLD.replace("Return the weight", "Return the shipped weight")
NAME = "def amount_of_orders(orders, least=0, rate=1.0):"
RENAMED = NAME.replace("amount", "value")
# Another size: Python takes bytecode of the same second and size for that of the present text.
BROKEN = (NAME, NAME.replace("rate=1.0", "rate=1.25"))
MENDED = BROKEN[::-1]
ADDED = ('            total += order["weight"] * rate', '            total -= order["weight"]')


def docstring(measure: str, noun: str) -> tuple[str, str]:
    """Return a line of one docstring, and what is to stand in its place."""
    old = f'    """Return the {measure} of all {noun}s with at least `least`, times the rate."""'
    return old, old.replace("times the rate", "times `rate`")


BARS = """    print(f"{country} {month} {total:10.2f} {'#' * int(total / 200)}")"""
PLAIN = """    print(f"{country} {month} {total:10.2f}")"""
SUMS = f"""import csv
from collections import defaultdict

totals = defaultdict(float)
with open("data/orders.csv") as file:
    for row in csv.DictReader(file):
        totals[row["country"], row["day"][:7]] += float(row["amount"])
for (country, month), total in sorted(totals.items()):
{BARS}
"""
MODULE = '''"""Returns of goods."""


def refunds(returns, share=0.9):
    """Return what is paid back, by order."""
    return {each["order"]: round(each["amount"] * share, 2) for each in returns}
'''
ROWS = "python3 -c \"import csv; print(list(csv.DictReader(open('data/orders.csv'))))\""
ITEMS = "python3 -c \"import json; print(json.load(open('data/stock.json')))\""
DESCRIBE = (
    "python3 -c \"import csv, statistics as s; a = [float(r['amount']) for r in "
    "csv.DictReader(open('data/orders.csv'))]; print(len(a), s.mean(a), s.median(a), max(a))\""
)
NOUNS = ("order", "price", "item", "customer", "row")
MODULES = [ORDERS, PRICES, STOCK, "shop/customers.py", "shop/report.py"]


def task(name: str, *prompts: str | Step | list[Step]) -> Task:
    """Return a task of prompts, each followed by its answers."""
    made: list[Prompt] = []
    for each in prompts:
        if isinstance(each, str):
            made.append(Prompt(each, []))
        else:
            made[-1].answers.append(each)
    return Task(name, tuple(made))


TASKS = (
    task("explain a module", "What does orders.py do?", read(ORDERS)),
    task(
        "explain the package",
        "Explain this package to me.",
        [listing("."), listing("shop"), read("README.md")],
        [read(path) for path in MODULES],
    ),
    task(
        "find a use",
        "Where is amount_of_orders used?",
        search("amount_of_orders"),
        read("tests/test_orders.py", 1, 20),
        read(ORDERS, 1, 12),
    ),
    task(
        "mend a bug",
        "The tests fail since I changed the rate. Find out why.",
        edit(ORDERS, BROKEN),
        TESTS,
        read(ORDERS),
        edit(ORDERS, MENDED),
        TESTS,
    ),
    task(
        "rename a function",
        "Rename amount_of_orders to value_of_orders.",
        search("amount_of_orders"),
        edit(ORDERS, (NAME, RENAMED)),
        read("tests/test_orders.py", 1, 12),
        edit(
            "tests/test_orders.py",
            (
                "        self.assertEqual(orders.amount_of_orders(rows), 5.0)",
                "        self.assertEqual(orders.value_of_orders(rows), 5.0)",
            ),
        ),
        search("amount_of_orders"),
        TESTS,
    ),
    task(
        "add a function with its test",
        "Add the number of orders, with a test.",
        [read(ORDERS), read("tests/test_orders.py")],
        edit(ORDERS, (NAME, f"def count(orders):\n    return len(orders)\n\n\n{NAME}")),
        edit(
            "tests/test_orders.py",
            (
                "    def test_amount(self):",
                "    def test_count(self):\n        self.assertEqual(orders.count([1]), 1)\n\n"
                "    def test_amount(self):",
            ),
        ),
        TESTS,
    ),
    task(
        "add a module",
        "I need a module for returns.",
        listing("shop"),
        read(PRICES, 1, 14),
        write("shop/returns.py", MODULE),
        run(
            'python3 -c "from shop import returns; '
            "print(returns.refunds([{'order': 1, 'amount': 5}]))\""
        ),
    ),
    task(
        "several places of a file",
        "Say `rate` in all docstrings of stock.py.",
        read(STOCK),
        edit(STOCK, *(docstring(m, "item") for m in ("amount", "weight", "age", "margin"))),
        TESTS,
    ),
    task(
        "read again after a change",
        "Make the docstring of weight clearer.",
        read(ORDERS),
        edit(ORDERS, (OLD, NEW)),
        read(ORDERS),
        TESTS,
    ),
    task(
        "read again, unchanged",
        "Do the tests of orders cover all of it?",
        read(ORDERS),
        search("def test_", "tests"),
        read("tests/test_orders.py"),
        read(ORDERS),
        read("tests/test_orders.py"),
    ),
    task("a noisy build", "Build it.", run("python3 scripts/build.py")),
    task(
        "train a model",
        "Train it, and tell me the best epoch.",
        read("scripts/train.py"),
        run("python3 scripts/train.py"),
    ),
    task(
        "errors of a log",
        "What went wrong last night?",
        search("ERROR", "logs"),
        run("tail -n 50 logs/service.log"),
    ),
    task("a whole log", "Look at the log.", run("cat logs/service.log")),
    task("a look at a table", "What is in it?", read("data/orders.csv", 1, 20), run(DESCRIBE)),
    task("a whole table", "Look at the orders.", read("data/orders.csv"), run(DESCRIBE)),
    task("2,000 rows as a value", "Load the orders.", run(ROWS), run(DESCRIBE)),
    task("a nested value", "What do we have in stock?", run(ITEMS)),
    task("a file of one long line", "What is in stock.json?", read("data/stock.json")),
    task(
        "sums by month",
        "Sum the orders by country and month.",
        read("data/orders.csv", 1, 5),
        write("scripts/sums.py", SUMS),
        run("python3 scripts/sums.py"),
        edit("scripts/sums.py", (BARS, PLAIN)),
        run("python3 scripts/sums.py"),
    ),
    task(
        "history",
        "What changed lately?",
        [run("git status --short"), run("git log --stat -n 5")],
        run("git show --stat --format=fuller HEAD"),
    ),
    task(
        "change and review",
        "Clarify the docstring, and show me the difference.",
        read(ORDERS, 10, 22),
        edit(ORDERS, (OLD, NEW)),
        run("git diff"),
        TESTS,
    ),
    task(
        "many failing tests",
        "Try a rate of 1.25 as default everywhere in orders.",
        read(ORDERS),
        edit(ORDERS, BROKEN, ADDED),
        run("python3 -m unittest -v"),
        edit(ORDERS, MENDED, ADDED[::-1]),
        run("python3 -m unittest -v"),
    ),
    task(
        "many small commands",
        "Is this machine ready for the release?",
        *map(
            run,
            (
                "python3 --version",
                "git --version",
                "uname -s",
                "git branch",
                "git status --short",
                "wc -l shop/*.py",
                "head -n 3 pyproject.toml",
                "ls -a",
                "df -h . | tail -n 1",
                "true",
            ),
        ),
    ),
    task(
        "find files",
        "Which files are about stock?",
        find("**/*stock*"),
        search("stock"),
        listing("data"),
    ),
    task(
        "review",
        "Review the code of the shop.",
        [listing("shop"), listing("tests")],
        [read(path) for path in MODULES],
        [read("tests/test_orders.py"), read("tests/test_stock.py")],
    ),
    task(
        "ask, change, test",
        "What does orders.py do?",
        read(ORDERS),
        "Make the docstring of weight clearer.",
        edit(ORDERS, (OLD, NEW)),
        "Run the tests.",
        TESTS,
    ),
    task(
        "a long conversation",
        "What is here?",
        [listing("."), read("README.md")],
        "Explain orders.py.",
        read(ORDERS),
        "And prices.py. How do they differ?",
        [read(PRICES), read(ORDERS)],
        "Say `rate` in the docstring of the price's amount.",
        edit(PRICES, docstring("amount", "price")),
        TESTS,
        "Look at it once more.",
        [read(PRICES), run("git diff --stat")],
    ),
    task(
        "the same change in five modules",
        "Say `rate` in the docstring of each amount.",
        [read(path) for path in MODULES],
        *(edit(path, docstring("amount", noun)) for path, noun in zip(MODULES, NOUNS, strict=True)),
        TESTS,
        run("git diff --stat"),
    ),
    task("a question without tools", "What is a left join?", "And an anti join?"),
)
