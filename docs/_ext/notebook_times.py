"""What each notebook takes, logged as the site is built: processor time and time on the clock.

A notebook is to be done in 20 s. That is not asserted: a slower processor is no fault of its own.
"""

from __future__ import annotations

import resource

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging


def _children_s() -> float:
    """Processor time of the processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at the time before and after a page is read, which is when it is run."""
    logger = logging.getLogger(__name__)
    before: dict[str, float] = {}

    def start(app: Sphinx, name: str, source: list[str]) -> None:
        before[name] = _children_s()

    def tell(app: Sphinx, tree: nodes.document) -> None:
        name = app.env.docname
        run = getattr(app.env, "nb_metadata", {}).get(name, {}).get("exec_data")
        if not run:
            return
        spent = _children_s() - before[name]
        clock = run.get("runtime") or 0.0
        logger.info("%s: %.1f s of processor time, %.1f s on the clock", name, spent, clock)

    app.connect("source-read", start)
    app.connect("doctree-read", tell)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
