"""Options under the headings "Cluster and software" and "Expert": links, NCCL, loading, loop."""

from __future__ import annotations

from simcore.base.units import GIGA, TERA
from simcore.strategy.options.option import (
    Axis,
    Control,
    File,
    Made,
    Name,
    Option,
    Switch,
    Text,
    Whole,
)

_HEADING = "Cluster and software"

DECLARED = (
    Option(
        name="network", common=True, heading=_HEADING,
        kind=Text(names="simcore.hardware.cluster:network_names", metavar="LINK"),
        help='Network between nodes: ib-hdr, 8xib-ndr (8 adapters per node), "25 Gbit/s"; '
             '"8xib-ndr 4:1 leaf=16": uplinks 4:1 oversubscribed, 16 nodes per leaf switch; '
             "rails, sharp.",
        more="Default: that of the node's preset.",
        axis=Axis(of="cluster"), resolved="cluster.network",
        control=Control(label="Network between nodes", group="Cluster", hint="(default)",
                        example="25 Gbit/s"),
        called={"": "interconnect bandwidth"},
        messages=(
            r"of a network is", r"^oversubscription", r"nodes a leaf", r"^unknown link",
            r"has no network", r"name one with --network", r"Gbit/s",
        ),
    ),
    Option(
        name="fabric", heading=_HEADING,
        kind=File(names="simcore.hardware.fabrics.record:fabric_names", metavar="NAME|FILE"),
        help="Switches and links between nodes, and other jobs on them: a name (`simcore list "
             "fabrics`) or a .yaml file. Groups get max-min fair shares of its links.",
        more="By default every node reaches every other at the full rate of its network, or as the "
             "words of --network say.",
        resolved="cluster.fabric.graph.name",
        control=Control(label="Fabric between nodes", kind="select", unsaid="no link is shared",
                        wide=True, example="superpod-h100"),
        called={"": "topology network-topology fabric-file interconnect-topology"},
        messages=(r"^give the switches", r"^unknown fabric", r"^fabric "),
    ),
    Option(
        name="node", heading=_HEADING, kind=Text(names="simcore.hardware.spec:NODES",
                                                 metavar="NAME"),
        help="Node preset (`simcore list nodes`). NAME:no-p2p, or no-p2p alone: GPUs have no "
             "peer-to-peer access and exchange data through host memory.",
        more="Default: the first preset that has the GPU. With :vm, as in no-p2p:vm, the node is a "
             "virtual machine that hides which processor a GPU belongs to.",
        control=Control(label="Node", kind="select", wide=True, unsaid="as usual for the GPU",
                        example="dgx-a100"),
    ),
    Option(
        name="nnodes", heading=_HEADING, kind=Whole(), unit="nodes",
        help="Number of nodes, as of torchrun, where --gpus names only a GPU type.",
        more="Default: what gpus says, else 1.",
        axis=Axis(of="cluster"), in_launch=True, resolved="cluster.n_nodes",
        called={"": "nodes num-nodes n-nodes num-machines"},
    ),
    Option(
        name="nproc_per_node", heading=_HEADING, kind=Whole(), unit="GPUs",
        help="GPUs per node, as of torchrun, where --gpus names only a GPU type.",
        more="Default: what gpus says.",
        axis=Axis(of="cluster"), in_launch=True,
        called={"": "gpus-per-node num-gpus-per-node nproc n-gpus-per-node num-processes"},
    ),
    Option(
        name="nccl_algo", heading=_HEADING,
        kind=Text(check="simcore.request.inputs:nccl_algorithms",
                  names="simcore.physics.collectives:names_in_nccl_algo", metavar="LIST"),
        help="Algorithms that NCCL may use, in the format of NCCL_ALGO: Ring,Tree, ^NVLS (all but "
             "NVLS) or allreduce:tree;allgather:ring. --explain collectives shows the choice.",
        more="Default: all that the release has.",
        resolved="strategy.nccl.algorithms",
        control=Control(label="NCCL algorithms", hint="Ring,Tree", example="Ring,Tree"),
    ),
    Option(
        name="nccl_proto", heading=_HEADING,
        kind=Text(check="simcore.request.inputs:nccl_protocols",
                  names="simcore.physics.collectives.nccl:PROTOCOLS", metavar="LIST"),
        help="Protocols that NCCL may use, in the format of NCCL_PROTO: LL, LL128, Simple.",
        more="Default: all that the release has.",
        resolved="strategy.nccl.protocols",
        control=Control(label="NCCL protocols", hint="Simple", example="Simple"),
    ),
    Option(
        name="nccl_version", heading=_HEADING,
        kind=Text(check="simcore.request.inputs:nccl_release", metavar="RELEASE"),
        help="Release of NCCL, such as 2.32.3, whose limits by protocol are taken (2.30 by "
             "default; 2.32 changed two of Blackwell's).",
        control=Control(label="NCCL release", hint="2.30", example="2.32"),
    ),
    Option(
        name="issuer", heading=_HEADING,
        kind=Name("simcore.strategy.programs.mechanisms:ISSUERS", judged=True),
        help="What launches kernels: torch, megatron (8 times torch's host time per kernel), "
             "megatron_graphs, megatron_routing_graphs, megatron_2022 (3 times), graph.",
        more="megatron: modules of Megatron-Core and Transformer Engine; megatron_graphs: the "
             "same with attention and routing as CUDA graphs, megatron_routing_graphs: with "
             "routing alone; megatron_2022: Megatron-LM's modules before Megatron-Core; graph: one "
             "CUDA graph of the step. Default: as the training library does.",
        axis=Axis(), in_launch=True, resolved="strategy.issuer",
        control=Control(label="Kernels launched by", unsaid="as the library does",
                        example="megatron"),
    ),
    Option(
        name="optimizer_impl", heading=_HEADING, in_launch=True,
        kind=Name("simcore.strategy.optimizers:implementation_words",
                  judged=True),
        help="Kernels of the optimizer step: foreach (torch's default since 2.0), for-loop "
             "(several kernels per tensor) or fused.",
        resolved="strategy.step_impl",
        control=Control(label="Optimizer implementation", unsaid="as the model's training loop",
                        example="for-loop"),
        called={"": "foreach", "fused": "fused-optimizer fused-adam apex-fused-adam"},
    ),
    Option(
        name="grad_clip", heading=_HEADING, kind=Switch(), in_launch=True,
        help="Clip the gradients by their norm.", resolved="strategy.grad_clip",
        more="Default: that of the model's record.",
        control=Control(label="Gradient clipping", unsaid="as the model's training loop",
                        example="on"),
        called={"on": "max-grad-norm clip-grad gradient-clipping clip-grad-norm"},
    ),
    Option(
        name="launch_blocking", heading=_HEADING, kind=Switch(), unsaid=False,
        help="The host waits for each kernel to finish, as with CUDA_LAUNCH_BLOCKING=1.",
        resolved="strategy.launch_blocking",
        control=Control(label="CUDA_LAUNCH_BLOCKING", unsaid="off", example="on"),
    ),
    Option(
        name="num_workers", heading=_HEADING, kind=Whole(least=0), unit="processes",
        help="Loader processes of each rank, as num_workers of torch's DataLoader; 0: the training "
             "process itself loads.",
        more="Default: that of the model's record. Counts where the time to load a sample is known "
             "(sample_load, or the model's data set).",
        axis=Axis(), in_launch=True, resolved="loading.workers",
        launch_keys={"trainer": "dataloader-num-workers"},
        control=Control(label="Loader processes a rank", unsaid="as the model's training loop",
                        example=8),
        called={"": "dataloader-num-workers loader-workers workers dataloader-workers"},
    ),
    Option(
        name="prefetch", heading=_HEADING, kind=Whole(least=1), unit="batches",
        help="Batches that each loader process reads ahead, as prefetch_factor of torch's "
             "DataLoader (2).",
        more="Default: 2.",
        axis=Axis(), in_launch=True, resolved="loading.prefetch",
        launch_keys={"trainer": "dataloader-prefetch-factor"},
        control=Control(label="Batches read ahead", unsaid="2", example=2),
        called={"": "prefetch-factor dataloader-prefetch-factor"},
    ),
    Option(
        name="sample_load", heading=_HEADING,
        kind=Text(check="simcore.request.make:load_time_s", metavar="TIME"), unit="s",
        help="Time in which one loader process reads and decodes a sample, such as 3.7ms.",
        more="Default: that of the model's data set; without one, loading is assumed to keep up.",
        control=Control(label="Time to load a sample", hint="3.7ms", example="3.7ms"),
        called={"": "load-time decode-time"},
    ),
    Option(
        name="epoch_samples", heading=_HEADING, kind=Whole(least=1), unit="samples",
        help="Samples of the data set, of which an epoch has all: loader processes start anew each "
             "epoch, and wait for a first batch.",
        more="Default: that of the model's data set; without one, an epoch has no end.",
        control=Control(label="Samples of an epoch", unsaid="as the model's data set",
                        most=2_000_000_000, example=704),
        called={"": "dataset-size dataset-samples num-samples train-samples"},
    ),
    Option(
        name="calibration", common=True, heading=_HEADING, unsaid="blind",
        kind=File(names="simcore.hardware.calibrations:calibration_names", metavar="NAME|FILE"),
        help="Efficiencies fitted to measured hardware: a name or a .yaml file; default blind "
             "(general figures, none of this cluster).", resolved="profile.name",
        control=Control(label="Calibration", unsaid="blind", place=9, example="latte-ddp"),
    ),
)  # fmt: skip

