"""Number of a device's NVLinks that disjoint rings over the first devices of a mesh use."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Final

#: Largest number of devices, those of the largest meshes: (8 - 1)! / 2 rings are tried for eight.
MOST_DEVICES: Final = 8

Links = Sequence[Sequence[int]]


def mesh_rings(links: Links) -> tuple[int, ...]:
    """Links per device that disjoint rings over the first 2, 3, … devices use.

    ``links`` [n, n]: number of links between each pair. A ring uses one link of each pair that it
    joins, so two links of each device; two devices use all links between them. Where no ring can
    visit each device once, but all devices are connected, one ring that visits some devices twice
    counts: two links. Zero where some devices are not connected.
    """
    return tuple(_links_of_rings(links, n) for n in range(2, len(links) + 1))


def _links_of_rings(links: Links, n: int) -> int:
    if n == 2:
        return links[0][1]
    rings = [
        tuple(zip(ring, (*ring[1:], 0), strict=True))
        for ring in ((0, *rest) for rest in permutations(range(1, n)))
        if ring[1] < ring[-1]
        and all(links[a][b] for a, b in zip(ring, (*ring[1:], 0), strict=True))
    ]
    left = {(a, b): links[a][b] for a in range(n) for b in range(n)}
    most = min(sum(links[a][:n]) for a in range(n)) // 2
    packed = _pack(rings, left, most)
    return 2 * packed if packed else 2 * _joined(links, n)


def _pack(
    rings: list[tuple[tuple[int, int], ...]], left: dict[tuple[int, int], int], most: int
) -> int:
    """Largest number of rings, up to ``most``, that use each remaining link at most once."""
    best = 0
    for i, ring in enumerate(rings):
        if best == most:
            break
        if not all(left[hop] for hop in ring):
            continue
        for a, b in ring:
            left[a, b] -= 1
            left[b, a] -= 1
        usable = [r for r in rings[i:] if all(left[hop] for hop in r)]
        best = max(best, 1 + _pack(usable, left, most - 1))
        for a, b in ring:
            left[a, b] += 1
            left[b, a] += 1
    return best


def _joined(links: Links, n: int) -> bool:
    """Whether links connect all of the first ``n`` devices, directly or through others."""
    reached, todo = {0}, [0]
    while todo:
        at = todo.pop()
        new = {b for b in range(n) if links[at][b]} - reached
        reached |= new
        todo += new
    return len(reached) == n
