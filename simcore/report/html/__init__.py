"""Results as HTML: a card in a notebook, a whole report as one file.

Templates (jinja2, escaping everything) hold the markup, ``cards`` and ``document`` what stands in
it. Nothing refers to another file or host, and nothing needs a script.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from simcore.base.errors import UsageError

if TYPE_CHECKING:
    from simcore.report.html.document import Facts


def fragment(result: object) -> str:
    """``result`` as an element for a notebook; its text where jinja2 is not installed."""
    from simcore.report.text_of import text_of

    try:
        from simcore.report.html.render import render
    except ImportError:
        return f"<pre>{escape(text_of(result))}</pre>"
    from simcore.report.html.cards_of_many import card_of  # with those of ``cards``

    return render("fragment.html.j2", card=card_of(result))


def page(facts: Facts) -> str:
    """A report as one self-contained page. Raises UsageError without jinja2 or matplotlib."""
    from simcore.report.plots import require_matplotlib

    require_matplotlib("a report", "report")
    try:
        from simcore.report.html.render import render
    except ImportError:
        raise UsageError("a report needs jinja2: pip install 'simcore[report]'") from None
    from simcore.report.html.document import document

    return render("page.html.j2", document=document(facts))
