"""What the job runs on: accelerators, links, nodes, clusters, and the paths between them.

``spec`` reads ``hardware_db``; ``cluster`` reads ``4x8xH100`` and ``paths`` finds what joins its
ranks. ``profile`` says how much of its datasheet hardware reaches: by class of kernel
(``class_figures``, ``kernel_limits``), as measured on one device and as fitted to steps
(``calibrations``). ``estimates`` is a figure with its uncertainty.
"""
