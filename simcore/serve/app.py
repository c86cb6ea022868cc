"""The web application: page and JSON API. Three workers compute all answers (``serve.compute``)."""

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

from simcore import __version__
from simcore.base.errors import SimcoreError
from simcore.base.record import dataclass
from simcore.serve import compute, downloads
from simcore.serve.controls import Group, controls
from simcore.serve.docs import docs_page
from simcore.serve.guard import RATE, SEARCH, Guard, busy, cost_of, refusal
from simcore.serve.names import Found, NameQuery, search
from simcore.serve.plan import PlanQuery, PlanView, plan_view
from simcore.serve.problems import Problems, of_error, of_validation
from simcore.serve.query import SetUp, launch_query, set_up
from simcore.serve.scaling import Scaling
from simcore.serve.sweep import Map, sweep_query
from simcore.serve.uploads import Kind, Uploads
from simcore.serve.view import Answer, Fact
from simcore.serve.worker import MOST_LONG, Thread, TooBusyError, Worker

STATIC = Path(__file__).with_name("static")
_WRONG: dict[int | str, dict[str, Any]] = {
    400: {"model": Problems, "description": "Not a host name of this server, or not HTTP"},
    403: {"model": Problems, "description": "Asked by a page of another site"},
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


@dataclass(frozen=True)
class Workers:
    """A worker for predictions, one for several of them at once, and one for what takes longer."""

    quick: Worker
    several: Worker
    long: Worker

    def of(self, request: Request) -> Worker:
        """The worker for a request, by its cost."""
        cost = cost_of(request.url.path, request.url.query)
        return self.quick if cost == 1 else self.several if cost < SEARCH else self.long

    def close(self) -> None:
        """End all of them, with whatever they are doing."""
        for worker in (self.quick, self.several, self.long):
            worker.close()


def create_app(
    *,
    hosts: tuple[str, ...] = (),
    rate: int = RATE,
    workers: Workers | None = None,
) -> FastAPI:
    """The application.

    ``hosts``: accepted host names, empty for any; ``rate``: cost units per second and client;
    ``workers``: what computes; threads of this process by default.
    """
    workers, uploads = workers or Workers(Thread(), Thread(), Thread(MOST_LONG)), Uploads()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await workers.quick.run(compute.choices)
        yield
        workers.close()

    app = FastAPI(
        title="simcore",
        version=__version__,
        description=_DESCRIPTION.format(rate=rate),
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    _add_pages(app)
    _add_api(app, workers, uploads)
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


def _add_api(app: FastAPI, workers: Workers, uploads: Uploads) -> None:
    @app.get("/api/v1/choices", summary="Names that options accept", responses={429: _WRONG[429]})
    async def get_choices() -> dict[str, tuple[str, ...]]:
        return await workers.quick.run(compute.choices)

    asked_of: Any = Annotated[set_up(), Query()]
    launch_of: Any = Annotated[launch_query(), Query()]

    @app.get("/api/v1/controls", summary="The page's form", responses={429: _WRONG[429]})
    async def get_controls() -> list[Group]:
        return controls()

    async def computed(request: Request, work: Callable[..., bytes], asked: SetUp) -> Response:
        words = asked.words()
        found = await workers.of(request).run(work, words, uploads.named_in(words))
        return Response(found, media_type="application/json")

    @app.get("/api/v1/answer", summary="A prediction as text, for people", responses=_WRONG,
             response_model=Answer)  # fmt: skip
    async def get_answer(request: Request, asked: asked_of) -> Response:
        return await computed(request, compute.answer, asked)

    @app.get("/api/v1/scaling", summary="The set-up on more and fewer nodes", responses=_WRONG,
             response_model=Scaling)  # fmt: skip
    async def get_scaling(request: Request, asked: asked_of) -> Response:
        return await computed(request, compute.scaling, asked)

    @app.get("/api/v1/memory", summary="The peak of memory as PyTorch and nvidia-smi count it",
             responses=_WRONG)  # fmt: skip
    async def get_memory(request: Request, asked: asked_of) -> list[Fact]:
        words = asked.words()
        return await workers.of(request).run(compute.memory, words, uploads.named_in(words))

    map_of: Any = Annotated[sweep_query(), Query()]

    @app.get("/api/v1/sweep", summary="The set-up over the values of two options",
             responses=_WRONG, response_model=Map)  # fmt: skip
    async def get_sweep(request: Request, asked: map_of) -> Response:
        return await computed(request, compute.sweep, asked)

    @app.get("/api/v1/names", summary="Models or GPUs whose names have these words",
             responses=_WRONG)  # fmt: skip
    async def get_names(asked: Annotated[NameQuery, Query()]) -> list[Found]:
        return await workers.quick.run(search, asked)

    plan_of: Any = Annotated[PlanQuery, Query()]

    @app.get("/api/v1/plan", summary="Which GPUs for a run, how long, at what cost",
             responses=_WRONG)  # fmt: skip
    async def get_plan(request: Request, asked: plan_of) -> PlanView:
        return await workers.of(request).run(plan_view, asked)

    async def filed(request: Request, kind: str, asked: SetUp, *more: str) -> Response:
        words = asked.words()
        arguments = (kind, words, uploads.named_in(words), *more)
        found: downloads.Download = await workers.of(request).run(compute.file, *arguments)
        return found.response()

    def file(kind: str, summary: str, media: str, schema: Any) -> None:
        content = {"content": {media: {"schema": schema}}, "description": summary}

        @app.get(
            f"/api/v1/{kind}",
            summary=summary,
            operation_id=kind,
            response_class=Response,
            responses={**_WRONG, 200: content},
        )
        async def get_file(request: Request, asked: asked_of) -> Response:
            return await filed(request, kind, asked)

    file("predict", "The prediction as `simcore predict --json` prints it", "application/json",
         downloads.SCHEMA)  # fmt: skip
    file("trace", "One step as a trace for ui.perfetto.dev", "application/json", {"type": "object"})
    file("report", "The answer as one self-contained HTML file", "text/html", {"type": "string"})

    @app.get(
        "/api/v1/launch",
        summary="The job as a launch file of another program",
        response_class=Response,
        responses={**_WRONG, 200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
    )
    async def get_launch(request: Request, asked: launch_of) -> Response:
        return await filed(request, "launch", asked, asked.dialect)

    @app.post(
        "/api/v1/uploads",
        summary="Upload a config.json or a calibration",
        responses={**_WRONG, 413: {"model": Problems}},
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
        shown = await workers.quick.run(compute.shown_name, kind, raw)
        return Uploaded(name=uploads.add(kind, raw), kind=kind, shown=shown)


def _add_errors(app: FastAPI) -> None:
    known = [
        *sweep_query().model_fields,
        *PlanQuery.model_fields,
        *NameQuery.model_fields,
        "dialect",
    ]

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
    async def on_busy(_request: Request, err: TooBusyError) -> JSONResponse:
        return busy(str(err))
