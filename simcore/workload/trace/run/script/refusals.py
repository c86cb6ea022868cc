"""Why a script cannot run dry, in one sentence with file, line and what to do."""

from __future__ import annotations

import re
import traceback

from simcore.base.errors import UsageError
from simcore.workload.trace.run.places import place_in_script
from simcore.workload.trace.run.script.confined import Refused

#: What an error says, and what it means for a dry run. ``{0}``: what the pattern's group matches.
_MEANINGS: tuple[tuple[str, str], ...] = (
    (r"DynamicOutputShapeException: (?:aten\.)?([\w]+)",
     "the shape of what {0} returns depends on values, which a dry run does not have: use a form "
     "of fixed shape, such as a mask, or leave that part out of the dry run"),
    (r"DataDependentOutputException: (?:aten\.)?([\w]+)",
     "{0} needs values of the device, which a dry run does not have: read them from the "
     "configuration, or leave that part out of the dry run"),
    (r"(?:UnsupportedOperatorException|UnsupportedFakeTensorException).*?: ([\w.:]+)",
     "the operator {0} has no implementation for fake tensors: give it one with "
     "torch.library.register_fake"),
    (r"(?:no fake impl|no meta function|register_fake)[^:]*?:? ?([\w.]+::[\w.]+)",
     "the operator {0} has no implementation for fake tensors: give it one with "
     "torch.library.register_fake"),
    (r"([\w.]+::[\w.]+):? attempted to run this operator with Meta tensors",
     "the operator {0} has no implementation for fake tensors: give it one with "
     "torch.library.register_fake"),
    (r"annot access data pointer of",
     "code outside of PyTorch asks for the memory of a tensor, which has none in a dry run: "
     "register the kernel as an operator with torch.library and give it a fake implementation"),
    (r"quantised weights|bitsandbytes",
     "quantised weights: their kernels do not run dry: load the model without quantization_config "
     "and say --precision to simcore predict"),
    (r"NotImplementedError: Could not run '([\w.:]+)'",
     "the operator {0} does not run on a processor: give it an implementation with "
     "torch.library.register_fake"),
    (r"OfflineModeIsEnabled|LocalEntryNotFoundError|offline mode|couldn't connect to|"
     r"Cannot reach https|not found in the cached files|ConnectionError",
     "a file is to be downloaded, which a dry run does not: download it before, or give a local "
     "folder"),
    (r"ModuleNotFoundError: No module named '([\w.]+)'",
     "the package {0} is not installed here: install it, or leave its import out of the dry run"),
    (r"No such file or directory:? '?([^']+)",
     "there is no file {0}: give its path, or leave out what reads it"),
    (r"ProcessGroupNCCL|torch\.cuda\.nccl|_nccl_|'nccl'|ncclComm|NCCL",
     "NCCL itself is asked, which a dry run does not have: call torch.distributed's collectives"),
    (r"MemoryError|can't allocate memory|bad_alloc|not enough memory",
     "this needs more memory than the dry run may take: build it of torch tensors, which need "
     "none, read less data, or raise --memory-limit"),
    (r"not compiled with CUDA|libcuda|Found no NVIDIA driver|CUDA driver|CUDA error",
     "a GPU itself is asked, which a dry run does not have: leave that call out of the dry run"),
)  # fmt: skip

#: A message that begins with a file and line.
_HAS_PLACE = re.compile(r"\S+\.py:\d+: ")
#: Most characters of a sentence.
_LONGEST = 600


def _chain(err: BaseException) -> list[BaseException]:
    """An error and those that it was raised for or during."""
    found: list[BaseException] = []
    at: BaseException | None = err
    while at is not None and at not in found:
        found.append(at)
        at = at.__cause__ or at.__context__
    return found


def sentence(err: BaseException, script: str) -> str:
    """One sentence about the error that ended a script."""
    if isinstance(err, SyntaxError):
        at = f"{err.filename or script}:{err.lineno or 1}"
        return f"{at}: this is not Python: {err.msg}: correct the line"
    if isinstance(err, KeyboardInterrupt):
        return f"{script} was interrupted"
    chain = _chain(err)
    refused = next((e for e in chain if isinstance(e, Refused)), None)
    told = refused or next((e for e in chain if isinstance(e, UsageError)), None)
    place = place_in_script(traceback.extract_tb(err.__traceback__))
    if told is not None:
        what = str(told.strerror if isinstance(told, OSError) else told)
        return _line(what if not place or _HAS_PLACE.match(what) else f"{place}: {what}")
    place = place or script
    for one in chain:
        text = f"{type(one).__name__}: {one}"
        for pattern, meaning in _MEANINGS:
            if found := re.search(pattern, text):
                groups = [g.strip("'\"") for g in found.groups() if g]
                return _line(f"{place}: {meaning.format(*groups or ['it'])}")
    text = f"{type(err).__name__}: {err}".rstrip(": ")
    return _line(f"{place}: the script fails with {text}: see that it runs to its first step")


def ending(err: SystemExit, script: str) -> str:
    """One sentence about a script that ended itself before its first step."""
    place = place_in_script(traceback.extract_tb(err.__traceback__)) or script
    code = err.code if err.code is not None else 0
    return _line(
        f"{place}: the script ends itself here ({code}) before its first step of an optimizer: "
        "give it the arguments with which it trains"
    )


def _line(text: str) -> str:
    """A text as one line of at most 600 characters."""
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else line[:_LONGEST] + " ..."
