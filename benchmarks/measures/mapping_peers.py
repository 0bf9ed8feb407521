"""Other libraries that ask one prompt over many rows, as subjects of mapping.py.

Each gets rows of text and a typed answer, as its documentation shows it, with 500 requests at once
where it allows that; each lives in an environment of its own, ``build/peers/NAME``.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

MODEL = "gpt-4o-mini"
Run = Callable[[range], None]


class Column(NamedTuple):
    """What is asked: the prompt before each row's text, the answer's type, requests at once."""

    prompt: str
    text: Callable[[int], str]
    kind: type
    at_once: int

    def records(self, numbers: range) -> list[dict]:
        """Return some rows."""
        return [{"text": self.text(number)} for number in numbers]


def subjects(column: Column) -> dict[str, Callable[[str], Run]]:
    """Return the libraries by name: each makes of the server's address what asks some rows."""
    made = (run_instructor, run_lotus, run_curator, run_docetl, run_ray, run_daft)
    return {each.__name__.removeprefix("run_"): partial(each, column) for each in made}


def run_instructor(column: Column, address: str) -> Run:
    import instructor  # noqa: PLC0415 - each subject's own packages, here and below
    import openai  # noqa: PLC0415
    from httpx2 import Limits  # noqa: PLC0415

    limits = Limits(max_connections=column.at_once, max_keepalive_connections=column.at_once)
    web = openai.DefaultAsyncHttpxClient(limits=limits)
    model = openai.AsyncOpenAI(base_url=address, api_key="x", http_client=web)
    client = instructor.from_openai(model, mode=instructor.Mode.JSON)
    places, loop = asyncio.Semaphore(column.at_once), asyncio.new_event_loop()

    async def ask(number: int) -> None:
        messages = [{"role": "user", "content": column.prompt + column.text(number)}]
        async with places:
            done = await client.chat.completions.create(
                model=MODEL, response_model=column.kind, messages=messages
            )
        assert done.topic == "delivery"

    async def run(numbers: range) -> None:
        await asyncio.gather(*map(ask, numbers))

    return lambda numbers: loop.run_until_complete(run(numbers))


def run_lotus(column: Column, address: str) -> Run:
    import lotus  # noqa: PLC0415
    import pandas as pd  # noqa: PLC0415
    from lotus.models import LM  # noqa: PLC0415

    options = {"max_batch_size": column.at_once, "max_tokens": 200}
    lotus.settings.configure(lm=LM(f"openai/{MODEL}", api_base=address, api_key="x", **options))

    def run(numbers: range) -> None:
        done = pd.DataFrame(column.records(numbers)).sem_map(column.prompt + "{text}")
        assert all("delivery" in answer for answer in done["_map"])

    return run


def run_curator(column: Column, address: str) -> Run:
    from bespokelabs import curator  # noqa: PLC0415

    class Asked(curator.LLM):
        response_format = column.kind

        def prompt(self, row: dict) -> str:
            return column.prompt + row["text"]

        def parse(self, row: dict, answer: object) -> dict:
            return {"topic": answer.topic}

    limits = {"max_requests_per_minute": 10**6, "max_tokens_per_minute": 10**9}
    options = {"base_url": address, "max_concurrent_requests": column.at_once, **limits}
    asked = Asked(MODEL, backend="openai", backend_params=options)

    def run(numbers: range) -> None:
        folder = tempfile.mkdtemp(dir=os.environ["HOME"])
        done = asked(column.records(numbers), working_dir=folder)
        assert all(row["topic"] == "delivery" for row in getattr(done, "dataset", done))

    return run


def run_docetl(column: Column, address: str) -> Run:
    from docetl import api  # noqa: PLC0415

    folder = Path(tempfile.mkdtemp(dir=os.environ["HOME"]))
    schema = {"topic": "string", "angry": "bool", "reason": "string"}
    ask = api.MapOp(
        name="ask",
        type="map",
        prompt=column.prompt + "{{ input.text }}",
        output={"schema": schema, "mode": "structured_output"},
        litellm_completion_kwargs={"api_base": address, "api_key": "x"},
    )

    def run(numbers: range) -> None:
        (folder / "in.json").write_text(json.dumps(column.records(numbers)))
        pipeline = api.Pipeline(
            name="column",
            datasets={"rows": api.Dataset(type="file", path=str(folder / "in.json"))},
            operations=[ask],
            steps=[api.PipelineStep(name="all", input="rows", operations=["ask"])],
            output=api.PipelineOutput(type="file", path=str(folder / "out.json")),
            default_model=f"openai/{MODEL}",
        )
        pipeline.run(max_threads=column.at_once)
        done = json.loads((folder / "out.json").read_text())
        assert len(done) == len(numbers)

    return run


def run_ray(column: Column, address: str) -> Run:
    from ray import data  # noqa: PLC0415
    from ray.data.llm import HttpRequestProcessorConfig, build_processor  # noqa: PLC0415

    config = HttpRequestProcessorConfig(
        url=f"{address}/chat/completions",
        headers={"Authorization": "Bearer x"},
        batch_size=column.at_once,
        concurrency=1,
    )

    def asked(row: dict) -> dict:
        messages = [{"role": "user", "content": column.prompt + row["text"]}]
        return {"payload": {"model": MODEL, "messages": messages}}

    def read(row: dict) -> dict:
        answer = row["http_response"]["choices"][0]["message"]["content"]
        return {"topic": column.kind.model_validate_json(answer).topic}

    processor = build_processor(config, preprocess=asked, postprocess=read)

    def run(numbers: range) -> None:
        done = processor(data.from_items(column.records(numbers))).take_all()
        assert all(row["topic"] == "delivery" for row in done)

    return run


def run_daft(column: Column, address: str) -> Run:
    import daft  # noqa: PLC0415
    from daft.ai.openai.provider import OpenAIProvider  # noqa: PLC0415
    from daft.functions import prompt  # noqa: PLC0415

    provider = OpenAIProvider(base_url=address, api_key="x")

    def run(numbers: range) -> None:
        frame = daft.from_pylist(column.records(numbers))
        message = daft.lit(column.prompt) + daft.col("text")
        asked = prompt(message, column.kind, provider=provider, model=MODEL)
        done = frame.with_column("answer", asked).to_pydict()["answer"]
        assert all(each["topic"] == "delivery" for each in done)

    return run
