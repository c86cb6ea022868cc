"""Records of fabrics: ``hardware_db/fabrics`` and users' files, each of one kind."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from simcore.base.database import Database
from simcore.base.errors import DataError, InvalidConfig, SimcoreError, UnknownName
from simcore.base.figures import Part, Reads, Record, entry
from simcore.base.lookup import Registry
from simcore.base.untrusted import MAX_BYTES, decode, untrusted_yaml
from simcore.hardware.cluster import nic_bytes_per_s, parse_network
from simcore.hardware.fabrics.topology import Routing, Topology

#: What a job sends: around a ring of its nodes, along NCCL's double binary tree, from every node to
#: every other, or to the next node of a chain (as the stages of a pipeline do).
Pattern = Literal["ring", "tree", "all-to-all", "chain"]
#: Most nodes and links of a fabric, and most other jobs on it.
MOST_NODES, MOST_CABLES, MOST_JOBS = 20_000, 40_000, 16
#: Most other jobs that send only part of the time: each doubles the states of the fabric.
MOST_PARTLY_BUSY = 5
_RANGE = re.compile(r"^(\d+)(?:-(\d+)(?::(\d+))?)?$")
_HOSTS = re.compile(r"^([A-Za-z_][\w.-]*)(?:\[([^\]]*)\])?$")


def node_range(text: str) -> tuple[int, ...]:
    """The nodes that ``0-15,32-62:2`` names, in that order; ``:2`` is every second.

    Raises ValueError.
    """
    nodes: dict[int, None] = {}
    for part in text.replace(" ", "").split(","):
        match = _RANGE.match(part)
        if match is None or len(part) > 20:
            raise ValueError(f"{part!r:.40} is no range of nodes such as 0-15 or 0-30:2")
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first or last >= MOST_NODES or step < 1:
            raise ValueError(f"{part!r}: nodes count up from 0 to {MOST_NODES - 1:,} at most")
        nodes.update(dict.fromkeys(range(first, last + 1, step)))
    return tuple(nodes)


def host_list(text: str) -> tuple[str, ...]:
    """The names that ``leaf[0-3]`` stands for, in Slurm's notation. Raises ValueError."""
    match = _HOSTS.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r:.40} is no name such as leaf0 or leaf[0-3]")
    if match[2] is None:
        return (match[1],)
    return tuple(f"{match[1]}{i}" for i in node_range(match[2]))


def rate_of(text: str) -> float:
    """Bytes/s of payload per direction of ``ib-ndr``, ``8xib-ndr`` or ``400 Gbit/s``.

    Raises ValueError.
    """
    try:
        nics = parse_network(text)
    except SimcoreError as err:
        raise ValueError(str(err)) from None
    return sum(map(nic_bytes_per_s, nics))


def _rate(text: str) -> str:
    rate_of(text)
    return text


def _nodes(text: str) -> str:
    node_range(text)
    return text


Rate = Annotated[str, Reads(_rate, after=True)]
NodeRange = Annotated[str, Reads(_nodes, after=True)]


class OtherJob(Part):
    """Another job on the same fabric: its nodes, what it sends, and the share of time it does."""

    name: str = ""
    nodes: NodeRange
    sends: Pattern = "ring"
    busy: float = entry(default=1.0, gt=0.0, le=1.0)


