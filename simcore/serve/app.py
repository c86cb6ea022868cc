"""The web application: page and JSON API. One thread computes all answers with ``simcore.api``."""

# No "from __future__ import annotations" here: the types of queries are made at run time.

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from simcore import __version__, api
from simcore.base.errors import SimcoreError
from simcore.serve import downloads
from simcore.serve.controls import Group, controls
from simcore.serve.docs import docs_page
from simcore.serve.guard import MOST_REPORTS, RATE, Guard, TooBusyError, Worker, busy, refusal
from simcore.serve.problems import Problems, of_error, of_validation
from simcore.serve.query import SetUp, arguments, launch_query, predicted, set_up
from simcore.serve.scaling import Scaling, scaling
from simcore.serve.uploads import Kind, Uploads
from simcore.serve.view import Answer, answer

STATIC = Path(__file__).with_name("static")
#: Set-up that the page opens with; it is predicted once at start, to fill the caches.
OPENING = SetUp(model="latte-xl", gpus="4x8xA6000ada")
_WRONG: dict[int | str, dict[str, Any]] = {
    400: {"model": Problems, "description": "Not a host name of this server, or not HTTP"},
    422: {"model": Problems, "description": "All mistakes in the request, one sentence each"},
    429: {"model": Problems, "description": "Too many requests: try again in a second"},
}
_DESCRIPTION = (
    "Predict time, memory and scaling of a GPU training job before it starts. Every parameter is "
    "an option of `simcore predict`; figures are SI with the unit in the key, or text as the "
    "command line prints it. Requests are limited to {rate} cost units per second and client."
)


class Uploaded(BaseModel):
    """An uploaded file that was parsed."""

    name: str = Field(description="value for `model` or `calibration` that refers to the file")
    kind: Kind
    shown: str = Field(description="name of the model or calibration in the file")


def create_app(*, hosts: tuple[str, ...] = (), rate: int = RATE) -> FastAPI:
    """The application.

    ``hosts``: accepted host names, empty for any; ``rate``: cost units per second and client.
    """
    worker, reporter, uploads = Worker(), Worker(MOST_REPORTS), Uploads()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await worker.run(lambda: (api.choices(), _answer(OPENING, uploads)))
        yield

    app = FastAPI(
        title="simcore",
        version=__version__,
        description=_DESCRIPTION.format(rate=rate),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_pages(app)
    _add_api(app, worker, reporter, uploads)
    _add_errors(app)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.add_middleware(Guard, hosts=hosts, rate=rate)
    return app


def _add_pages(app: FastAPI) -> None:
    @app.get("/", include_in_schema=False)
    async def page() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))


def _add_api(app: FastAPI, worker: Worker, reporter: Worker, uploads: Uploads) -> None:
    @app.get("/api/v1/choices", summary="Names that options accept", responses={429: _WRONG[429]})
    async def get_choices() -> dict[str, tuple[str, ...]]:
        return await worker.run(api.choices)

    asked_of: Any = Annotated[set_up(), Query()]
    launch_of: Any = Annotated[launch_query(), Query()]

    @app.get("/api/v1/controls", summary="The page's form", responses={429: _WRONG[429]})
    async def get_controls() -> list[Group]:
        return controls()

    @app.get("/api/v1/answer", summary="A prediction as text, for people", responses=_WRONG)
    async def get_answer(asked: asked_of) -> Answer:
        return await worker.run(_answer, asked, uploads)

    @app.get("/api/v1/scaling", summary="The set-up on more and fewer nodes", responses=_WRONG)
    async def get_scaling(asked: asked_of) -> Scaling:
        return await worker.run(_counted(scaling), asked, uploads)

    def file(
        path: str,
        summary: str,
        make: Callable[..., downloads.Download],
        kind: str,
        schema: Any,
        by: Worker = worker,
    ) -> None:
        content = {"content": {kind: {"schema": schema}}, "description": summary}

        @app.get(
            path,
            summary=summary,
            operation_id=make.__name__,
            response_class=Response,
            responses={**_WRONG, 200: content},
        )
        async def get_file(asked: asked_of) -> Response:
            found: downloads.Download = await by.run(_counted(make), asked, uploads)
            return found.response()

    file("/api/v1/predict", "The prediction as `simcore predict --json` prints it",
         downloads.as_json, "application/json", downloads.SCHEMA)  # fmt: skip
    file("/api/v1/trace", "One step as a trace for ui.perfetto.dev",
         downloads.as_trace, "application/json", {"type": "object"})  # fmt: skip
    file("/api/v1/report", "The answer as one self-contained HTML file",
         downloads.as_html, "text/html", {"type": "string"}, reporter)  # fmt: skip

    @app.get(
        "/api/v1/launch",
        summary="The job as a launch file of another program",
        response_class=Response,
        responses={**_WRONG, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def get_launch(asked: launch_of) -> Response:
        make = _counted(downloads.as_launch)
        found: downloads.Download = await worker.run(make, asked, uploads, asked.dialect)
        return found.response()

    @app.post(
        "/api/v1/uploads",
        summary="Upload a config.json or a calibration",
        responses={**_WRONG, 403: {"model": Problems}, 413: {"model": Problems}},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        },
    )
    async def post_upload(request: Request, kind: Kind) -> Uploaded:
        raw = await request.body()
        return await worker.run(_uploaded, kind, raw, uploads)


def _answer(asked: SetUp, uploads: Uploads) -> Answer:
    given = arguments(asked, uploads)
    return answer(predicted(**given), asked)


def _uploaded(kind: Kind, raw: bytes, uploads: Uploads) -> Uploaded:
    name, found = uploads.add(kind, raw)
    shown = found.full_name if kind == "model" else found.name
    return Uploaded(name=name, kind=kind, shown=shown)


def _counted(make: Callable[..., Any]) -> Callable[..., Any]:
    """A function of a set-up that calls ``make`` with the arguments for ``api.predict``."""

    def work(asked: SetUp, uploads: Uploads, *more: Any) -> Any:
        return make(arguments(asked, uploads), *more)

    return work


def _add_errors(app: FastAPI) -> None:
    known = [*set_up().model_fields, "dialect", "kind"]

    def wrong(found: Problems) -> JSONResponse:
        return JSONResponse(found.model_dump(), status_code=422)

    @app.exception_handler(SimcoreError)
    async def on_simcore(_request: Request, err: SimcoreError) -> JSONResponse:
        return wrong(of_error(err))

    @app.exception_handler(RequestValidationError)
    async def on_validation(_request: Request, err: RequestValidationError) -> JSONResponse:
        return wrong(of_validation(err.errors(), known))

    @app.exception_handler(HTTPException)
    async def on_http(_request: Request, err: HTTPException) -> JSONResponse:
        return refusal(err.status_code, str(err.detail), **(err.headers or {}))

    @app.exception_handler(TooBusyError)
    async def on_busy(_request: Request, _err: TooBusyError) -> JSONResponse:
        return busy("too many requests are waiting")
