"""Command lines and scripts as lists of words. Nothing is run; variables are substituted as text.

What only a shell could evaluate ($1, $(…), loops) is left as written, and is reported where a value
is needed. Whole numbers may be written as sums and products: ``$((1024 * 2))``.
"""

from __future__ import annotations

import ast
import operator
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field

from simcore.base.errors import DataError
from simcore.base.record import dataclass
from simcore.base.units import KIB, TERA
from simcore.strategy.dialects.source import Source, without_files

#: Longest text that is computed, and the largest number that may come out.
_MOST_LETTERS, _MOST = 200, int(1000 * TERA)


def _quotient(a: int, b: int) -> int:
    """Division that rounds towards zero, as a shell's does."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_OF: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul,
    ast.Div: _quotient, ast.Mod: lambda a, b: a - b * _quotient(a, b),
}  # fmt: skip


def whole_number(text: str) -> int:
    """The number of a text of digits, + - * / % and brackets. Raises ValueError for others."""
    if len(text) > _MOST_LETTERS:
        raise ValueError("too long")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ZeroDivisionError, RecursionError, MemoryError) as err:
        raise ValueError(str(err)) from None


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_value(node.operand)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OF:
        found = _OF[type(node.op)](_value(node.left), _value(node.right))
    else:
        raise ValueError("no sum of whole numbers")
    if abs(found) > _MOST:
        raise ValueError("too large")
    return found


#: Largest text that variables may grow to: ``A=$B$B`` must not double without end.
_MAX_TEXT = 256 * KIB
#: How deep defaults of variables may lie in each other.
_DEFAULTS = 3
_ASSIGN = re.compile(r"^([A-Za-z_]\w*)(\+?)=(.*)$", re.DOTALL)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*|\d)(\[[@*]\])?(?::?-([^}]*))?\}|([A-Za-z_]\w*))")
_ARRAY_OPENS = re.compile(r"^\s*(?:(?:declare|local|export|readonly)\s+(?:-\w+\s+)?)?"
                          r"([A-Za-z_]\w*)(\+?)=\(")  # fmt: skip
_SBATCH = re.compile(r"^#SBATCH\s+(.+?)\s*$", re.MULTILINE)
_ARITHMETIC = re.compile(r"\$\(\((.+?)\)\)|\$\(expr\s+([^()]+?)\)|`expr\s+([^`]+?)`")
#: What sends a command's output elsewhere: >log, 2>&1, &>> log (of which the next word is a file).
_REDIRECTS = re.compile(r"^(?:\d*|&)(?:>>?|<)(&?[^>\s]*)$")
#: Arguments of the script itself, and one of them.
PASSED_ON = ("$@", "${@}", "$*")
_ARGUMENT = re.compile(r"\$(?:\d|\{\d\})")
#: What ``xpk workload create`` runs on each host (AI-Hypercomputer/xpk, core/docker_container.py).
_XPK = "--command="
_DECLARE = ("export", "local", "readonly", "declare")

Flag = tuple[str, list[str]]


@dataclass(frozen=True)
class Script:
    """The commands of a script, each a list of words, and its ``#SBATCH`` flags.

    ``environments``: the variables that are set for each command alone; ``variables``: those that
    the script sets for all; ``branched``: those of them that ``if`` or ``case`` set to another
    value, of which the last one is read.
    """

    commands: tuple[tuple[str, ...], ...]
    sbatch: dict[str, str]
    environments: tuple[dict[str, str], ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    branched: tuple[str, ...] = ()


def read_script(source: Source) -> Script:
    """The commands with variables substituted. Raises DataError for a quote that is not closed."""
    sbatch = _sbatch(source)
    variables: dict[str, list[str]] = {}
    nodes, per_node = sbatch.get("--nodes"), gpus_per_node(sbatch)
    for name, value in (
        ("SLURM_NNODES", nodes), ("SLURM_JOB_NUM_NODES", nodes),
        ("SLURM_GPUS_ON_NODE", per_node), ("SLURM_GPUS_PER_NODE", per_node),
    ):  # fmt: skip
        if value is not None:
            variables[name] = [value]
    commands: list[tuple[str, ...]] = []
    environments: list[dict[str, str]] = []
    branched: dict[str, None] = {}
    depth = 0
    for line, written in _logical_lines(source):
        text = _ARITHMETIC.sub(lambda m: _computed(m, variables), written)
        depth += _opens(text)
        before = dict(variables) if depth > 0 else variables
        if opened := _ARRAY_OPENS.match(text):
            words = _split(source, line, text[opened.end() :].rstrip().removesuffix(")"))
            _assign(source, line, variables, opened[1], opened[2], _fill(source, words, variables))
            branched |= _changed(before, variables)
            continue
        waiting = list(_parts(_split(source, line, text)))
        while waiting:
            command = _assigned(source, line, waiting.pop(0), variables)
            if command is not None:
                commands.append(tuple(w for w in command[0] if w not in PASSED_ON))
                environments.append(command[1])
                waiting[:0] = _parts(_split(source, line, _sent(command[0])))
        branched |= _changed(before, variables)
    joined = {name: " ".join(values) for name, values in variables.items()}
    return Script(tuple(commands), sbatch, tuple(environments), joined, tuple(branched))


def _sent(command: tuple[str, ...]) -> str:
    """The line of shell that a command has run on other machines: xpk's, of clusters of TPUs."""
    if command[0] != "xpk":
        return ""
    return next((w.removeprefix(_XPK) for w in command if w.startswith(_XPK)), "")


