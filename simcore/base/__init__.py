"""What every layer may import: units, errors, records, databases and caches.

``units`` and ``figures``: quantities and values with a source; ``errors``: what users are told;
``record`` and ``part``: frozen values, and those that a YAML file holds, which ``database`` finds
and ``check_record`` checks; ``registry``: things that are picked up by name.
"""
