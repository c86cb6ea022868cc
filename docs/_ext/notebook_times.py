"""A notebook that takes longer than it may is a warning, and so an error under ``-W``."""

from __future__ import annotations

from sphinx.application import Sphinx
from sphinx.util import logging

#: The wall time of a whole notebook, starting its kernel included.
LIMIT_S = 20.0


def setup(app: Sphinx) -> dict[str, bool]:
    """Look at the times once everything is built."""
    logger = logging.getLogger(__name__)

    def check(app: Sphinx, error: Exception | None) -> None:
        for name, facts in getattr(app.env, "nb_metadata", {}).items():
            run = facts.get("exec_data") or {}
            if (seconds := run.get("runtime") or 0.0) > LIMIT_S:
                logger.warning("%s ran for %.1f s, more than %.0f s", name, seconds, LIMIT_S)
            elif run:
                logger.info("%s ran for %.1f s", name, seconds)

    app.connect("build-finished", check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
