"""Resolution and frames as options: the settings of each architecture, and its encoders'."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig, UsageError


@pytest.mark.parametrize(
    ("model", "words", "tokens"),
    [
        ("latte-xl", {"resolution": "512"}, 16 * 32 * 32),
        ("latte-xl", {"frames": 8}, 8 * 16 * 16),
        ("flux.1-dev", {"resolution": "768x768"}, 48 * 48 + 512),
        ("wan2.1-1.3b", {"resolution": "720x1280", "frames": 41}, 11 * 45 * 80),
        ("vit-b-16", {"resolution": "384"}, 24 * 24 + 1),
    ],
)
def test_samples_are_as_large_as_asked(model: str, words: dict[str, str], tokens: int) -> None:
    request = make_request(model, "1x8xH100", **words)  # type: ignore[arg-type]
    assert request.workload.tokens_per_sample == tokens


@pytest.mark.parametrize(
    ("model", "words", "name"),
    [
        ("latte-xl", {"resolution": "512"}, "Latte-XL/2, unconditional, 16 frames of 512 x 512"),
        ("latte-xl", {"frames": 8}, "Latte-XL/2, unconditional, 8 frames of 256 x 256"),
        ("vit-b-16", {"resolution": "384"}, "ViT-B/16 (ImageNet 384 x 384)"),
        ("flux.1-dev", {"resolution": "768"},
         "FLUX.1 dev, 768 x 768, 512 text tokens, inputs encoded beforehand"),
        ("wan2.1-14b", {"resolution": "720x1280", "frames": 33},
         "Wan2.1 T2V 14B, 33 frames of 720 x 1280, inputs encoded beforehand"),
        ("nnunet-2d", {"resolution": "64"}, "nnU-Net 2D (BraTS, 64 x 64)"),
        ("nnunet-2d", {"resolution": "64x128"}, "nnU-Net 2D (BraTS, 64 x 128)"),
        ("nnunet-3d", {"resolution": "96"}, "nnU-Net 3D (BraTS, 96 x 96 x 96)"),
        ("clip-vit-l-14", {"resolution": "336"}, "CLIP ViT-L/14, 336 x 336"),  # it names none
    ],
)  # fmt: skip
def test_the_name_says_the_size_that_is_asked(model: str, words: dict[str, str], name: str) -> None:
    assert make_request(model, "1x8xH100", **words).full_name == name  # type: ignore[arg-type]


def test_encoders_in_the_step_see_the_same_images() -> None:
    plain, large = (
        make_request("dit-xl-2", "1x8xH100", **words).workload
        for words in ({}, {"resolution": "512"})
    )
    # convolutions grow with the area, the encoder's one attention with its square
    assert large.frozen_flop > 4 * plain.frozen_flop
    assert large.input_bytes > 3.9 * plain.input_bytes


def test_an_image_need_not_be_square_where_no_encoder_sees_it() -> None:
    wide, high, square = (
        make_request("flux.1-dev", "1x8xH100", resolution=r)
        for r in ("512x2048", "2048x512", "1024")
    )
    assert wide.full_name.startswith("FLUX.1 dev, 512 x 2048,")
    # as many tokens as of the square
    assert wide.workload.forward_flop == high.workload.forward_flop == square.workload.forward_flop
    assert wide.workload.saved == square.workload.saved


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("gpt2", {"resolution": "512"}, "no resolution to change"),
        ("qwen2.5-vl-7b", {"resolution": "448"}, "a frozen encoder: --set image=448"),
        ("gpt2", {"frames": 8}, "gpt2 has no frames to change"),
        ("latte-xl", {"resolution": "256x512"}, "must be square"),
        ("nnunet-3d", {"resolution": "96x64"}, "the sides of a volume"),
        ("flux.1-dev", {"resolution": "1000"}, "multiple of 8"),
        ("flux.1-dev", {"resolution": "1024x1000"}, "multiple of 8"),
        ("flux.1-schnell-encoders", {"resolution": "512x768"}, "see in the step are square"),
        ("wan2.1-14b", {"frames": 80}, "1 more than a multiple of 4"),
    ],
)
def test_a_size_that_a_model_cannot_have_is_refused(
    model: str, words: dict[str, str], said: str
) -> None:
    with pytest.raises(InvalidConfig, match=said):
        make_request(model, "1x8xH100", **words)  # type: ignore[arg-type]


def test_sizes_are_axes_of_a_sweep() -> None:
    sizes, lengths = ("480x832", "720x1280"), (33, 81)
    found = api.sweep(
        "wan2.1-1.3b", "8xH200", resolution=",".join(sizes), frames="33,81", top=9
    )  # fmt: skip
    told = set(found.columns()["more"])
    assert told == {f"frames {f}, resolution {r}" for r in sizes for f in lengths}


@pytest.mark.parametrize(
    ("layout", "first"),
    [("nhwc", False), ("channels_last", False), ("Channels-Last", False), ("nchw", True)],
)
def test_layout_says_how_a_convolutional_nets_tensors_lie(layout: str, first: bool) -> None:
    for model in ("resnet-152", "inception-v3", "efficientnet-b0"):
        workload = make_request(model, "1xA100", layout=layout).workload
        assert bool(workload.channels_first) is first


@pytest.mark.parametrize(
    ("model", "layout", "said"),
    [
        ("gpt2", "nhwc", "has no layout of tensors to choose"),
        ("resnet-152", "diagonal", "layout 'diagonal' is none of nhwc, nchw"),
    ],
)
def test_a_layout_that_is_none_is_refused(model: str, layout: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        api.predict(model, "1xA100", layout=layout)
