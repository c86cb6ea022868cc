"""What each rank computes, sends and holds in one step, derived from workload and strategy.

``kernels`` lists the kernels of a workload as a table; ``program`` builds the tasks of a step as a
``graph``, with the communication of a file in ``parallel`` and the order of one in ``schedules``.
``host_calls`` and ``transients`` add the host's work and the memory that ops need beside.
"""
