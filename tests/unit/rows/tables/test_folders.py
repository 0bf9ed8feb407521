"""Parts of answers in object storage: `into="s3://..."`, against a server on loopback."""

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import fsspec
import pyarrow.parquet
import pytest
import s3fs
from moto.server import ThreadedMotoServer

from agent_magics import Agent
from agent_magics.protocol.errors import FatalError
from agent_magics.rows.tables.folders import PartFiles
from tests.support.models.row_server import RowServer
from tests.support.rows.echo import Echo
from tests.support.rows.watchers import wait_until
from tests.support.users import call_as_user

pytestmark = pytest.mark.soak


@pytest.fixture(scope="module")
def server():
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    yield "http://{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def storage(server, monkeypatch):
    """A bucket of the test's own, at `storage.out`."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "x")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "y")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    storage = s3fs.S3FileSystem()
    bucket = uuid.uuid4().hex
    storage.mkdir(bucket)
    storage.out = f"{bucket}/out"
    yield storage
    s3fs.S3FileSystem.clear_instance_cache()


def rows(number):
    return [f"row {n}" for n in range(number)]


def test_answers_land_in_object_storage(storage):
    with Agent(Echo()) as agent:
        done = agent.map_sync("{{text}}", iter(rows(10_500)), into=f"s3://{storage.out}/")
        names = [path.rpartition("/")[2] for path in storage.ls(storage.out)]
        assert names == ["part-00000.parquet", "part-00001.parquet"]
        assert list(done.frame["answer"]) == rows(10_500)
        table = pyarrow.parquet.read_table(storage.out, filesystem=storage)
        assert table["row"].to_pylist() == list(range(10_500))
        # Fewer rows than last time leave the old ones in a folder beside it.
        agent.map_sync("{{text}}", rows(10), into=f"s3://{storage.out}")
        assert parts(storage) == [f"{storage.out}/part-00000.parquet"]
        aside = storage.ls(f"{storage.out}.earlier", detail=False)
        names = [path.rpartition("/")[2].partition(".")[0] for path in aside]
        assert names == ["part-00000", "part-00001"]


MAP = """
import sys
from agent_magics import Agent

agent = Agent("gpt-4o-mini", base_url=sys.argv[1], api_key="sk-x")
rows = (f"row {number}" for number in range(10_250))
agent.map_sync("{{text}}", rows, ask_above=None, into=sys.argv[2], cache=sys.argv[3],
               concurrency=100)
"""


@pytest.mark.long
def test_a_killed_map_goes_on_in_object_storage(storage, tmp_path):
    with RowServer(holds=10_100) as server:
        into, cache = f"s3://{storage.out}", str(tmp_path / "answers.sqlite")
        command = [sys.executable, "-c", MAP, server.base_url, into, cache]
        own = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
        with subprocess.Popen(command, env=own) as killed:
            wait_until(lambda: killed.poll() is not None or parts(storage))
            killed.kill()
        assert killed.returncode == -signal.SIGKILL
        server.answer_more()
        subprocess.run(command, env=own, check=True)
        asked = server.prompts()
    assert len(parts(storage)) == 2
    table = pyarrow.parquet.read_table(storage.out, filesystem=storage)
    assert table["row"].to_pylist() == list(range(10_250))
    assert table["answer"].to_pylist() == rows(10_250)
    assert sum(asked.values()) - len(asked) <= 200  # under way, or just answered


def parts(storage):
    """Return the names of the parts that are there now."""
    storage.invalidate_cache()
    return storage.ls(storage.out) if storage.exists(storage.out) else []


def test_another_maps_parts_are_not_written_over(storage):
    with Agent(Echo()) as agent:
        agent.map_sync("{{text}}", ["a"], into=f"s3://{storage.out}")
        with pytest.raises(FatalError, match="answers of another map"):
            agent.map_sync("{{text}}", ["a"], output=int, into=f"s3://{storage.out}")


def test_what_cannot_be_written_to_is_one_sentence(storage):
    model = Echo()
    with Agent(model) as agent:
        with pytest.raises(FatalError, match="s3://missing/out: the answers cannot be written"):
            agent.map_sync("{{text}}", ["a"], into="s3://missing/out")
        with pytest.raises(FatalError, match="nope://x"):
            agent.map_sync("{{text}}", ["a"], into="nope://x")
    assert not model.asked["b"]


def test_what_may_not_be_looked_at_is_not_written_over():
    def write_over(top: str) -> str:
        out = Path(top, "out")
        out.mkdir()
        (out / "part-00000.parquet").write_text("of another map", encoding="utf-8")
        out.chmod(0o311)
        try:
            PartFiles(out).paths()
        except PermissionError as error:
            return error.strerror
        return ""

    assert call_as_user(write_over) == "Permission denied"


def test_two_kernels_may_write_one_part(tmp_path, monkeypatch):
    mine, theirs = pyarrow.table({"row": [1]}), pyarrow.table({"row": [2]})
    write = pyarrow.parquet.write_table

    def write_meanwhile(table, file):
        monkeypatch.setattr(pyarrow.parquet, "write_table", write)
        PartFiles(tmp_path).write(0, theirs)
        assert pyarrow.parquet.read_table(tmp_path / "part-00000.parquet").equals(theirs)
        write(table, file)

    monkeypatch.setattr(pyarrow.parquet, "write_table", write_meanwhile)
    PartFiles(tmp_path).write(0, mine)
    assert PartFiles(tmp_path).read(PartFiles(tmp_path).paths()).equals(mine)
    assert len(list(tmp_path.iterdir())) == 1


def test_what_a_killed_kernel_has_left_goes_when_it_is_old(tmp_path):
    for name, at in (("part-0.part", (0, 0)), ("part-1.x.part", (0, 0)), ("part-1.y.part", None)):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, at)
    PartFiles(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["part-1.y.part"]


def test_what_is_no_part_holds_no_answers(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "part-00000.parquet")
    (tmp_path / "part-00001.parquet").write_text("no Parquet")
    (tmp_path / "part-00002.parquet").touch()
    answered = pyarrow.table({"error": pyarrow.array([None, "refused", None]), "row": range(3)})
    pyarrow.parquet.write_table(answered, tmp_path / "part-00003.parquet")
    assert [len(PartFiles(tmp_path).answers(number)) for number in range(5)] == [0, 0, 0, 2, 0]


@pytest.mark.parametrize("place", ["{folder}", "memory://{folder}"])
def test_only_files_of_the_name_of_a_part_are_parts(tmp_path, place):
    files, table = PartFiles(place.format(folder=tmp_path / "out")), pyarrow.table({"row": [1]})
    assert files.paths() == []
    for number in (3, 0, 100_000):
        files.write(number, table)
    system = fsspec.filesystem("memory" if "://" in place else "file", auto_mkdir=True)
    for name in ("my-part-1.parquet", "part-1.parquet.part", "part-².parquet", "x/part-1.parquet"):
        system.pipe_file(f"{files._folder}/{name}", b"")
    names = [path.rpartition("/")[2] for path in files.paths()]
    assert names == ["part-00000.parquet", "part-00003.parquet", "part-100000.parquet"]
