"""Work of a detector's host between results of the device for which it waits.

Proposals are chosen image by image, and the number that survive or are sampled decides the shapes
of the next tensors. The host asks the device for it (``nonzero``, boolean masks, the overlaps of
suppression); the device then has nothing to do until small operators are issued again. The unit is
the issue of one kernel, 10 us (``host_issue`` of ``blind.yaml``). Operators before the first result
are issued while the backbone runs and are not counted.
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.base.units import GIGA, MICRO
from simcore.workload.graph import Affine, Kernel, Op

#: How proposals are suppressed. ``all_levels``: boxes of all levels of an image together;
#: ``each_level``: those of each level separately, with one kernel each for overlaps, matches and
#: box codes; ``each_level_unfused``: the same with these in small operators; ``host``: on the host
#: processor.
PROPOSALS = ("all_levels", "each_level", "each_level_unfused", "host")
#: Where targets of masks are drawn. ``device``: there, from bitmaps; ``device_polygons``: there,
#: from polygons whose numbers the host reads one by one; ``host_polygons``: polygons on the host;
#: ``host_cropped``: polygons that are also cropped and scaled there; ``graph``: inside a compiled
#: graph.
MASK_TARGETS = ("device", "device_polygons", "host_polygons", "host_cropped", "graph")
#: Time of one operator's issue [s], by which figures below that were measured in seconds are
#: divided.
_ISSUE_S = 10 * MICRO
#: Cost of a result in addition to its operator: 5 to 7 us to submit the copy (Wu et al. 2026,
#: arXiv:2602.21548, section 5.2), and 3 us of the kernel before it, which nothing hides.
_WAIT = 1.0
#: Cost per byte of a copy into a staging buffer, from pages that a loader's worker wrote into
#: shared memory and that are read for the first time: 4 GB/s on a core of a Xeon (torch 2.13,
#: batches of 8 images of 800 x 1216).
_COPY_PER_BYTE = 1.0 / (4.0 * GIGA) / _ISSUE_S
#: Cost of suppression on the host: the overlaps of n boxes, n x n / 64 words, are copied to it, and
#: it goes through them. 58 us for 2,000 boxes, 9 us for the 741 of the coarsest level, 1,420 us for
#: the 8,741 of all five levels at once (C++, a core of a Xeon, seven of ten boxes survive).
_BY_LEVEL = (4 * 58 + 9) * MICRO / _ISSUE_S
_AT_ONCE = 1420 * MICRO / _ISSUE_S


@dataclass(frozen=True, kw_only=True)
class Share:
    """Host work per step, per image and per positive box, in kernels issued, waits included.

    ``launches``: kernels per step for which nothing waits: they are issued ahead like all others.
    """

    step: float = 0.0
    image: float = 0.0
    positive: float = 0.0
    launches: float = 0.0

    def op(self, name: str, positives: float, elems: float, *, bwd: float = 0.0) -> Op:
        """The work as an operator; its small kernels move ``elems`` elements per sample in all."""
        awaited = Affine(self.step, self.image + self.positive * positives)
        fwd = Kernel(kind="elementwise", high=elems, launches=self.launches, awaited=awaited)
        back = (Kernel(kind="elementwise", high=elems, launches=bwd),) if bwd else ()
        return Op(name=name, fwd=(fwd,), bwd=back)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Host work of proposals (ranking, matching), sampled boxes, and each head's region levels."""

    proposals: Share
    boxes: Share
    regions: Share


def loaded(pixels: float, bytes_per_pixel: float) -> Share:
    """Host work of copying images from the loader's pageable memory to the device."""
    return Share(image=bytes_per_pixel * pixels * _COPY_PER_BYTE)


def _ops(issues: float, waits: float = 0.0) -> float:
    return issues + _WAIT * waits


