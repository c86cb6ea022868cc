"""axolotl's file: what its record cannot express."""

from __future__ import annotations

from simcore.strategy.dialects.lines import ODD
from simcore.strategy.dialects.reading import Reading, Table

#: What a plugin that is listed turns on by itself (integrations/*/args.py).
_TURNED_ON = {"CutCrossEntropyPlugin": "cut-cross-entropy"}
#: Plugins that do nothing without keys of their own.
_SWITCHED = ("LigerPlugin",)


@ODD.register("plugins")
def _plugins(reading: Reading, table: Table) -> None:
    """Read the listed plugins: what each turns on, and those that are not known."""
    for name in str(table.take("plugins") or "").split(","):
        plugin = name.strip().rpartition(".")[2]
        if key := _TURNED_ON.get(plugin):
            if table.given.get(key) is None:
                table.put(key, True)
        elif plugin and plugin not in _SWITCHED:
            reading.approximate(f"plugins: {plugin}", "is not followed")
