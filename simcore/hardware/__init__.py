"""What the job runs on: accelerators, links, nodes, clusters, and the paths between them.

``spec`` reads ``hardware_db``; ``cluster`` reads ``4x8xH100`` and ``paths`` finds what joins its
ranks. ``profile`` says how much of its datasheet hardware reaches: by class of kernel
(``class_figures``, and limits of kernels in ``estimates``, beside the figure with its uncertainty),
as measured on one device and as fitted to steps (``calibrations``).
"""
