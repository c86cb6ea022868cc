"""What a detector has its host do between results of the device that it waits for.

Proposals are chosen image by image, and how many survive or are sampled decides the shapes of what
comes next: the host asks the device (``nonzero``, masks of booleans, the overlaps of suppression),
which has nothing to do until small operators are issued again. In kernels' worth of issuing, 10 us
(``host_issue`` of ``blind.yaml``); what precedes the first result is issued while the backbone
runs and not counted.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.base.units import GIGA, MICRO
from simcore.workload.graph import Affine, Kernel, Op

#: How proposals are suppressed: boxes of ``all_levels`` of an image together, or those of
#: ``each_level`` by themselves, with a kernel each for overlaps, matches and box codes or
#: (``_unfused``) these written out in small operators; or on the ``host`` processor.
PROPOSALS = ("all_levels", "each_level", "each_level_unfused", "host")
#: Where targets of masks are drawn: on the ``device`` from bitmaps, or from polygons whose numbers
#: the host reads one by one (``device_polygons``); polygons on the host (``host_polygons``), or
#: there cropped and scaled too (``host_cropped``); or inside a compiled ``graph``.
MASK_TARGETS = ("device", "device_polygons", "host_polygons", "host_cropped", "graph")
#: What figures below that were measured in seconds are divided by: one operator's issue [s].
_ISSUE_S = 10 * MICRO
#: What a result costs beside its operator: 5 to 7 us to submit the copy (Wu et al. 2026,
#: arXiv:2602.21548, section 5.2), and the kernel before it, 3 us, which nothing hides.
_WAIT = 1.0
#: A byte from pages that a loader's worker wrote into shared memory, met for the first time, into
#: a staging buffer: 4 GB/s on a core of a Xeon (torch 2.13, batches of 8 images of 800 x 1216).
_COPY_PER_BYTE = 1.0 / (4.0 * GIGA) / _ISSUE_S
#: Suppression on the host: n boxes' overlaps, n x n / 64 words, are copied to it, and it goes
#: through them. 58 us for 2,000 boxes, 9 for the 741 of the coarsest level, 1,420 for the 8,741
#: of all five levels at once (C++, a core of a Xeon, seven of ten boxes kept).
_BY_LEVEL = (4 * 58 + 9) * MICRO / _ISSUE_S
_AT_ONCE = 1420 * MICRO / _ISSUE_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Operators, and the waits among them, of a step, of each image, of each positive box.

    ``launches`` of a step wait for nothing: they are issued ahead as all others.
    """

    step: float = 0.0
    image: float = 0.0
    positive: float = 0.0
    launches: float = 0.0

    def op(self, name: str, positives: float, elems: float, *, bwd: float = 0.0) -> Op:
        """As an operator whose small kernels move ``elems`` a sample together."""
        awaited = Affine(self.step, self.image + self.positive * positives)
        fwd = Kernel(kind="elementwise", high=elems, launches=self.launches, awaited=awaited)
        back = (Kernel(kind="elementwise", high=elems, launches=bwd),) if bwd else ()
        return Op(name=name, fwd=(fwd,), bwd=back)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Ranking and matching of proposals, sampling of boxes, levels of regions for each head."""

    proposals: Share
    boxes: Share
    regions: Share


def loaded(pixels: float, bytes_per_pixel: float) -> Share:
    """Images from the loader's processes to the device: the copy from pageable memory."""
    return Share(image=bytes_per_pixel * pixels * _COPY_PER_BYTE)


def _ops(issues: float, waits: float = 0.0) -> float:
    return issues + _WAIT * waits


#: ``all_levels``: by the dispatches of torchvision 0.27's maskrcnn_resnet50_fpn, second step of
#: torch 2.13, with one image and with two; ``index_put_`` of a number at a mask of booleans
#: waits for nothing.
#: ``each_level``: read in a published program (docs/model.md, Host, names those that were read):
#: each level of each image is selected, suppressed and cut for itself, 13 operators and 3 waits
#: (modeling/rpn/inference.py, csrc/cuda/nms.cu); overlaps, matches and codes are a kernel each.
#: ``each_level_unfused``: read likewise; clipping, sizes, overlaps, matches and codes are written
#: out, 9 operators more for each level, 12, 6 and 13 for each of these.
#: ``host``: read in a program for TensorFlow 2 (ops/roi_ops.py): under ``tf.device('CPU:0')``
#: combined_non_max_suppression goes through all boxes of a level until 2,000 are kept, each held
#: against those before. Levels and images run beside each other; the longest, 3,276 boxes of which
#: 1,520 are kept with 2 million overlaps, takes a core of a Xeon 23 ms (the same algorithm in C++;
#: 14 to 18 for the finer levels). All else is one graph, of so many small kernels, an assumption.
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
#: ``device``: torchvision's, counted as above. ``host_polygons``: drawn there one by one
#: (``rasterize_polygons_within_box``), 17 us each (pycocotools 2.0.11, 25 vertices).
#: ``device_polygons``: polygons come as numbers that the host reads one by one, twice for each
#: positive box (structures/segmentation_mask.py). ``host_cropped``: cropped, scaled and drawn
#: there, 39 us each (mask_head/loss.py; torch 2.13, pycocotools 2.0.11). ``graph``: as ``host``.
MASKS: dict[str, Share] = {
    "device": Share(step=_ops(5, 1), image=_ops(9, 1)),
    "device_polygons": Share(step=_ops(5, 1), image=_ops(33, 5), positive=2 * _ops(1, 1)),
    "host_polygons": Share(step=_ops(5, 4), image=_ops(9, 3), positive=17 * MICRO / _ISSUE_S),
    "host_cropped": Share(
        step=_ops(5, 1), image=_ops(51, 5), positive=2 * _ops(1, 1) + 39 * MICRO / _ISSUE_S
    ),
    "graph": Share(launches=200.0),
}
#: Bytes a pixel that the loader hands over in pageable memory: torchvision scales images on the
#: device, and what is copied is COCO's 640 x 480 in fp32, 3.8 bytes a pixel of 800 x 1216. Images
#: that were scaled before take 3 as bytes, 12 in fp32.
LOADER_BYTES_PER_PIXEL = 3.8
#: Matching of RetinaNet's anchors, image by image: 95 operators and 6 waits of each in torchvision
#: (``RetinaNetHead.compute_loss`` and ``compute_loss`` of the model), counted as above.
RETINANET = Share(step=_ops(2), image=_ops(95, 6))
