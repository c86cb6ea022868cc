"""Rules that translate the cells of a published table to options of ``simcore predict``.

A corpus is a folder of ``validate/corpora`` whose files have lists of rules:

    rules:
      - when: {model: BERT-Large, says: [seq384, precision=fp32], torch: [unknown, "<1.11"]}
        words: {optimizer: lamb}            # ``row_rules.py`` describes what a rule may give
        source: optimization.py of the program, if args.fp16

``when`` is a condition on the row's cells (``base/conditions.py``); ``says`` searches all of the
row's text. A rule without ``when`` always holds. ``source`` says where the rule's content is from.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from simcore.base.conditions import TEXT, Facts, holds
from simcore.base.database import shipped_folder
from simcore.base.record import dataclass

__all__ = ["TEXT", "Facts", "Rule", "corpora_folder"]


@dataclass(frozen=True)
class Rule:
    """A rule: its condition ``when``, its ``source``, and ``gives``, all of its other keys.

    Of the rules of one ``group`` only the first that holds applies.
    """

    when: Mapping[str, Any]
    gives: Mapping[str, Any]
    source: str = ""
    group: object = None

    def holds(self, facts: Facts) -> bool:
        """Whether all conditions hold for a row's facts. Raises KeyError for an unknown fact."""
        return holds(self.when, facts)


def corpora_folder() -> Path:
    """The folder of the corpora, in the installed package or in a checkout."""
    return shipped_folder("validate/corpora")
