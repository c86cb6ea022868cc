"""Results as HTML: a card for a notebook, or a whole report as one file.

The jinja2 templates, which escape every value, hold the markup; ``cards`` and ``document`` build
its content. The pages refer to no other file or host and need no script.
"""

from __future__ import annotations

from functools import lru_cache
from html import escape
from typing import TYPE_CHECKING, Any

from simcore.base.errors import UsageError
from simcore.base.names import printable

if TYPE_CHECKING:
    from simcore.report.html.document import Facts


@lru_cache(maxsize=1)
def _environment() -> Any:
    """The templates; every value is escaped except simcore's own SVG pictures."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise UsageError("a report needs jinja2: pip install '.[report]'") from None
    return Environment(
        loader=PackageLoader("simcore.report.html", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def render(template: str, **values: object) -> str:
    """A template of this package, filled in. Raises UsageError if jinja2 is not installed."""
    text: str = _environment().get_template(template).render(**values)
    return printable(text)


def fragment(result: object) -> str:
    """``result`` as an HTML element for a notebook; as plain text if jinja2 is not installed."""
    try:
        _environment()
    except UsageError:
        from simcore.report.text_of import text_of

        return f"<pre>{escape(printable(text_of(result)))}</pre>"
    # This import also registers the cards of sweeps, comparisons and plans.
    from simcore.report.html.cards_of_many import card_of

    return render("fragment.html.j2", card=card_of(result))


def page(facts: Facts) -> str:
    """A report as one self-contained HTML page.

    Raises UsageError if jinja2 or matplotlib is not installed.
    """
    from simcore.report.html.document import document
    from simcore.report.plots import require_matplotlib

    require_matplotlib("a report", "report")
    _environment()
    return render("page.html.j2", document=document(facts))