#: ``all_levels``: from the operators that torchvision 0.27's maskrcnn_resnet50_fpn dispatches in
#: the second step of torch 2.13, with one image and with two; ``index_put_`` of a number at a
#: boolean mask waits for nothing. ``each_level``: read in the source of a published program
#: (docs/families.md, Detectors, names these programs): each level of each image is selected,
#: suppressed and cut separately, 13 operators and 3 waits (modeling/rpn/inference.py,
#: csrc/cuda/nms.cu); overlaps, matches and codes are one kernel each. ``each_level_unfused``: read
#: likewise; clipping, sizes, overlaps, matches and codes are small operators, 9 more for each
#: level, 12, 6 and 13 for each of these. ``host``: read in a program for TensorFlow 2
#: (ops/roi_ops.py): under ``tf.device('CPU:0')`` combined_non_max_suppression goes through all
#: boxes of a level until 2,000 have survived, comparing each with those before it. Levels and
#: images run in parallel; the
#: longest, 3,276 boxes of which 1,520 survive with 2 million overlaps, takes a core of a Xeon 23 ms
#: (the same algorithm in C++; 14 to 18 ms for the finer levels). Everything else is one graph of
#: the given number of small kernels, an assumption.
SELECTIONS: dict[str, Selection] = {
    "all_levels": Selection(
        proposals=Share(step=_ops(103, 2), image=_ops(73, 6) + _AT_ONCE),
        boxes=Share(step=_ops(38), image=_ops(46, 3)),
        regions=Share(step=_ops(34, 4), image=_ops(4)),
    ),
    "each_level": Selection(
        proposals=Share(step=_ops(70, 7), image=_ops(5 * 13 + 9 + 32, 5 * 3 + 2 + 4) + _BY_LEVEL),
        boxes=Share(step=_ops(15, 1), image=_ops(37, 5)),
        regions=Share(step=_ops(40, 4), image=_ops(6)),
    ),
    "each_level_unfused": Selection(
        proposals=Share(step=_ops(70, 7), image=_ops(5 * 22 + 9 + 63, 5 * 2 + 2 + 5) + _BY_LEVEL),
        boxes=Share(step=_ops(15, 1), image=_ops(68, 5)),
        regions=Share(step=_ops(40, 4), image=_ops(6)),
    ),
    "host": Selection(
        proposals=Share(step=23e3 * MICRO / _ISSUE_S, launches=420.0),
        boxes=Share(launches=400.0),
        regions=Share(launches=30.0),
    ),
}
#: ``device``: torchvision's, counted as above. ``host_polygons``: drawn on the host one by one
#: (``rasterize_polygons_within_box``), 17 us each (pycocotools 2.0.11, 25 vertices).
#: ``device_polygons``: polygons are numbers that the host reads one by one, twice for each positive
#: box (structures/segmentation_mask.py). ``host_cropped``: cropped, scaled and drawn on the host,
#: 39 us each (mask_head/loss.py; torch 2.13, pycocotools 2.0.11). ``graph``: as ``host``.
MASKS: dict[str, Share] = {
    "device": Share(step=_ops(5, 1), image=_ops(9, 1)),
    "device_polygons": Share(step=_ops(5, 1), image=_ops(33, 5), positive=2 * _ops(1, 1)),
    "host_polygons": Share(step=_ops(5, 4), image=_ops(9, 3), positive=17 * MICRO / _ISSUE_S),
    "host_cropped": Share(
        step=_ops(5, 1), image=_ops(51, 5), positive=2 * _ops(1, 1) + 39 * MICRO / _ISSUE_S
    ),
    "graph": Share(launches=200.0),
}
#: Bytes per pixel that the loader delivers in pageable memory. torchvision scales images on the
#: device: COCO's 640 x 480 in fp32 are copied, 3.8 bytes per pixel of 800 x 1216. Images that the
#: loader scales have 3 bytes per pixel, or 12 in fp32.
LOADER_BYTES_PER_PIXEL = 3.8
#: Matching of RetinaNet's anchors, image by image: 95 operators and 6 waits each in torchvision
#: (``RetinaNetHead.compute_loss`` and ``compute_loss`` of the model), counted as above.
RETINANET = Share(step=_ops(2), image=_ops(95, 6))
