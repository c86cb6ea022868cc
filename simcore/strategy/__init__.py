"""How a job is spread: parallel strategy, precision, optimizer, offload.

``options`` is the table of every option of a job, ``programs`` what each training program does, and
``dialects`` its launch files. ``strategy`` and ``layout`` are the resolved values, what overlaps
and what NCCL may choose among them; ``cuts`` the layers of pipeline stages.
"""
