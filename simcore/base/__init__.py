"""What every layer may import: units, errors, records, databases and caches.

``units``: quantities; ``errors``: what users are told; ``record`` and ``figures``: frozen values,
and those that a YAML file holds with their sources, which ``database`` finds; ``lookup``: things
that are picked up by name or remembered.
"""