class FabricRecord(Record):
    """What all kinds of fabric state.

    ``job_nodes``: the nodes that jobs are placed on, in the order of their ranks; by default all
    that no other job has. ``jobs``: other jobs, which send at the same time.
    """

    kind: str
    full_name: str = ""
    source: str = ""
    routing: Routing = "spread"
    job_nodes: NodeRange | None = None
    jobs: tuple[OtherJob, ...] = entry(default=(), max_length=MOST_JOBS)

    @property
    def most_nodes(self) -> int:
        """Nodes that the fabric can join."""
        return MOST_NODES

    @property
    def oversubscription(self) -> float:
        """Bandwidth of the nodes over that of the narrowest tier of switches above them."""
        return 1.0

    def topology(self, n_nodes: int, node_bytes_per_s: float) -> Topology:
        """The graph of the first ``n_nodes`` nodes, whose NICs have this rate together."""
        raise NotImplementedError

    def in_words(self) -> str:
        """What it is, in one line."""
        raise NotImplementedError

    @property
    def by_rails(self) -> bool:
        """Whether each leaf switch joins the NICs of equal index of its nodes."""
        return False

    @property
    def assumed(self) -> str:
        """What a prediction on it assumes, as one sentence."""
        text = f"fabric: {self.in_words()}"
        if self.jobs:
            always = all(job.busy == 1.0 for job in self.jobs)
            names = ", ".join(job.name or f"nodes {job.nodes}" for job in self.jobs)
            text += f"; {names} send{'s' * (len(self.jobs) == 1)} "
            text += "all the time" if always else "for the stated shares of the time"
        return text

    def placed(self, n_nodes: int) -> tuple[int, ...]:
        """The nodes of the fabric on which a job of ``n_nodes`` runs. Raises InvalidConfig."""
        others = {n for job in self.jobs for n in node_range(job.nodes)}
        taken = [max(others, default=-1) + 1]
        if self.job_nodes:
            free: tuple[int, ...] = node_range(self.job_nodes)
            taken.append(max(free) + 1)
        else:
            most = min(self.most_nodes, n_nodes + len(others))
            free = tuple(n for n in range(most) if n not in others)
        if max(taken) > self.most_nodes:
            raise InvalidConfig([f"fabric {self.name!r} has {self.most_nodes:,} nodes, numbered "
                                 f"from 0, and its jobs name node {max(taken) - 1:,}"])  # fmt: skip
        if n_nodes > len(free):
            besides = " besides its other jobs" if others and not self.job_nodes else ""
            raise InvalidConfig([f"fabric {self.name!r} has {len(free):,} nodes for a job"
                                 f"{besides}, not {n_nodes:,}"])  # fmt: skip
        return free[:n_nodes]

    def of_job(self, n_nodes: int, node_bytes_per_s: float) -> tuple[Topology, tuple[int, ...]]:
        """The graph that a job of ``n_nodes`` and the other jobs need, and the job's nodes."""
        nodes = self.placed(n_nodes)
        used = [*nodes, *(n for job in self.jobs for n in node_range(job.nodes))]
        return self.topology(max(used) + 1, node_bytes_per_s), nodes


#: By the name in a record's ``kind``; each file has one class.
KINDS: Registry[type[FabricRecord]] = Registry(
    "kind of fabric",
    {
        name: f"simcore.hardware.fabrics.{file}"
        for name, file in {
            "fat-tree": "fat_tree",
            "rail-optimised": "rails",
            "torus": "torus",
            "dragonfly": "dragonfly",
            "links": "links",
        }.items()
    },
)


def read_fabric(text: str, file: str) -> FabricRecord:
    """The fabric in untrusted YAML text; messages call the text ``file``. Raises DataError."""
    from simcore.base.figures import check_record

    data = untrusted_yaml(text, file)
    kind: Any = data.get("kind") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(kind, str) or kind not in KINDS:
        known = ", ".join(KINDS)
        line = None if kind is None else 1 + text[: text.find("kind:")].count("\n")
        raise DataError(f"a fabric needs a kind, one of {known}", file=file, line=line, key="kind")
    record = check_record(data, KINDS[kind], text, file)
    if sum(job.busy < 1.0 for job in record.jobs) > MOST_PARTLY_BUSY:
        raise DataError(f"at most {MOST_PARTLY_BUSY} jobs may be busy part of the time",
                        file=file, key="jobs")  # fmt: skip
    return record


class _Fabrics(Database[FabricRecord]):
    """The shipped and the user's fabrics, each read as the class of its kind."""

    def _read(self, path: Path) -> FabricRecord:
        try:
            return _loaded(path, path.stat().st_mtime_ns)
        except OSError as err:
            raise DataError(f"cannot be read: {err.strerror}", file=path) from None


@lru_cache(maxsize=64)
def _loaded(path: Path, _changed_ns: int) -> FabricRecord:
    with path.open("rb") as file:
        return read_fabric(decode(file.read(MAX_BYTES + 1), str(path), MAX_BYTES), str(path))


FABRICS = _Fabrics("fabric", "hardware_db/fabrics", FabricRecord)


def fabric_names() -> list[str]:
    """Names of the shipped and the user's fabrics."""
    return FABRICS.names()


def fabric_named(name: str) -> FabricRecord:
    """The fabric of a name, or in a ``.yaml`` file. Raises UnknownName or DataError."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DataError("no such fabric file", file=path)
        return FABRICS._read(path)
    if FABRICS.path(name) is None:
        raise UnknownName("fabric", name, fabric_names(), "(or a .yaml file)")
    return FABRICS[name]
