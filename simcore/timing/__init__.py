"""Seconds: rates, durations of tasks, the timeline and the step, along the configuration axis.

``points`` is the axis, with programs joined into arrays, and ``rates`` what a device sustains.
``evaluate`` prices each task (``compute``, ``collectives``, ``quantities``) and schedules the graph
of one replica's step; ``divided`` puts pipeline stages and divided layers together, and ``steps``
is the door for a request.
"""
