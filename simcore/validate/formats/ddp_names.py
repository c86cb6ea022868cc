"""Names of the data-parallel table as simcore's own: data only, read by ``ddp.py``.

A rule holds where the row's model is ``model`` and every part of ``where`` (parted by bars)
stands in its source, framework, task, input shape, notes or ``precision=…``, in lower case; the
first that holds decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from simcore.workload.models import Scalar


@dataclass(frozen=True, slots=True)
class Rule:
    """``entry`` of models_db for a row; ``precision`` where the source's word means another.

    ``optimizer``, ``optimizer_impl`` where the source's loop has another than the entry's;
    ``seq_len`` false where the entry fixes its length. ``main_grads``: the gradients' width where
    it is not the weights'.
    """

    model: str
    entry: str
    where: str = ""
    precision: dict[str, str] = field(default_factory=dict)
    optimizer: str | None = None
    optimizer_impl: str | None = None
    seq_len: bool = False
    main_grads: str = ""


#: apex amp O2: fp16 weights and gradients, fp32 master copies. NVIDIA's PyTorch BERT, GNMT and
#: Transformer-XL scripts run it, and the sources' communication volumes say so (2 B a parameter).
O2 = {"amp-fp16": "fp16"}
_TORCH = ("lambdal", "deeplearningexamples | pytorch")

#: Fine-tuning without AMP updates by ``BertAdam`` of optimization.py, a loop in Python, not by
#: apex's FusedAdam (run_squad.py, ``if args.fp16``).
_IN_FP32 = tuple(
    Rule(
        f"BERT-{size}", f"bert-{size.lower()}-apex", f"{source} | seq384 | precision={p}", O2,
        "bert-adam", "foreach", seq_len=True,
    )
    for size in ("Base", "Large") for source in _TORCH for p in ("fp32", "tf32")
)  # fmt: skip

#: NVIDIA's BERTs in TensorFlow. With XLA: pre-training (``run_pretraining*.sh``) and mixed
#: precision. Fine-tuning in fp32 runs without: BioBERT's and ELECTRA's scripts give it with mixed
#: precision alone. Of BERT the sources say both, its READMEs that fp32 runs without ("For SQuAD
#: 2.0 FP32 training without XLA"), ``squad_config.sh`` use_xla=true: the READMEs are followed,
#: which give no such command for TensorFlow 1 on A100 alone.
_TENSORFLOW = tuple(
    Rule(model, entry, f"deeplearningexamples | tensorflow | {where}", seq_len=True)
    for model, task, graph, xla in (
        ("BERT-Large", "tensorflow1 | squad | precision=tf32", "", "bert-large-xla"),
        ("BERT-Large", "squad", "bert-large-tensorflow", "bert-large-xla"),
        ("BERT-Base", "ner fine-tune", "bert-base-tensorflow", "bert-base-xla"),
        ("ELECTRA-Base", "squad", "electra-base-tensorflow", "bert-base-xla"),
        ("BERT-Large", "pretrain", "", "bert-large-xla-pretraining"),
        ("BERT-Base", "pretrain", "", "bert-base-xla-pretraining"),
    )
    for entry, where in (
        *((graph, f"{task} | precision={p}") for p in ("fp32", "tf32") if graph), (xla, task),
    )
)  # fmt: skip

RULES: tuple[Rule, ...] = (
    *_IN_FP32,
    *_TENSORFLOW,
    *(Rule("BERT-Large", "bert-large-apex", w, O2, seq_len=True) for w in _TORCH),
    *(Rule("BERT-Base", "bert-base-apex", w, O2, seq_len=True) for w in _TORCH),
    # Paddle's AMP has softmax, norms and GELU on its white list: activations are 16 bit, weights
    # and gradients fp32 (program.py, dist_optimizer, create_strategy)
    Rule(
        "BERT-Large",
        "bert-large-paddle",
        "paddlepaddle | precision=amp",
        O2,
        seq_len=True,
        main_grads="fp32",
    ),
    # DeepSpeed halves the module (engine.py, _configure_distributed_model) and runs no autocast
    Rule("BERT-Large", "bert-large", "deepspeedai", O2, seq_len=True),
    Rule("BERT-Large", "bert-large", "no optimizer", optimizer="sgd-plain", seq_len=True),
    Rule("BERT-Large", "bert-large", seq_len=True),
    Rule("BERT-Base", "bert-base", seq_len=True),
    Rule("ELECTRA-Base", "bert-base", seq_len=True),
    Rule("ResNet50-v1.5", "resnet-50-nchw", "layout=nchw | precision=amp"),
    Rule("ResNet50-v1.5", "resnet-50-fused", "mxnet | precision=amp"),  # runner, --fuse-bn-relu
    Rule("ResNet50-v1.5", "resnet-50-fused", "paddlepaddle | precision=amp"),  # --fuse-resunit
    Rule("ResNet50-v1.5", "resnet-50-fused", "mlcommons"),
    Rule("ResNet50-v1.5", "resnet-50-xla", "tensorflow1 | ; xla"),
    Rule("ResNet50-v1.5", "resnet-50"),
    Rule("ResNet-50", "resnet-50"),
    Rule("ResNet-152", "resnet-152"),
    Rule("ResNeXt101-32x4d", "resnext-101-32x4d-xla", "tensorflow1 | ; xla"),
    Rule("ResNeXt101-32x4d", "resnext-101-32x4d"),
    Rule("SE-ResNeXt101-32x4d", "se-resnext-101-32x4d-16", "deeplearningexamples | pytorch"),
    Rule("SE-ResNeXt101-32x4d", "se-resnext-101-32x4d-xla", "tensorflow1 | ; xla"),
    Rule("SE-ResNeXt101-32x4d", "se-resnext-101-32x4d"),
    Rule("EfficientNet-B0", "efficientnet-b0-autoaugment", "deeplearningexamples | tensorflow2"),
    Rule("EfficientNet-B4", "efficientnet-b4-autoaugment", "deeplearningexamples | tensorflow2"),
    Rule("EfficientNetV2-S", "efficientnet-v2-s-randaugment", "deeplearningexamples | tensorflow2"),
    Rule("EfficientNet-B0", "efficientnet-b0-pillow", "deeplearningexamples | pytorch"),
    Rule("EfficientNet-widese-B0", "efficientnet-widese-b0-pillow", "examples | pytorch"),
    Rule("EfficientNet-B0", "efficientnet-b0"),
    Rule("EfficientNet-B4", "efficientnet-b4"),
    Rule("EfficientNet-widese-B0", "efficientnet-widese-b0"),
    Rule("EfficientNet-widese-B4", "efficientnet-widese-b4"),
    Rule("VGG16", "vgg-16"),
    Rule("AlexNet", "alexnet"),
    Rule("SSD300-R50", "ssd300-r50-nchw", "lambdal | precision=amp"),
    Rule("SSD300-R50", "ssd300-r50"),
    Rule("MaskRCNN-R50-FPN", "mask-rcnn-r50-fpn-amp", "pytorch | precision=amp"),
    Rule("MaskRCNN-R50-FPN", "mask-rcnn-r50-fpn-static", "tensorflow"),
    Rule("MaskRCNN-R50-FPN", "mask-rcnn-r50-fpn"),
    Rule("FasterRCNN-R50-FPN", "faster-rcnn-r50-fpn"),
    Rule("RetinaNet-R50-FPN", "retinanet-r50-fpn"),
    Rule("EfficientDet-D0", "efficientdet-d0-pillow", "deeplearningexamples | pytorch"),
    Rule("EfficientDet-D0", "efficientdet-d0-xla", "deeplearningexamples | tensorflow2"),
    Rule("EfficientDet-D0", "efficientdet-d0"),
    Rule("WaveGlow-512", "waveglow-512-nchw", "precision=amp"),
    Rule("WaveGlow-512", "waveglow-512"),
    Rule("GNMT-v2", "gnmt-v2", "", O2),
    Rule("Transformer-XL-base", "transformer-xl-base-tensorflow", "tensorflow1"),
    Rule("Transformer-XL-base", "transformer-xl-base-full-softmax", "full softmax", O2),
    Rule("Transformer-XL-base", "transformer-xl-base", "", O2),
    Rule("Transformer-XL-large", "transformer-xl-large-full-softmax", "full softmax", O2),
    Rule("Transformer-XL-large", "transformer-xl-large", "", O2),
    Rule("MPT-125m", "mpt-125m", seq_len=True),
    Rule("MPT-350m", "mpt-350m", seq_len=True),
    Rule("MPT-760m", "mpt-760m", seq_len=True),
    Rule("MPT-1b", "mpt-1b", seq_len=True),
    Rule("GPT2-Large-774M", "gpt2-large", "no optimizer", optimizer="sgd-plain"),
    Rule("DiT-XL/2", "dit-xl-2-features", "pre-extracted"),
    Rule("DiT-XL/2", "dit-xl-2"),
    Rule("U-ViT-H/2", "u-vit-h-2-math", "xformers=off"),
    Rule("U-ViT-H/2", "u-vit-h-2"),
    Rule("STDiT-XL/2", "stdit-xl-2"),
    Rule("timm:vit_tiny_patch16_224", "vit-ti-16", "3x224x224"),
    Rule("timm:deit_tiny_patch16_224", "vit-ti-16", "3x224x224"),
    Rule("timm:vit_small_patch16_224", "vit-s-16", "3x224x224"),
    Rule("timm:deit_small_patch16_224", "vit-s-16", "3x224x224"),
    Rule("timm:vit_small_patch32_224", "vit-s-32", "3x224x224"),
    Rule("timm:vit_base_patch32_224", "vit-b-32", "3x224x224"),
    Rule("timm:vit_large_patch32_224", "vit-l-32", "3x224x224"),
    Rule("timm:deit_base_patch16_224", "vit-b-16", "3x224x224"),
)

#: Models of vision libraries that models_db has no entry of are traced. Their rows' program is
#: timm's benchmark.py, whose defaults are ``--opt sgd`` and ``--momentum 0.9``.
TRACED_OPTIMIZER = "sgd"
#: PyTorch's scaled_dot_product_attention came with 2.0: before it attention was written out.
FUSED_ATTENTION_SINCE = (2, 0)

#: NVIDIA's PyTorch examples (Lambda's benchmark runs them too) that send gradients after backward.
#: Mask R-CNN asks for it (apex, ``delay_allreduce=True``). WaveGlow's loss has the
#: determinant of each flow's 1x1 convolution, whose derivative is an inverse that the host waits
#: for. BERT's fine-tuning, GNMT and SSD leave apex's DistributedDataParallel as it is, which should
#: send under backward: over PCIe they lose the whole exchange at the wire's rate whatever the
#: length of backward, and a profile in NVIDIA/apex issue 33 shows the same.
SENT_LAST = ("BERT-", "GNMT", "WaveGlow", "MaskRCNN", "SSD300")
#: Those that took torch's own in February 2021 (ConvNets' changelog), and so what of PyTorch came
#: with the examples before: 1.7 with their release of October 2020.
SENT_LAST_ONCE = ("ResNet50", "ResNeXt101", "SE-ResNeXt101")
SENT_LAST_BEFORE = (1, 8)
#: Examples whose update is torch.optim's own, which goes through the tensors in a Python loop, as
#: ``clip_grad_norm_`` does, before PyTorch 2.0 made multi-tensor kernels the default on CUDA
#: (pytorch/pytorch pull requests 92306 and 95862). NVIDIA's published tables are all of 1.x. Listed
#: where the host cannot issue it under backward: WaveGlow's waits for each flow's determinant,
#: GNMT's for the gradients' norm (``fp_optimizers.py`` asks whether it is finite).
LOOPED = ("WaveGlow", "GNMT")
LOOPED_BEFORE = (2, 0)
#: Words of a note that say that layers run again in backward.
RECOMPUTED = ("gradient checkpointing ON", "act_ckpt=True")
#: Sources that ran llm-foundry, whose rows in PURE are of PyTorch 1.13.
LLM_FOUNDRY = ("mosaicml/llm-foundry",)
LLM_FOUNDRY_TORCH_1 = "mp PURE"
#: What mmdetection's models have of that program, by architecture (configs/_base_/models:
#: ``norm_eval=True`` with ``requires_grad=True``; models/losses/focal_loss.py calls mmcv's kernel
#: on CUDA).
MMDET_SOURCE = "open-mmlab/mmdetection"
MMDET: dict[str, dict[str, Scalar]] = {
    "rcnn": {"norms": "evaluated"},
    "retinanet": {"norms": "evaluated", "fused_focal": True},
}
#: Two-stage detectors: parts of a row that must all stand in it, and whose host picks proposals
#: (workload/archs/proposals.py); of models built for TensorFlow the entry says it.
DETECTORS: tuple[tuple[str, dict[str, Scalar]], ...] = (
    (
        "deeplearningexamples | pytorch",
        {
            "proposals": "each_level",
            "mask_targets": "device_polygons",
            "loader_bytes_per_pixel": 12,
        },
    ),
    (
        "lambdal",
        {
            "proposals": "each_level",
            "mask_targets": "device_polygons",
            "loader_bytes_per_pixel": 12,
        },
    ),
    (
        "detectron2 | maskrcnn-benchmark",
        {
            "proposals": "each_level_unfused",
            "mask_targets": "host_cropped",
            "loader_bytes_per_pixel": 12,
        },
    ),
    (
        "mmdetection",
        {
            "proposals": "each_level_unfused",
            "mask_targets": "host_polygons",
            "loader_bytes_per_pixel": 12,
        },
    ),
    (
        "detectron2",
        {"proposals": "all_levels", "mask_targets": "host_polygons", "loader_bytes_per_pixel": 3},
    ),
)
#: Proposals that NVIDIA's example keeps of a batch, whatever its size, and objects of an image,
#: which join them (configs/e2e_mask_rcnn_R_50_FPN_1x.yaml, FPN_POST_NMS_TOP_N_TRAIN, in Lambda's
#: copy too; modeling/rpn/inference.py, select_over_all_levels and add_gt_proposals; COCO).
PROPOSALS_A_BATCH, OBJECTS = 4000, 7
#: Of a region's eight one is positive, as in the entries; where nothing is learnt, objects alone
#: and what falls upon them: Lambda's copy has BASE_LR 0.00, and of anchors ranked by chance about
#: one in a hundred overlaps an object by half.
POSITIVES_FRAC, UNLEARNT_POSITIVES = 1 / 8, 9
UNLEARNT = ("lambdal/deeplearning-benchmark",)
#: Who runs NVIDIA's examples.
SENT_LAST_SOURCES = ("NVIDIA/DeepLearningExamples", "lambdal/deeplearning-benchmark")

#: (start of the source, pattern of its reference): runs with NCCL_P2P_DISABLE=1. Lambda's
#: benchmark_pytorch.sh exported it in the last quarter of 2022 (versions 0a684b6 and 50f9467);
#: before and after it did not.
NO_P2P_RUNS = (("lambdal", re.compile(r"_v1/.*/\d\d-1[0-2]-2022_")),)

#: (source, pattern of its reference, PyTorch's newest version by then): the table gives Lambda's
#: runs on AWS of April 2020 PyTorch 1.9, of June 2021; its others of those weeks had 1.4.
DATED = ("lambdal/deeplearning-benchmark", re.compile(r"/\d\d-0[1-6]-2020_"), (1, 4))

#: Ambiguous or unusual spellings; all others are names or aliases of hardware_db.
GPUS = {
    "V100-SXM2-16/32GB(DGX-1)": "V100-SXM2-16GB",
    "V100(unspecified mem)": "V100-SXM2-16GB",
    "A100(mem unspecified)": "A100-SXM4-40GB",
}

PRECISIONS = {
    "fp32": "fp32",
    "tf32": "tf32",
    "tf32/fp32": "tf32",
    "amp-fp16": "amp-fp16",
    "amp": "amp-fp16",
    "mixed": "amp-fp16",
    "bf16": "bf16",
    "bf16/fp16 (not stated)": "bf16",
}

STRATEGIES = {
    "single": "ddp",
    "ddp": "ddp",
    "ddp (vanilla DiT)": "ddp",
    "dp": "dp",
    "fsdp full_shard (zero3)": "zero3",
    "zero2 (ColossalAI LowLevelZero)": "zero2",
}

#: Why rows of the other strategies are left out.
REFUSED = {
    "ps": "parameter server: not modelled",
    "distributed_replicated": "parameter server: not modelled",
    "ddp(replicated no nccl)": "TensorFlow's replicated variables without NCCL: not modelled",
    "none(no sync)": "the source ran independent replicas without gradient exchange",
}

NETWORKS = {
    "8x200Gb HDR IB (DGX A100 default)": "8xib-hdr",
    "1600Gb/s RoCE": "8xroce-200",
    "4x100Gb EDR IB (DGX-1 default)": "4xib-edr",
    "8x100Gb EDR IB (DGX-2H default)": "8xib-edr",
    "4x100Gb InfiniBand": "4xib-edr",
    "20Gb EC2 Ethernet (p2.8xlarge)": "eth-25",
}

#: (start of the GPU's name, link within the node) -> node preset, where the default is another.
NODES = (
    ("V100-SXM3-32GB-450W", "NVSwitch", "dgx-2h"),
    ("V100-SXM3", "NVSwitch", "dgx-2"),
    ("", "NVLink-bridge(pairs)+PCIe3", "generic-nvlink-pairs"),
    ("", "PCIe5", "generic-pcie5"),
    ("", "PCIe3", "generic-pcie3"),
)

#: Layouts of the tensors: words of a row that must all stand in it, and whether they are channels
#: last; the first that holds decides, PyTorch's default (channels first) where none does.
#: NVIDIA's examples: ConvNets/configs.yml (``memory_format: nhwc`` with AMP alone), SSD/main.py
#: (``--data-layout``, channels_last by default), MXNet's runner (NHWC with float16 alone), Paddle's
#: scripts (``--data-layout NHWC`` with AMP). TensorFlow turns graphs to channels last for fp16 on
#: tensor cores and to channels first for the rest (tensorflow/tensorflow pull request 56744).
CHANNELS_LAST = (
    ("layout=nhwc", True),
    ("layout=nchw", False),
    ("nhwc amp | precision=amp", True),
    ("deeplearningexamples | pytorch | ssd300", True),
    ("mxnet | precision=amp", True),
    ("paddlepaddle | precision=amp", True),
    ("tensorflow | precision=amp", True),
    ("mlcommons", True),
)

#: What a peak of memory counts, by start of the source.
MEMORY = {
    "lambdal": "nvidia-smi",
    "open-mmlab": "allocated",
    "facebookresearch": "allocated",
    # its programs print none, and the figures are odd numbers of MiB: no sum of segments of 2 MiB
    "chuanyangjin": "nvidia-smi",
    "baofff": "nvidia-smi",
}

#: (source, framework, model, why): what ran is not what the table says.
OTHERWISE = (
    (
        "NVIDIA/DeepLearningExamples",
        "TensorFlow2",
        "MaskRCNN-R50-FPN",
        "the source's program is one process with one input pipeline for all GPUs "
        "(tf.distribute.MirroredStrategy in run.py), not a process each",
    ),
)

#: NVIDIA's SSD300 before PyTorch 1.6 stops its clock when the host has issued a step
#: (PyTorch/Detection/SSD/src/train.py at ef5b97d), not when the device is done, as later versions
#: do (``torch.cuda.synchronize``, at 0402909). With apex's scaled loss the host waits for backward
#: anyhow, to ask whether a gradient is finite; in fp32 nothing does, and the batch that is fetched
#: next, off the clock, waits for what is left.
UNWAITED = ("SSD300-R50", "lambdal/deeplearning-benchmark", "fp32")
UNWAITED_BEFORE = (1, 6)
UNWAITED_WHY = (
    "the source's program stops its clock before the GPU is done with backward "
    "(SSD/src/train.py before PyTorch 1.6, fp32)"
)

#: (words of a row's note, why the row is doubted): said by the table, whatever is predicted.
DOUBTS = (
    (
        "scale as if NVLink/P2P were not used",
        "the table's note: this host's runs scale as if its NVLink were not in use",
    ),
)
