"""The symbol tools with TypeScript's language server."""

import json
import subprocess

import pytest

from agent_magics import Agent, ScriptedModel
from agent_magics.tools import STRUCTURE
from tests.support.language_servers.typescript import NODE, TABLE
from tests.support.sandbox.launcher_client import wait_until

pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("server servers/typescript")]

FILES = {
    "tsconfig.json": json.dumps(
        {
            "compilerOptions": {
                "module": "nodenext",
                "target": "es2022",
                "strict": True,
                "allowImportingTsExtensions": True,
                "noEmit": True,
            }
        }
    ),
    "package.json": '{"type": "module"}',
    "shapes.ts": """\
export interface Shape {
  area(): number;
}

export class Square implements Shape {
  side: number;
  constructor(side: number) {
    this.side = side;
  }
  area(): number {
    return this.side ** 2;
  }
}

export const unit = (): Square => new Square(1);
""",
    "use.ts": """\
import { Square, unit } from "./shapes.ts";

const both: Square[] = [unit(), new Square(2)];
console.log("é🐍", both.map((each) => each.area()).join());
""",
}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    folder = tmp_path_factory.mktemp("work")
    for name, text in FILES.items():
        (folder / name).write_text(text, "utf-8")
    return folder


@pytest.fixture(scope="module")
def told(work):
    options = {"cwd": work, "approval": "never", "sandbox": "danger-full-access"}
    table = {"typescript": TABLE}
    with Agent(ScriptedModel([]), list(STRUCTURE), language_servers=table, **options) as agent:

        def told(tool, **arguments):
            output = agent.call_sync(tool, arguments)
            assert output.success, output.text
            return output.text

        yield told


def test_what_is_where(told):
    listed = told("symbols", path="shapes.ts")
    assert "5-13 class Square" in listed and "10-12 method area" in listed
    assert "shapes.ts" in told("symbols", query="unit")


def test_who_uses_and_calls_what(told):
    uses = told("references", name_path="Square").split("\n")
    assert uses[0] == "shapes.ts:5-13 Square is used in 5 places of 2 files:"
    assert 'use.ts:1: import { Square, unit } from "./shapes.ts";' in uses
    calls = told("call_graph", name_path="unit")
    assert "use.ts" in calls and "called in line 3" in calls
    place = told("definition", name="area", path="use.ts", line=4)
    assert "shapes.ts:10: area(): number {" in place and "Square.area(): number" in place


def test_a_rename_leaves_the_program_as_it_was(told, work):
    before = {path: path.read_bytes() for path in work.iterdir()}
    printed = run(work)
    assert printed == "é🐍 1,4\n"
    for name, new in (("Square", "Quad"), ("area", "größe"), ("unit", "one")):
        arguments = {"path": "shapes.ts", "action": "rename"}
        found = f"Square/{name}" if name == "area" else name
        told("edit_symbol", name_path=found, text=new, **arguments)
        assert new in (work / "use.ts").read_text("utf-8") and run(work) == printed
        back = f"Square/{new}" if name == "area" else new
        told("edit_symbol", name_path=back, text=name, **arguments)
    assert {path: path.read_bytes() for path in work.iterdir()} == before


def run(work):
    command = [str(NODE), "use.ts"]
    return subprocess.run(command, cwd=work, check=True, capture_output=True, text=True).stdout


def test_errors_are_reported_and_new_ones_named(told, work):
    def errors(path):
        return told("diagnostics", paths=[path])

    assert errors("use.ts").startswith("No errors")
    text = "export const unit = (): Square => 'one';"
    told("edit_symbol", name_path="unit", path="shapes.ts", action="replace", text=text)
    # It pushes reports without saying of which text, so those of an earlier one may count once.
    wait_until(lambda: "not assignable to type 'Square'" in errors("shapes.ts"))
    (work / "shapes.ts").write_text(FILES["shapes.ts"], "utf-8")
    wait_until(lambda: errors("shapes.ts").startswith("No errors"))
