"""Refusals of requests, as one sentence."""

import json

import pytest

from agent_magics.rows.remote.exchange import refusal_of
from agent_magics.rows.remote.transport import Reply


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 429, 500])
@pytest.mark.parametrize("code", ["", "model_not_found"])
def test_a_refusal_of_what_has_no_model_names_none(status, code):
    body = json.dumps({"error": {"message": "No such file.", "code": code}}).encode()
    said = str(refusal_of(Reply(status, {}, body), "http://127.0.0.1:9", "", "batch API"))
    assert "''" not in said and "model" not in said and str(status) in said
