"""DeepSpeed's JSON configuration, all of it by its record."""

from __future__ import annotations

from simcore.strategy.dialects.base import DIALECTS
from simcore.strategy.dialects.keyed import TableDialect

DIALECTS.register("deepspeed")(TableDialect("deepspeed"))