def _parts(words: list[str]) -> Iterator[list[str]]:
    """The commands of a line (``a && b | c``), without what redirects their output."""
    part: list[str] = []
    target = False
    for word in [*words, ";"]:
        if target:
            target = False
        elif word in ("&&", "||", "|", ";", ";;", "&"):
            if part:
                yield part
            part = []
        elif match := _REDIRECTS.match(word):
            target = not match[1]
        else:
            part.append(word)


def _assigned(
    source: Source, line: int, words: list[str], variables: dict[str, list[str]]
) -> tuple[tuple[str, ...], dict[str, str]] | None:
    """A command and the variables set for it alone; None where its words only set variables."""
    if words[0] in _DECLARE:
        words = [w for w in words[1:] if not w.startswith("-")]
    leading = 0
    while leading < len(words) and _ASSIGN.match(words[leading]):
        leading += 1
    if leading == len(words):
        for word in words:
            found = _ASSIGN.match(word)
            assert found is not None
            filled = _fill(source, [found[3]], variables) if found[3] else []
            _assign(source, line, variables, found[1], found[2], filled)
        return None
    set_here = [w.partition("=")[::2] for w in words[:leading]]
    environment = {n: _VARIABLE.sub(lambda m: _text(m, variables), v) for n, v in set_here}
    return tuple(_fill(source, words[leading:], variables)), environment


def _opens(text: str) -> int:
    """Branches that a line opens, less those that it closes."""
    first = text.split(maxsplit=1)[:1]
    return (first in (["if"], ["case"])) - bool(re.search(r"(?:^|;\s*)\s*(?:fi|esac)\b", text))


def _computed(match: re.Match[str], variables: dict[str, list[str]]) -> str:
    """The whole number that ``$((…))`` or ``$(expr …)`` is, of known variables; else its text."""

    def number(found: re.Match[str]) -> str:
        return " ".join(variables.get(found[1], [found[0]]))

    try:
        text = (match[1] or match[2] or match[3]).replace("\\*", "*")  # expr's, for the shell
        return str(whole_number(re.sub(r"\$?\{?([A-Za-z_]\w*)\}?", number, text)))
    except ValueError:
        return match[0]


def _changed(before: dict[str, list[str]], now: dict[str, list[str]]) -> dict[str, None]:
    """The variables that had another value before; none where ``before`` is ``now`` itself."""
    return {n: None for n, v in before.items() if before is not now and now[n] != v}


def allocator_grows(script: Script) -> bool:
    """Whether it has PyTorch's allocator run with expandable segments."""
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the former since PyTorch 2.9
    every = [script.variables, *script.environments]
    return any("expandable_segments:true" in e.get(n, "").lower() for e in every for n in names)


def gpus_per_node(sbatch: dict[str, str]) -> str | None:
    """GPUs a node from ``--gpus-per-node=8``, ``a100:8``, or ``--gres=gpu:a100:8``."""
    for key in ("--gpus-per-node", "--gres"):
        for part in sbatch.get(key, "").split(","):
            bits = part.split(":")
            if part and (key != "--gres" or bits[0] == "gpu"):
                last = bits[-1]
                return last if last.isdigit() else "1"
    return None


def flags(words: list[str] | tuple[str, ...]) -> Iterator[Flag]:
    """(flag, values) of ``--name value…`` and ``--name=value``; negative numbers are values."""
    name: str | None = None
    values: list[str] = []
    for word in words:
        if word.startswith("-") and len(word) > 1 and not re.match(r"^-[\d.]", word):
            if name is not None:
                yield name, values
            name, _, value = word.partition("=")
            values = [value] if "=" in word else []
        elif name is not None:
            values.append(word)
    if name is not None:
        yield name, values


