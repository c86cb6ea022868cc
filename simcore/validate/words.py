"""What the figures of the validation report need said beside them, by table."""

TITLES = {
    "latte": "Latte under DDP on RTX 4090, RTX 6000 Ada and H100",
    "bert_mnist": "BERT and MNIST with torchrun on A100, V100 and T4",
    "opensora_s4000": "Open-Sora 16x256x256 on MTT S4000",
    "resnet152": "ResNet-152 on CIFAR-10 (measurements lost)",
    "ddp": "Published data-parallel runs of vision, language, speech and diffusion models",
    "llm": "Published training steps of language models, 1 to 12,288 GPUs",
    "llm_fits_or_not": "Configurations of language models published as out of memory",
    "zero3_2021": "ZeRO-3 of 2021 on 384 to 2,240 A100 (Narayanan et al. 2021, table 2)",
    "published": "Held out: published runs of sources that no figure is from",
}

WORDS = {
    "zero3_2021": """
DeepSpeed as of early 2021, with which Megatron-LM's paper compares its own layout. The first
predictions, made before the rows were typed in, were 15 to 48 % too fast. The missing mechanisms
were then found in DeepSpeed's and torch's sources: collectives over lists of each rank's tensors,
which the host fills one by one, and a third gather of parameters that recompute used too long ago.
Nothing was fitted. On 2,240 GPUs something that grows with the number of ranks is still missing.
""",
    "latte": """
**What explains the rows.** Latte trains with TF32 matrix products, writes its attention scores to
memory and encodes every frame with a frozen VAE (4.36 of 12.07 TFLOP a clip for L). On one device
the blind prediction is too slow on both Ada cards (latte-01, -05) and too fast on the H100
(latte-13): no op table times TF32 or convolutions on tensor cores, so their efficiency is an
assumption (see the intervals' origin). Scaling within a node is the PCIe path: through host memory
on the 4090 (no peer-to-peer), across the socket link on the RTX 6000 Ada.

**The slow batch-2 rows** (latte-09, -16, -19) cannot be explained by compute or links: batch 1 runs
on the same nodes fix both. They are runs with few steps an epoch (704 clips: 22, 44 and 11 steps),
and the loader's workers start anew each epoch and decode whole videos before the first batch is
there. The fit puts that at about 4 s a clip and worker in the XL runs, against at most 2.5 s that
the one-GPU rows allow in the L runs: either those nodes decoded slower (64 workers a node share
cores and storage), or the loader was set up otherwise; the source does not say. latte-09 remains
flagged: with the loading rate of the other L rows it would be 40 % slower than is possible.

**2 x 8 RTX 4090** (latte-03) is as fast per step as 1 x 8: NCCL's ring is bound by host memory
inside each node, and a 200 Gbit/s port is faster than that. A loader-bound pair of rows (12.16
clips/s a node in both) would explain the equality to three digits as well; the two cannot be told
apart.

**H100** (latte-13) is a single row of its type: left out, it is predicted from the other cards'
common factors, which are those of PCIe cards. The training loop synchronises 15 times a step with
the host (table look-ups on the CPU), which costs a fast device more; that is not modelled.

Memory is that of nvidia-smi read as GB; no constant is fitted. (Read as GiB, gradients would have
to be held at the peak as well; that is within 3 % too.) Two nodes need 0.07 GB more than one for
network buffers (measured: 0.1). Cells of XL on one GPU below take the loading rate of its
eight-GPU nodes and are upper bounds.
""",
    "bert_mnist": """
**What is assumed.** The source gives total seconds only. MNIST is taken as the PyTorch example (14
epochs, batch 64, one loader worker, 10,000 test images after each epoch on every rank); BERT's
number of sequences is unknown, so that blind predictions are scored on ratios only; the fit has its
amount of work as one parameter. The interfaces eno1 and bond0 are taken as 10 GbE.

**MNIST** is bound by the host: one process decodes 64 images in about 10 ms, whatever the GPU.
Testing is not divided over the ranks, which alone gives 1.75 x on two cards (measured 1.65 on
A100). 2 x V100 (bert_mnist-08) at 124 s is 20 % slower than that: its single-card run is 7 %
slower than the A100's, so the rest lies in that host (shared cores, one worker a rank), not in
the GPUs. A100 + 3 x T4 (bert_mnist-09) at 48 s is faster than five ranks can be with an undivided
test set (52 s without any communication): physics cannot explain it unless that run tested less.

**BERT on two nodes, 777 s.** 438 MB of fp32 gradients cross the slower node's port 1.5 times a
step. At 10 GbE, of which NCCL's sockets get about 0.7 to 1 GB/s, that is 0.6 to 0.9 s a step for a
compute time of 0.2 s: slower than one GPU, as measured. A 1 GbE port would make it ten times slower
than measured, 25 GbE would hide most of it: 10 GbE is the plausible interface; with it the blind
prediction also finds the two nodes slower than one A100 (bert_mnist-04).
""",
    "opensora_s4000": """
**Memory** needs no constant: bf16 weights, optimizer state sharded over the ranks (12 bytes a
parameter), T5-XXL in half precision, the fp32 EMA and the VAE give the source's final column, and
its optimizer column once half the weights are taken off (its weights column is one byte a
parameter).

**Time cannot be explained** by the device and links. Forward takes 249 ms, backward without the
optimizer 182 ms, less than forward where it is twice the work, and three times with recompute;
the optimizer takes 728 ms on one card, 21 GB/s for 15 GB of state, far below the card's 768 GB/s;
data takes 390 to 919 ms. The published TFLOPS (0.029 a GPU) do not follow from the other columns.
The rows stay, and no parameter that a hardware description has makes them right; the optimizer
column growing with the cards (to 2,162 ms on eight) suggests collectives at about 2 GB/s through
host memory, where the node preset has the maker's MTLink.
""",
    "resnet152": """
The source's figures were pictures and are lost; every row is a prediction. Networks of 2.5 Gbit/s
bind the two-machine rows: 240 MB of gradients cross it twice over. Mixed clusters run as fast as
the slower card.
""",
    "ddp": """
No prediction reads an outcome column, and no coefficient is from these rows. Some model
descriptions were completed after their residuals had been seen: the GELU of NVIDIA's BERT written
out in Python, norms whose constants promote to fp32 under autocast, BatchNorm's fused persistent
kernels, memory at the longest and largest batch, the looped optimizer of Transformer-XL, layout
copies of WaveGlow and Mask R-CNN. Each names a mechanism; not each has a citation. So these figures
are somewhat better than those for a table that had not been looked at.

**Speed-ups** are within some 5 % but for TensorFlow's runs (their input pipelines are not all
described), GeForce cards (10 %, 241 rows; an 8 x 3090 host collapses where 8 x 2080 Ti hosts do
not, and one efficiency per route cannot give both) and H100s on PCIe (5 %, 48 rows). Two settings
were found with this table at hand: Lambda's program of late 2022 disabled peer-to-peer transfers
between devices (NCCL_P2P_DISABLE=1 in its script, which is the source), and NVIDIA's PyTorch
programs with apex send gradients after backward (seen in these rows on every PCIe host; in code for
Mask R-CNN only). docs/model.md has what is known of each.

**Memory** is compared with the allocator's own count where the source gives it, and else with a
replay of the allocator and what lies outside it, as nvidia-smi shows it. The remaining errors,
family by family with their reasons, are in docs/model.md.

**Worst families.** GNMT (about -16 %): many small kernels of recurrent code that are not described.
BERT-base in TensorFlow 1 under AMP, compiled by XLA (-40 %): some 50 ms a step, and 10 ms a rank,
that no kernel explains. WaveGlow: half of the time of apex's mixed precision on PyTorch 1.4 (twice
as fast as fp32 there, where products alone would be four times), a third in NVIDIA's own tables; 5
to 9 % elsewhere. BERT's fine-tuning in Paddle under AMP takes nearly twice what its kernels do:
inference, of which NVIDIA publishes 158 sequences/s there, is no faster, so that the host is the
limit. EfficientNet and EfficientDet in TensorFlow 2, compiled by XLA, are too fast in fp32 on V100.
K80: no figures of its generation. R-CNN: under AMP A100 take as long as in TF32, some 20 ms of the
host an image (loops over images, masks cut from polygons) that no table counts.
""",
    "llm": """
Every row of quality A and B in the layout that it describes, blind: no row of the table feeds any
figure. Columns do not say which kernels, overlaps and reductions a program had: these follow from
its name and year, with a source for each (`validate/formats/llm_sources.py`), and were written
down after residuals had been seen; so were three constants of what issues kernels, and which
figure nanotron prints (docs/model.md). Pipelines of sources that interleave without saying how far
are taken with one layer a chunk.

Predictions are still **too fast** for vTrain's smallest models (3.3 to 3.6 ms of host a layer are
measured), H100s of 500 W (torchtitan, -10 %), InternEvo's A100s (-3 %), BLOOM's (-7 %) and
SimuMax's B200 (-22 %: its own table of products, timed on the same node, is 1.43 times slower than
a burst where others' B200 are 1.15 times; that one figure, which a calibration of the node would
bring, is worth some 14 points). They are **too slow** for vTrain's larger models (+5 %) and Flux
(+12 %: an unfused bias, as its source adds it, at a rate that no Blackwell was timed for). A100
modules hold in long runs the clock that NVIDIA rates machines of them at (1,305 of 1,410 MHz,
1.08), where op tables, which include boards of 300 W, give 1.11, and their power alone 1.06:
Korthikanti's rows are some 3 % off with it, and the bias of all language models is 1 % larger than
with 1.11. The figure was looked for after these rows had been seen. BLOOM's rows with heads of 150
or 450 (28 of 72) were predicted 20 to 32 % too fast until products with such heads were priced on
vector units, which these rows suggested.

**Order.** Equal requests that were measured differently (231 rows of other containers and vendors)
leave a model that is otherwise exact a rank correlation of 0.97; one whose figures err by 2, 3 or
5 %, each request for itself, comes to 0.95, 0.94 and 0.90. Llama 30B on 256 A100 is the largest
miss: the more gradients leave a node, the more time it loses beyond the network of a DGX A100
(which its paper names), and its layouts on 64 and 128 GPUs do not. With one or two adapters a node
instead of eight its order would be 0.89 or 0.84; how the leaves of 32 nodes are joined is not said.

**Memory.** Each figure is compared with what its source counts: live tensors, segments, or what
nvidia-smi shows. The remaining errors, source by source with their reasons, are in docs/model.md. A
job fits if its memory, with the fragmentation that the allocator cannot return, is within the
device's; close to the limit a replay gives that fragmentation.
""",
    "published": """
Runs of sources that neither large table has, typed in with their references after the model was
complete: 39 sources, 21 kinds of GPUs. Rows are what a user would type; no source is known to the
code. **The first time they were judged**, before anything was changed for them, the first 99 rows
gave: step time of 92 20.9 % off (median 16.6 %, bias -12.1 %, 75 % inside the 80 % interval), 15
speed-ups 3.6 %, peak memory of 27 31.7 % (bias -8.9 %, 26 % inside), 5 of 7 jobs published as out
of memory found and 97 % of those that ran predicted to fit. The 50 rows that followed: step time of
23 of language models 25.8 % (median 18.2 %, 48 % inside), most of them fine-tuning around
transformers' models, of 23 of vision, encoders and diffusion 32.7 % (median 25.1 %, 43 % inside),
peak memory of 18 23 %. The figures below are later: the model has changed, and readings of rows
were corrected when their errors were looked into, which `inferred` says for each row. So for a job
of a program that is not described, an error of 20 to 30 % is to be expected. The five rows of BERT
in TensorFlow are of twelve judged after its kernels were described: -3 to +8 % without XLA, -12 to
-31 % with it. 54 more jobs of 27 other sources were predicted as a user would ask and are not typed
in: 41 steps 22.0 % off (median 15.0 %, 66 % inside), 33 memory figures 45.6 % (median 19.4 %, 18 %
inside); with what could then be said of them, compilers and libraries by name, 21.0 and 19.9 %, 66
and 27 % inside: intervals of memory are too narrow for programs that no table has.
""",
}
