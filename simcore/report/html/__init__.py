"""Results as HTML: a card for a notebook, or a whole report as one file.

The jinja2 templates, which escape every value, hold the markup; ``cards`` and ``document`` build
its content. The pages refer to no other file or host and need no script.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from simcore.base.errors import UsageError

if TYPE_CHECKING:
    from simcore.report.html.document import Facts


def fragment(result: object) -> str:
    """``result`` as an HTML element for a notebook; as plain text if jinja2 is not installed."""
    from simcore.report.text_of import text_of

    try:
        from simcore.report.html.render import render
    except ImportError:
        return f"<pre>{escape(text_of(result))}</pre>"
    # This import also registers the cards of sweeps, comparisons and plans.
    from simcore.report.html.cards_of_many import card_of

    return render("fragment.html.j2", card=card_of(result))


def page(facts: Facts) -> str:
    """A report as one self-contained HTML page.

    Raises UsageError if jinja2 or matplotlib is not installed.
    """
    from simcore.report.plots import require_matplotlib

    require_matplotlib("a report", "report")
    try:
        from simcore.report.html.render import render
    except ImportError:
        raise UsageError("a report needs jinja2: pip install 'simcore[report]'") from None
    from simcore.report.html.document import document

    return render("page.html.j2", document=document(facts))
