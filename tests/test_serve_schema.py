"""What the OpenAPI document says is what the server does: requests made from it, right and wrong ones."""

from __future__ import annotations

import os

import pytest
import schemathesis
from conftest import tiny
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)
from serving import running

EXAMPLES = int(os.environ.get("ITOCAST_EXAMPLES", "15"))  # for each route and kind of request
CHECKS = (
    not_a_server_error, content_type_conformance, negative_data_rejection, response_headers_conformance,
    response_schema_conformance, status_code_conformance, unsupported_method,
)  # fmt: skip
ROUTES = {
    "/health": "GET", "/v1/models": "GET", "/metrics": "GET", "/v1/forecast": "POST", "/v1/observe": "POST",
}  # fmt: skip


@pytest.fixture(scope="module")
def schema(tmp_path_factory, single):
    folder = tmp_path_factory.mktemp("schema")
    single[1].save(folder / "model")
    tiny(calibration="adaptive").fit(single[0]).save(folder / "adaptive")
    with running(folder / "model", folder / "adaptive") as client:
        document = client.get("/openapi.json").json()
        schema = schemathesis.openapi.from_dict(document)
        schema.config.base_url = str(client.base_url)
        yield schema


RIGHT, WRONG = schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE


@pytest.mark.parametrize(("path", "mode"), [
    *((path, RIGHT) for path in ROUTES), ("/v1/forecast", WRONG), ("/v1/observe", WRONG),
])  # fmt: skip
def test_nothing_is_found(schema, path, mode):
    strategy = schema[path][ROUTES[path]].as_strategy(generation_mode=mode)

    @given(case=strategy)
    @settings(
        max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    def try_it(case):
        case.call_and_validate(checks=CHECKS)

    try_it()