#: Details of the training loop that few jobs change.
EXPERT = (
    Option(
        name="bucket_numel", heading="Expert", kind=Whole(), unit="elements", in_launch=True,
        help="Size of a gradient bucket in elements.",
        more="Default: as the training program sets it (DDP: 25 MiB, DeepSpeed: 5e8 elements).",
        control=Control(label="Gradient bucket, elements", most=int(TERA), example=500_000_000),
        launch_keys={"megatron": "ddp-bucket-size"},
    ),
    Option(
        name="prefetch_blocks", heading="Expert", kind=Whole(least=0), unit="blocks",
        help="How many blocks ahead of compute ZeRO-3 gathers parameters (default 1).",
        resolved="strategy.prefetch_blocks",
        control=Control(label="ZeRO-3 prefetch, blocks", example=1),
    ),
    Option(
        name="gather_tensors", heading="Expert", kind=Switch(), unsaid=False,
        help="ZeRO-3 gathers each tensor in a separate collective, as DeepSpeed before 2022.",
        resolved="strategy.gather_tensors",
        control=Control(label="ZeRO-3 gathers tensor by tensor", unsaid="as the library does",
                        example="on"),
    ),
    Option(
        name="reuse_numel", heading="Expert", kind=Whole(least=0), unit="elements",
        help="ZeRO-3 keeps a gathered tensor if it is used again within this many elements of "
             "other parameters, and releases it otherwise.",
        more="DeepSpeed's stage3_max_reuse_distance. Default: that of the training program.",
        resolved="strategy.reuse_numel",
        control=Control(label="ZeRO-3 reuse distance, elements", most=int(TERA),
                        example=int(GIGA)),
    ),
    Option(
        name="eager_kernels", heading="Expert", kind=Switch(), unsaid=False,
        help="CUDA libraries load all their kernels into GPU memory at start, as before CUDA 11.7.",
        resolved="eager_kernels",
        control=Control(label="Load all kernels at start", unsaid="off", example="on"),
    ),
    Option(
        name="cudnn_benchmark", heading="Expert", kind=Switch(), unsaid=False,
        help="The first step times all of cuDNN's algorithms for each convolution, with the "
             "largest workspace that is free (torch.backends.cudnn.benchmark, before PyTorch 2.0).",
        more="It counts in what nvidia-smi and max_memory_reserved show.",
        resolved="cudnn_benchmark",
        control=Control(label="cuDNN times its algorithms", unsaid="off", example="on"),
    ),
    Option(
        name="profile", heading="Expert",
        kind=Made("simcore.hardware.profile:Profile", made_by="read_calibration"),
        help="A calibration as a Python object, made by read_calibration. Only in Python; "
             "elsewhere use --calibration FILE.",
        more="Default: none.",
    ),
)  # fmt: skip
