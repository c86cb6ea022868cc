"""A notebook that takes longer than it may is a warning, and so an error under ``-W``.

Judged is the processor time of its kernel: on a machine with other work, time on the clock says
more about that work. Both are logged.
"""

from __future__ import annotations

import resource

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging

#: Processor time of a notebook, starting its kernel included; with a core of its own it is done in
#: less than the 20 s that a notebook may take.
LIMIT_S = 15.0


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

    def judge(app: Sphinx, tree: nodes.document) -> None:
        name = app.env.docname
        run = getattr(app.env, "nb_metadata", {}).get(name, {}).get("exec_data")
        if not run:
            return
        spent = _children_s() - before[name]
        clock = run.get("runtime") or 0.0
        logger.info("%s: %.1f s of processor time, %.1f s on the clock", name, spent, clock)
        if spent > LIMIT_S:
            logger.warning("%s takes %.1f s, more than %.0f s", name, spent, LIMIT_S)

    app.connect("source-read", start)
    app.connect("doctree-read", judge)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
