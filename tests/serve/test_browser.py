"""A real Chromium drives the page: every control, comparing, links, downloads, a narrow screen.

Runs on Debian's ``chromium`` (`apt-get install chromium`) or the browser that
``SIMCORE_CHROMIUM`` names; no browser is ever downloaded.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlparse

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from simcore.strategy.options import OPTIONS

CHROMIUM = os.environ.get("SIMCORE_CHROMIUM") or shutil.which("chromium")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="no Chromium to drive the page with: apt-get install chromium"
    ),
]
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
ROOT = Path(__file__).resolve().parents[2]
ANSWERED = "document.querySelector('.big') && !document.querySelector('#scaling').hidden"
UPDATES = "performance.getEntriesByName('update').length"
#: The page writes its link a moment after the last move.
LINK_MS = 130
LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
}  # fmt: skip


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield found
        found.close()


Opened = Callable[..., Page]


@pytest.fixture
def opened(browser: Browser, server: str) -> Iterator[Opened]:
    """Opens the page with a query; in the end no error was logged and nothing asked elsewhere."""
    contexts, wrong, expected = [], [], []

    def open_page(
        query: str = "", *, refused: bool = False, path: str = "/", **options: Any
    ) -> Page:
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        expected.append(refused)
        page.on("pageerror", lambda err: wrong.append(str(err)))

        def logged(message: Any) -> None:
            # A request that the server refuses is logged by the browser itself.
            if message.type in ("error", "warning") and not (refused and "422" in message.text):
                wrong.append(message.text)

        def asked(request: Any) -> None:
            if not request.url.startswith((server, "blob:", "data:")):
                wrong.append(f"asked {request.url}")

        page.on("console", logged)
        page.on("request", asked)
        page.goto(f"{server}{path}{query}")
        if path == "/" and not refused:
            until(page, ANSWERED)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not wrong


def until(page: Page, condition: str) -> None:
    """Wait in the page for a condition; page.wait_for_function is against its security policy."""
    page.evaluate(
        f"""new Promise((done, fail) => {{
          const end = performance.now() + 30000;
          const look = () => ({condition}) ? done()
            : performance.now() > end ? fail(new Error({json.dumps(condition)}))
            : setTimeout(look, 10);
          look();
        }})"""
    )


def updated(page: Page, act: Callable[[], object]) -> None:
    """Do something to a control and wait until its answer is painted."""
    before = page.evaluate(UPDATES)
    act()
    until(page, f"{UPDATES} > {before}")


def words(page: Page) -> dict[str, str]:
    """What the link says, once it is written."""
    page.wait_for_timeout(LINK_MS)
    return {k: v[0] for k, v in parse_qs(urlparse(page.url).query).items()}


LLM = "?model=llama3-8b&gpus=2x8xA100-SXM-80GB&precision=bf16&strategy=zero2"
MOE = "?model=deepseek-v2-lite&gpus=4x8xH100-SXM-80GB&precision=bf16&strategy=zero1"
SEED = "?model=latte-xl&gpus=4x8xA6000ada"
#: Every control: (where, what is entered, the word in the link, what it says there).
MOVES = {
    "tokens": (LLM, "1B", "tokens", "1B"),
    "training": (LLM, "LoRA adapters", "lora_rank", "16"),
    "deadline": (f"{LLM}&steps=1000", "30d", "deadline", "30d"),
    "cost": (LLM, "on", "cost", "on"),
    "price": (f"{LLM}&cost=on", "A100=2", "price", "A100=2"),
    "schedule": (f"{LLM}&pp=2&grad_accum=4&strategy=zero1", "gpipe", "schedule", "gpipe"),
    "software": (LLM, "deepspeed", "software", "deepspeed"),
    "growing_segments": (LLM, "on", "growing_segments", "on"),
    "compile": (LLM, "on", "compile", "on"),
    "fp8_params": (LLM, "on", "fp8_params", "on"),
    "optimizer_impl": (LLM, "fused", "optimizer_impl", "fused"),
    "grad_clip": (LLM, "on", "grad_clip", "on"),
    "ema": (LLM, "on", "ema", "on"),
    "launch_blocking": (LLM, "on", "launch_blocking", "on"),
    "offload_layers": (LLM, "4", "offload_layers", "4"),
    "nccl_algo": (LLM, "ring", "nccl_algo", "ring"),
    "nccl_proto": (LLM, "simple", "nccl_proto", "simple"),
    "model": (SEED, "dit-xl-2", "model", "dit-xl-2"),
    "micro_batch": (SEED, "3", "micro_batch", "3"),
    "grad_accum": (SEED, "2", "grad_accum", "2"),
    "nodes": (SEED, "2", "gpus", "2x8xA6000ada"),
    "perNode": (SEED, "4", "gpus", "4x4xA6000ada"),
    "gpu": (SEED, "A40", "gpus", "4x8xA40"),
    "fabric": (
        "?model=llama3.1-405b&gpus=2048x8xH100-SXM-80GB&tp=8&pp=16&grad_accum=16",
        "llama3-24k",
        "fabric",
        "llama3-24k",
    ),
    "nccl_version": (
        "?model=gpt2&gpus=2x8xB200&nccl_algo=tree&nccl_proto=ll128",
        "2.32",
        "nccl_version",
        "2.32",
    ),
    "network": (SEED, "eth-25", "network", "eth-25"),
    "strategy": (SEED, "zero1", "strategy", "zero1"),
    "precision": (SEED, "bf16", "precision", "bf16"),
    "recompute": (SEED, "full", "recompute", "full"),
    "optimizer": (SEED, "sgd", "optimizer", "sgd"),
    "offload": (f"{SEED}&strategy=zero2", "optimizer:cpu", "offload", "optimizer:cpu"),
    "tp": (LLM, "2", "tp", "2"),
    "sequence_parallel": (f"{LLM}&tp=2", "off", "sequence_parallel", "off"),
    "pp": (LLM, "2", "pp", "2"),
    "vpp": (f"{LLM}&pp=2&grad_accum=4&strategy=zero1", "2", "vpp", "2"),
    "vpp_group": (
        f"{LLM}&pp=2&vpp=2&grad_accum=8&strategy=zero1",
        "4",
        "vpp_group",
        "4",
    ),
    "deferred_heads": (f"{LLM}&pp=2&grad_accum=8&strategy=zero1", "4", "deferred_heads", "4"),
    "update_in_backward": (
        f"{LLM}&strategy=zero3&grad_clip=off",
        "on",
        "update_in_backward",
        "on",
    ),
    "reentrant": (f"{LLM}&recompute=full", "on", "reentrant", "on"),
    "stages": (f"{LLM}&pp=2&strategy=zero1", "15,17", "stages", "15,17"),
    "cp": (LLM, "2", "cp", "2"),
    "cp_comm": (f"{LLM}&cp=2", "ulysses", "cp_comm", "ulysses"),
    "ep": (MOE, "8", "ep", "8"),
    "gpus_text": (SEED, "1x2xA40+1x2xL40", "gpus", "1x2xA40+1x2xL40"),
    "shares": ("?model=resnet-50&gpus=1x1xA40%2B1x1xL40&micro_batch=4", "5:3", "shares", "5:3"),
    "node": (SEED, "8xA6000ada-pcie", "node", "8xA6000ada-pcie"),
    "global_batch": (SEED, "128", "global_batch", "128"),
    "settings": (LLM, "layers=16", "settings", "layers=16"),
    "seq_len": (LLM, "2048", "seq_len", "2048"),
    "mean_seq_len": (LLM, "512", "mean_seq_len", "512"),
    "packing": (f"{LLM}&mean_seq_len=512", "on", "packing", "on"),
    "resolution": (SEED, "512", "resolution", "512"),
    "frames": (SEED, "8", "frames", "8"),
    "main_grads": (LLM, "fp32", "main_grads", "fp32"),
    "issuer": (LLM, "megatron", "issuer", "megatron"),
    "attention": (LLM, "cudnn", "attention", "cudnn"),
    "expert_tp": (f"{MOE}&tp=2&ep=4", "2", "expert_tp", "2"),
    "dispatcher": (f"{MOE}&ep=16", "deepep", "dispatcher", "deepep"),
    "expert_imbalance": (f"{MOE}&ep=16", "1.3", "expert_imbalance", "1.3"),
    "expert_capacity": (f"{MOE}&ep=16", "1.25", "expert_capacity", "1.25"),
    "expert_padding": (f"{MOE}&ep=16&expert_capacity=1.5", "off", "expert_padding", "off"),
    "shard_ranks": (f"{LLM}&strategy=zero3", "8", "shard_ranks", "8"),
    "overlap": (LLM, "none", "overlap", "none"),
    "recompute_modules": (f"{LLM}&recompute=selective", "mlp", "recompute_modules", "mlp"),
    "recompute_layers": (f"{LLM}&recompute=full", "4", "recompute_layers", "4"),
    "layout": (
        "?model=resnet-50&gpus=8xA100-SXM-80GB&precision=amp-fp16",
        "nhwc",
        "layout",
        "nhwc",
    ),
    "bucket_numel": (LLM, "1000000", "bucket_numel", "1000000"),
    "prefetch_blocks": (f"{LLM}&strategy=zero3", "0", "prefetch_blocks", "0"),
    "gather_tensors": (f"{LLM}&strategy=zero3", "on", "gather_tensors", "on"),
    "reuse_numel": (
        f"{LLM}&strategy=zero3&recompute=full",
        "100000000",
        "reuse_numel",
        "100000000",
    ),
    "eager_kernels": (LLM, "on", "eager_kernels", "on"),
    "cudnn_benchmark": (SEED, "on", "cudnn_benchmark", "on"),
    "lora_rank": (LLM, "16", "lora_rank", "16"),
    "lora_targets": (f"{LLM}&lora_rank=8", "q_proj,v_proj", "lora_targets", "q_proj,v_proj"),
    "quantised_base": (f"{LLM}&lora_rank=8", "nf4", "quantised_base", "nf4"),
    "num_workers": (SEED, "2", "num_workers", "2"),
    "prefetch": (f"{SEED}&num_workers=1", "4", "prefetch", "4"),
    "sample_load": (SEED, "10ms", "sample_load", "10ms"),
    "epoch_samples": (SEED, "100000", "epoch_samples", "100000"),
    "steps": (SEED, "1000", "steps", "1000"),
    "epochs": ("?model=mnist-cnn&gpus=1x2xA100-SXM-80GB", "3", "epochs", "3"),
    "calibration": (SEED, "latte-ddp", "calibration", "latte-ddp"),
    "model_file": (SEED, json.dumps(LLAMA), "model", "upload:"),
    "calibration_file": (
        SEED,
        (ROOT / "hardware_db/calibrations/latte-ddp.yaml").read_text(encoding="utf-8"),
        "calibration",
        "upload:",
    ),
}


def enter(page: Page, name: str, value: str) -> None:
    control = page.locator(f"#in-{name}")
    for group in page.locator("details.group:not([open])").all():
        if group.locator(f"#in-{name}").count():
            group.locator("summary").click()
    if name.endswith("_file"):
        control.set_input_files([{"name": "x", "mimeType": "text/plain", "buffer": value.encode()}])
    elif control.get_attribute("role") == "combobox":
        control.fill(value)
        control.press("Enter")
    elif control.evaluate("e => e.tagName") == "SELECT":
        control.select_option(value)
    else:
        control.fill(value)


def test_every_control_has_a_move(opened: Opened) -> None:
    page = opened()
    names = page.eval_on_selector_all("#controls [name]", "all => all.map(e => e.name)")
    assert sorted(names) == sorted(MOVES)
    unlabelled = page.eval_on_selector_all(
        "#controls input, #controls select",
        "all => all.filter(e => !e.labels.length && !e.ariaLabel).length",
    )
    assert unlabelled == 0


@pytest.mark.long
def test_every_control_changes_the_answer_and_the_link(opened: Opened) -> None:
    by_place: dict[str, list[str]] = {}
    for name, (where, *_) in MOVES.items():
        by_place.setdefault(where, []).append(name)
    for where, names in by_place.items():
        page = opened(where)
        # all but the figures that are asked for when they are opened
        page.evaluate(
            "document.querySelectorAll('details:not([data-key=counted])')"
            ".forEach(d => d.open = true)"
        )
        for name in names:
            _, value, word, said = MOVES[name]
            before = page.locator("#results").inner_text()
            was = page.input_value(f"#in-{word if name.endswith('_file') else name}")
            updated(page, lambda: enter(page, name, value))  # noqa: B023
            assert page.locator(".big").count() == 1, (name, page.inner_text("#headline"))
            assert page.locator("#results").inner_text() != before, name
            assert words(page)[word].startswith(said), name
            back = word if name.endswith("_file") else name
            updated(page, lambda: enter(page, back, was))  # noqa: B023
            until(page, "document.querySelector('#scaling').ariaBusy === 'false'")
            assert page.locator("#results").inner_text() == before, name


def test_sliders_and_the_box_for_the_most_that_fits(opened: Opened) -> None:
    page = opened(SEED)
    slider = page.get_by_label("Nodes, slider")
    updated(page, lambda: slider.press("ArrowRight"))
    assert words(page)["gpus"] == "6x8xA6000ada"
    assert page.input_value("#in-nodes") == "6"
    updated(
        page, lambda: page.get_by_label("Micro-batch, samples per GPU, slider").press("ArrowRight")
    )
    assert words(page)["micro_batch"] == "3"
    updated(page, lambda: page.get_by_label("most that fits").check())
    assert words(page)["micro_batch"] == "max"
    assert page.locator("#in-micro_batch").is_disabled()


def test_the_keyboard_alone_will_do(opened: Opened) -> None:
    page = opened(SEED)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    seen = set()
    for _ in range(50):
        page.keyboard.press("Tab")
        found = page.evaluate("document.activeElement.name || document.activeElement.textContent")
        if found.startswith("All other options"):
            page.keyboard.press("Enter")
        seen.add(found)
        if page.evaluate("document.activeElement.id") == "find-option":
            page.keyboard.type("offload")
    assert {"model", "training", "micro_batch", "nodes", "gpu", "strategy", "offload"} <= seen
    assert {"Set-up A", "+ Compare", "Answer", "JSON", "HTML report", "Launch file"} <= seen
    page.focus("#tab-answer")
    page.keyboard.press("ArrowRight")
    assert page.locator("#sweep").is_visible() and not page.locator("#answer").is_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "sweep-x"


def test_a_model_is_found_by_any_words_of_its_names(opened: Opened) -> None:
    page = opened(SEED)
    box = page.locator("#in-model")
    box.focus()
    page.keyboard.type("llama3 70b")
    until(page, "document.querySelectorAll('#in-model-list li').length === 1")
    assert box.get_attribute("aria-expanded") == "true"
    page.keyboard.press("ArrowDown")
    option = page.locator(f"#{box.get_attribute('aria-activedescendant')}")
    assert option.get_attribute("aria-selected") == "true" and "llama3-70b" in option.inner_text()
    updated(page, lambda: page.keyboard.press("Enter"))
    assert words(page)["model"] == "llama3-70b"
    assert page.locator("#in-model-list").is_hidden()
    page.keyboard.type("meta-llama/Llama-3.1-8B")  # as typed on the command line
    updated(page, lambda: page.keyboard.press("Tab"))
    assert "Llama 3.1 8B" in page.inner_text("#headline h2")
    box.fill("gibberish")
    box.press("Escape")
    box.press("Escape")
    assert page.input_value("#in-model") == "meta-llama/Llama-3.1-8B"
    gpu = page.locator("#in-gpu")
    gpu.fill("a100 40")
    until(page, "document.querySelectorAll('#in-gpu-list li').length === 2")
    updated(page, page.locator("#in-gpu-list li").first.click)
    assert words(page)["gpus"] == "4x8xA100-PCIE-40GB"


def test_results_of_an_earlier_set_up_are_marked_and_go_with_an_error(opened: Opened) -> None:
    page = opened(SEED, refused=True)
    until(page, ANSWERED)
    held: list[Any] = []
    page.route("**/api/v1/answer?*", lambda route: held.append(route))
    place = page.locator("#in-strategy").bounding_box()
    enter(page, "grad_accum", "0")
    shown = page.locator("#headline [data-setup]")
    assert shown.get_attribute("aria-busy") == "true"
    opacity = "Number(getComputedStyle(document.querySelector('.tiles')).opacity)"
    until(page, f"{opacity} < 0.5")
    while not held:
        page.wait_for_timeout(10)
    held[0].continue_()
    page.locator("#grad_accum-error").wait_for()
    assert page.locator(".big").count() == 0 and page.locator("#cards *").count() == 0
    assert page.locator("#scaling").is_hidden()
    assert page.locator("#in-strategy").bounding_box() == place
    page.unroute("**/api/v1/answer?*")
    updated(page, lambda: enter(page, "grad_accum", "1"))
    assert shown.get_attribute("aria-busy") == "false"


def test_what_a_field_means_is_said_in_the_words_of_the_help(opened: Opened) -> None:
    page = opened(SEED)
    page.focus("#in-grad_accum")
    assert OPTIONS["grad_accum"].help in page.inner_text("#meaning")
    assert "[micro-batches]" in page.inner_text("#meaning")
    described = page.get_attribute("#in-grad_accum", "aria-describedby") or ""
    assert OPTIONS["grad_accum"].help in (page.text_content(f"#{described.split()[0]}") or "")


def test_memory_is_counted_as_pytorch_does_when_asked(opened: Opened) -> None:
    page = opened(SEED)
    total = page.inner_text(".whole .number")
    assert total in page.inner_text("#headline") and total.removesuffix(" GB") in page.inner_text(
        ".verdict"
    )
    page.get_by_text("as PyTorch and nvidia-smi count it").click()
    page.locator(".named dd").last.wait_for()
    assert page.locator(".named dt").count() == 3


def test_a_map_colours_pairs_and_a_cell_opens_as_the_set_up(opened: Opened) -> None:
    page = opened("?model=llama3-8b&gpus=8xH100&strategy=zero1#sweep")
    page.click("#sweep button[type=submit]")
    until(page, "document.querySelector('#sweep .map')")
    cells = page.locator("#sweep button.cell")
    assert cells.count() == 10 and page.locator("#sweep .none").count() == 6
    assert page.locator("#sweep button.nofit").count() == 1
    best = page.locator("#sweep button.cell", has_text="★")
    rate = best.locator("span").inner_text().removeprefix("★ ")
    updated(page, best.click)
    assert rate in page.inner_text("#headline")
    assert best.get_attribute("aria-current") == "true"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert not Axe().run(page).response["violations"], scheme
    updated(page, lambda: enter(page, "seq_len", "4096"))
    assert "earlier set-up" in page.inner_text("#sweep-found")


def test_two_set_ups_side_by_side_come_back_from_the_link(opened: Opened) -> None:
    page = opened(SEED)
    page.get_by_role("button", name="+ Compare").click()
    updated(page, lambda: enter(page, "strategy", "zero3"))
    updated(page, lambda: enter(page, "micro_batch", "1"))
    assert page.locator("article").count() == 2
    assert "strategy zero3, micro-batch 1" in page.locator("#headline").inner_text()
    assert page.locator(".badge").count() >= 3  # the best of what differs
    assert words(page)["b.strategy"] == "zero3"
    steps = page.locator(".big").all_inner_texts()
    until(page, "document.querySelectorAll('path.line').length === 2")
    shown = page.locator("#results").inner_text()
    page.reload()
    until(page, "document.querySelectorAll('path.line').length === 2")
    assert page.locator(".big").all_inner_texts() == steps
    assert page.locator("#results").inner_text() == shown
    again = opened(f"?{urlparse(page.url).query}")
    until(again, "document.querySelectorAll('path.line').length === 2")
    assert again.locator("#results").inner_text() == shown
    page.get_by_role("button", name="Remove A").click()
    assert page.locator(".big").all_inner_texts() == steps[1:]


def test_a_copy_of_a_set_up_without_an_answer_says_why_too(opened: Opened) -> None:
    page = opened("?model=gpt2&gpus=8xA100z", refused=True)
    page.locator("#headline .problems").wait_for()
    page.get_by_role("button", name="+ Compare").click()
    assert page.locator("#headline .problems").count() == 2
    assert page.locator("#gpus-error").is_visible()


def test_a_copy_made_before_the_answer_is_asked_for_itself(opened: Opened) -> None:
    """The second set-up must not keep the answer from before the last move."""
    page = opened(SEED)
    held: list[Any] = []

    def first_waits(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/api/v1/answer?*", first_waits)
    enter(page, "strategy", "zero3")
    page.get_by_role("button", name="+ Compare").click()
    page.wait_for_timeout(LINK_MS)
    held[0].continue_()
    until(page, "document.querySelectorAll('.big').length === 2")
    until(
        page,
        "new Set([...document.querySelectorAll('.big')].map((e) => e.textContent)).size === 1"
        " && document.querySelectorAll('#cards h2').length === 2"
        " && [...document.querySelectorAll('#cards h2')].every((e) => /zero3/.test(e.innerText))",
    )


def test_four_set_ups_are_the_most(opened: Opened) -> None:
    page = opened(SEED)
    add = page.get_by_role("button", name="+ Compare")
    for _ in range(3):
        add.click()
    assert page.locator("article").count() == 4
    assert add.is_disabled()


def test_every_file_can_be_downloaded(opened: Opened) -> None:
    page = opened(SEED)
    found = {}
    page.get_by_label("Launch file format of set-up A").select_option("torchrun")
    for name in ("JSON", "HTML report", "Trace", "Launch file"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=f"{name} of set-up A").click()
        download = waiting.value
        found[name] = (download.suggested_filename, download.path().read_text(encoding="utf-8"))
    stem = "simcore-latte-xl-4x8xA6000ada"
    assert found["JSON"][0] == f"{stem}.json"
    assert json.loads(found["JSON"][1])["inputs"]["model"] == "latte-xl"
    assert found["Trace"][0] == f"{stem}.trace.json"
    assert json.loads(found["Trace"][1])["traceEvents"]
    assert found["HTML report"][0] == f"{stem}.html"
    assert page.locator(".big").inner_text() in found["HTML report"][1]
    assert found["Launch file"][0] == f"{stem}.torchrun.sh"
    assert "--nnodes" in found["Launch file"][1]


def test_a_file_that_cannot_be_written_says_why(opened: Opened) -> None:
    page = opened(SEED, refused=True)
    until(page, ANSWERED)
    page.get_by_label("Launch file format of set-up A").select_option("megatron")
    page.get_by_role("button", name="Launch file of set-up A").click()
    until(page, "document.querySelector('.note').textContent.includes('Megatron')")


@pytest.mark.parametrize(
    ("name", "value", "error", "says"),
    [
        ("network", "foo", "network", "unknown link"),
        ("tp", "7", "tp", "does not divide"),
        ("perNode", "99", "gpus", "holds"),
        ("grad_accum", "0", "grad_accum", "at least 1"),
        ("gpus_text", "4x8xA100z", "gpus_text", "did you mean"),
        ("model_file", '{"model_type": "lama"}', "model_file", "nearest supported: 'llama'"),
    ],
)
def test_bad_input_is_told_beside_its_control(
    opened: Opened, name: str, value: str, error: str, says: str
) -> None:
    page = opened(SEED, refused=True)
    until(page, ANSWERED)
    enter(page, name, value)
    page.locator(f"#{error}-error", has_text=says).wait_for()
    assert page.locator(f"#{error}-error").is_visible()
    assert page.locator(f"#in-{name}").get_attribute("aria-invalid") == "true"


def test_a_problem_leads_to_the_field_that_repairs_it(opened: Opened) -> None:
    page = opened("?model=gpt2&gpus=1x8xA100%2B1x2xT5", refused=True)
    page.get_by_role("button", name="show the field").click()
    assert page.evaluate("document.activeElement.id") == "in-gpus_text"
    assert page.locator("#in-gpus_text").get_attribute("aria-invalid") == "true"
    updated(page, lambda: page.fill("#in-gpus_text", "1x8xA100"))
    assert page.input_value("#in-gpu") == "A100"


LAYOUTS = f"{SEED}&b.model=gpt3-175b&b.gpus=16x8xH100-SXM-80GB&b.tp=8&b.pp=8"


@pytest.mark.parametrize("query", ["", LAYOUTS])
@pytest.mark.parametrize("path", ["/", "/docs"])
def test_a_narrow_screen_scrolls_down_only(opened: Opened, path: str, query: str) -> None:
    page = opened(query, path=path, viewport={"width": 360, "height": 740})
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    page.wait_for_timeout(100)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.evaluate("document.body.scrollWidth") <= 360
    if path == "/":
        top = page.locator("#headline").bounding_box()
        form = page.locator("#form").bounding_box()
        assert top and form and top["y"] < form["y"]  # the answer before the controls
        cut = """[...document.querySelectorAll('table')].filter(
            t => t.scrollWidth > t.parentElement.clientWidth)"""
        for tab in ("#tab-answer", "#tab-sweep", "#tab-plan"):
            page.click(tab)
            assert page.evaluate(f"{cut}.length") == 0
        page.evaluate("scrollTo(0, 900)")
        page.locator("#summary").wait_for()


@pytest.mark.parametrize("path", ["/", "/docs"])
def test_axe_finds_nothing(opened: Opened, path: str) -> None:
    page = opened(f"{SEED}&b.model=gpt3-175b&b.gpus=8xH100", path=path)
    until(page, "!document.querySelector('[aria-busy=true]')")
    page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        for tab in page.locator("[role=tab]").all() or [page.locator("body")]:
            tab.click()
            found = Axe().run(page).response["violations"]
            assert not [f"{v['id']}: {v['nodes'][0]['html']}" for v in found], scheme


def test_every_move_is_answered_and_none_is_asked_for_twice(opened: Opened) -> None:
    """What is moved faster than it is answered is asked for in its newest state alone."""
    page = opened(SEED)
    until(page, "performance.getEntriesByName('first-answer').length === 1")
    asked: list[str] = []
    page.on("request", lambda r: asked.append(r.url) if "/api/v1/answer" in r.url else None)
    moves = ["ArrowRight"] * 6 + ["ArrowLeft"] * 5
    for label in ("Nodes, slider", "Micro-batch, samples per GPU, slider"):
        slider = page.get_by_label(label)
        for key in moves:
            slider.press(key)
    last = page.get_by_label("Nodes, slider")
    updated(page, lambda: last.press("ArrowRight"))
    assert words(page)["gpus"].startswith(page.input_value("#in-nodes"))
    assert words(page)["micro_batch"] == page.input_value("#in-micro_batch") == "3"
    assert 1 <= len(asked) <= 2 * len(moves) + 1


def test_a_plan_is_made_and_its_points_open_as_set_ups(opened: Opened) -> None:
    page = opened("?model=gpt2&gpus=8xH100#plan")
    page.fill("#plan-gpus", "H100,A100")
    page.fill("#plan-tokens", "10B")
    page.fill("#plan-max_gpus", "16")
    page.press("#plan-tokens", "Enter")
    until(page, "document.querySelector('#plan-found .pick')")
    first = page.locator("#plan-found tbody button").first
    cluster = first.inner_text()
    updated(page, first.click)
    assert cluster in page.inner_text("#headline h2")
    page.wait_for_timeout(LINK_MS)
    assert parse_qs(urlparse(page.evaluate("location.href")).query)["gpus"] == [cluster]
    assert not Axe().run(page).response["violations"]


def test_a_plan_without_a_length_is_refused_beside_its_form(opened: Opened) -> None:
    page = opened("?model=gpt2&gpus=8xH100#plan", refused=True)
    until(page, "document.querySelector('.big')")
    page.click(".plan button")
    until(page, "document.querySelector('#plan .problems li')")
    assert "length of the run" in page.inner_text("#plan .problems")
