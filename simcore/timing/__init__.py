"""Seconds: rates, durations of tasks, the timeline and the step, along the configuration axis.

``points`` is the axis and ``rates`` what a device sustains. ``price`` finds the duration of each
task (``compute``, ``collectives``, ``quantities``), ``timeline`` its start and finish, ``evaluate``
the step of one replica; ``divided`` puts pipeline stages and divided layers together, and ``steps``
is the door for a request.
"""