def _sbatch(source: Source) -> dict[str, str]:
    found: dict[str, str] = {}
    short = {"-N": "--nodes", "-n": "--ntasks", "-G": "--gpus", "-J": "--job-name",
             "-p": "--partition", "-t": "--time", "-A": "--account", "-o": "--output",
             "-e": "--error", "-c": "--cpus-per-task"}  # fmt: skip
    for match in _SBATCH.finditer(source.text):
        line = source.text[: match.start()].count("\n") + 1
        for name, values in flags(_split(source, line, match[1])):
            found[short.get(name, name)] = " ".join(values)
    return found


def _logical_lines(source: Source) -> Iterator[tuple[int, str]]:
    """(line number, text) with continuations, open array brackets and open quotes joined."""
    parts: list[str] = []
    start, quote, array = 1, "", False
    text = without_files(source.text)[0] if "<<" in source.text else source.text
    for number, line in enumerate(text.splitlines(), 1):
        if not parts:
            start, array = number, bool(_ARRAY_OPENS.match(line))
        body, quote = _scan(line, quote)
        if body.rstrip().endswith("\\") and quote != "'":
            parts.append(body.rstrip()[:-1] + " ")
            continue
        parts.append(body)
        if quote or (array and not body.rstrip().endswith(")")):
            parts.append("\n")
            continue
        yield start, "".join(parts)
        parts = []
    if parts and (quote or array):
        what = "a quote" if quote else "a bracket"
        raise DataError(f"{what} is never closed", file=source.where, line=start)
    if parts:
        yield start, "".join(parts)


def _scan(line: str, quote: str) -> tuple[str, str]:
    """(line without its comment, quote that is open at its end)."""
    escaped = False
    for i, c in enumerate(line):
        if escaped:
            escaped = False
        elif c == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if c == quote else quote
        elif c in "'\"":
            quote = c
        elif c == "#" and (i == 0 or line[i - 1].isspace()):
            return line[:i], ""
    return line, quote


def _split(source: Source, line: int, text: str) -> list[str]:
    """The words of a line; semicolons are words of their own."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";")
    lexer.whitespace_split, lexer.commenters = True, ""
    try:
        return list(lexer)
    except ValueError as err:
        reason = str(err).lower()
        raise DataError(f"no command line: {reason}", file=source.where, line=line) from None


def _assign(
    source: Source, line: int, variables: dict[str, list[str]], name: str, plus: str,
    value: list[str],
) -> None:  # fmt: skip
    words = [*variables.get(name, []), *value] if plus else value
    if sum(map(len, words)) > _MAX_TEXT:
        raise DataError(f"variable {name} grows too long", file=source.where, line=line)
    if name in variables and any(map(_ARGUMENT.fullmatch, value)):
        return  # an option of the script that the line does not give: its default stays
    variables[name] = words


def _fill(source: Source, words: list[str], variables: dict[str, list[str]]) -> list[str]:
    """Words with ``$NAME`` and ``${NAME[@]}`` substituted; unset variables stay as written."""
    out: list[str] = []
    size = 0
    for word in words:
        whole = _VARIABLE.fullmatch(word)
        value = variables.get(whole[1] or whole[4]) if whole else None
        if whole and not any(value or ()) and whole[3] is not None:
            value = [_substituted(whole[3], variables)] if whole[3] else []
        apart = whole is None or not whole[2]  # "${NAME[@]}" keeps its elements whole
        new = [w for v in value for w in (v.split() if apart else [v])] if value is not None else [
            _substituted(word, variables)
        ]  # fmt: skip
        size += sum(map(len, new)) + len(new)
        if size > _MAX_TEXT:
            raise DataError("variables grow too long", file=source.where)
        out += new
    return out


def _substituted(word: str, variables: dict[str, list[str]]) -> str:
    """A word with its variables substituted, also those of defaults: ``${A:-${B:-8}}``."""
    for _ in range(_DEFAULTS):
        before, word = word, _VARIABLE.sub(lambda m: _text(m, variables), word)
        if word == before:
            break
    return word


def _text(match: re.Match[str], variables: dict[str, list[str]]) -> str:
    value = variables.get(match[1] or match[4])
    if any(value or ()) or match[3] is None:
        return match[0] if value is None else " ".join(value)
    return match[3]
