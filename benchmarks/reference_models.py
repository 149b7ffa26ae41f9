"""Training throughput of other projects' models on one device, for the ratios in the READMEs of the cases.

`python benchmarks/reference_models.py bert|mobilenetv2|faster_rcnn [--steps N] [--device cuda] [--batch B] [--compile]`

Random (not constant) data that lies on the device, bf16 autocast, the published sizes, a synchronised window after
warm-up. Needs transformers or torchvision. Prints one JSON line; run it beside `pytest suite --model MODEL --mode
throughput`, in one session on one machine: only the ratio means something.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch

Step = Callable[[], Any]


def bert(batch: int, device: str) -> tuple[torch.nn.Module, Step]:
    """Hugging Face's BertForPreTraining, base, sequence 128, 20 predictions a sequence."""
    from transformers import BertConfig, BertForPreTraining

    model = BertForPreTraining(BertConfig(vocab_size=30528)).to(device).train()
    ids = torch.randint(1000, 30000, (batch, 128), device=device)
    labels = torch.full((batch, 128), -100, device=device)
    labels[:, :20] = ids[:, :20]
    kinds = torch.zeros_like(ids)
    kinds[:, 64:] = 1
    follows = torch.randint(0, 2, (batch,), device=device)
    mask = torch.ones_like(ids)

    def loss(net: Any) -> torch.Tensor:
        return net(
            input_ids=ids, attention_mask=mask, token_type_ids=kinds, labels=labels, next_sentence_label=follows
        ).loss

    return model, loss


def mobilenetv2(batch: int, device: str) -> tuple[torch.nn.Module, Step]:
    """torchvision's mobilenet_v2 on 224 x 224, channels-last."""
    from torchvision.models import mobilenet_v2

    model = mobilenet_v2().to(device, memory_format=torch.channels_last).train()
    images = torch.randn(batch, 3, 224, 224, device=device).to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (batch,), device=device)
    return model, lambda net: torch.nn.functional.cross_entropy(net(images), labels)


def faster_rcnn(batch: int, device: str) -> tuple[torch.nn.Module, Step]:
    """torchvision's Faster R-CNN with ResNet-50 FPN on 800 x 1216, eight boxes an image.

    Built by hand, since fasterrcnn_resnet50_fpn without weights freezes neither norms nor stages; the recipe does both.
    """
    from torchvision.models import resnet50
    from torchvision.models.detection import FasterRCNN
    from torchvision.models.detection.backbone_utils import _resnet_fpn_extractor
    from torchvision.ops.misc import FrozenBatchNorm2d

    backbone = _resnet_fpn_extractor(resnet50(norm_layer=FrozenBatchNorm2d), trainable_layers=3)
    model = FasterRCNN(backbone, num_classes=91).to(device).train()
    images = list(torch.rand(batch, 3, 800, 1216, device=device))
    corner = torch.rand(batch, 8, 2, device=device) * torch.tensor([900.0, 500.0], device=device)
    size = 40 + torch.rand(batch, 8, 2, device=device) * 240
    boxes = torch.cat([corner, corner + size], -1)
    targets = [{"boxes": b, "labels": torch.randint(1, 91, (8,), device=device)} for b in boxes]
    return model, lambda net: sum(net(images, targets).values())


MODELS = {
    "bert": (bert, 256, torch.optim.AdamW),
    "mobilenetv2": (mobilenetv2, 256, torch.optim.SGD),
    "faster_rcnn": (faster_rcnn, 16, torch.optim.SGD),
}


def measure(name: str, batch: int, device: str, steps: int, compiled: bool) -> dict[str, Any]:
    """Samples a second in the median of five windows."""
    build, _, optimizer_class = MODELS[name]
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    model, loss = build(batch, device)
    optimizer = optimizer_class(model.parameters(), lr=1e-4, **({"fused": True} if device != "cpu" else {}))
    net = torch.compile(model) if compiled else model

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            value = loss(net)
        value.backward()
        optimizer.step()

    synchronise = torch.get_device_module(device).synchronize
    for _ in range(max(10, steps // 5)):
        step()
    rates = []
    for _ in range(5):
        synchronise()
        start = time.perf_counter()
        for _ in range(steps // 5):
            step()
        synchronise()
        rates.append(batch * (steps // 5) / (time.perf_counter() - start))
    versions = {p: importlib.metadata.version(p) for p in ("torch", "torchvision", "transformers")}
    return {
        "model": name,
        "batch": batch,
        "compiled": compiled,
        "samples_per_s": median(rates),
        "windows": rates,
        **versions,
    }


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--batch", type=int, default=0)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--compile", action="store_true")
    given = parser.parse_args()
    batch = given.batch or MODELS[given.model][1]
    print(json.dumps(measure(given.model, batch, given.device, given.steps, given.compile)), flush=True)


if __name__ == "__main__":
    main()
