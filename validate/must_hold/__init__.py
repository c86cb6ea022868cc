"""What closed issues said must hold and no test holds: figures over the measured tables.

``python -m validate.must_hold`` computes each table once and prints a line a clause: what was
asked, what is found, whether it holds, and the issue that asked. To be run before an issue closes.
"""
