"""The computation of a step: ops, blocks, workloads, and the architectures that build them.

``graph`` says what a workload is: kernels in ``ops``, ops in blocks. ``resolve`` finds what
``--model`` names: a record (``models``) of an architecture (``archs``), a Hugging Face config
(``huggingface``), or a module that is traced (``trace``). ``sharding`` cuts out one rank's part,
and ``recompute`` what runs twice.
"""
