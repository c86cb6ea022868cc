"""Cost formulas: pure functions on arrays, no spec objects, no I/O.

``kernel`` is the one roofline with every law of traffic, ``fill`` how full a device is at a shape;
``collectives`` has the algorithms, most in files of their own. ``fabric_shares`` divides a network
among flows.
"""
