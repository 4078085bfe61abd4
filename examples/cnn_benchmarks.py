"""Runs classic convolutional networks on synthetic images and prints how many images a second each
of them takes.

The networks are defined here, after their papers, with an average pool of any size before the last
layers so that they take small images too. Measured are whole batches by wall time: with --mode
inference the forward pass without gradients in evaluation mode, with --mode training forward, loss,
backward and an SGD step. The images are noise made beforehand: loading and decoding are not
measured. The first batches, in which memory is allocated and kernels are made, are left out; of the
others the median counts.

    python examples/cnn_benchmarks.py resnet18 mobilenet --mode training --batch-size 32
    --image-size 224
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 1000
AT_LEAST = 3  # batches that are measured, however slow


def convolution(
    inside: int, outside: int, size: int, stride: int = 1, groups: int = 1
) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU; the image keeps its size if the stride is 1."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    )


def linear(channels: int) -> nn.Sequential:
    """The mean of each channel, and one dense layer."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, CLASSES))


def dense(size: int, channels: int) -> nn.Sequential:
    """The mean of each of size x size places, and three dense layers that forget half of what they
    know in training.
    """
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(size),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(size * size * channels, 4096),
        nn.ReLU(inplace=True),
        nn.Dropout(),
        nn.Linear(4096, 4096),
        nn.ReLU(inplace=True),
        nn.Linear(4096, CLASSES),
    )


class Network(nn.Module):
    """First what there is to see in an image, then what it shows."""

    def __init__(self, features: list[nn.Module], classifier: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = classifier

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(images))


class AlexNet(Network):
    """Five convolutions, three dense layers (Krizhevsky 2014, in one tower)."""

    def __init__(self) -> None:
        features = [
            nn.Conv2d(3, 64, 11, 4, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(64, 192, 5, padding=2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.ReLU(inplace=True),
        ]
        super().__init__(features, dense(6, 256))


class VGG11(Network):
    """Eight convolutions of 3x3 in five stages, three dense layers (Simonyan and Zisserman
    2014).
    """

    def __init__(self) -> None:
        features: list[nn.Module] = []
        channels = 3
        for width, count in ((64, 1), (128, 1), (256, 2), (512, 2), (512, 2)):
            for _ in range(count):
                features += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True)]
                channels = width
            features.append(nn.MaxPool2d(2))
        super().__init__(features, dense(7, 512))


class Residual(nn.Module):
    """What some layers compute is added to what came in (He 2015): 3x3 and 3x3, or 1x1, 3x3 and
    1x1.
    """

    def __init__(self, inside: int, width: int, outside: int, stride: int) -> None:
        super().__init__()
        if outside == width:
            layers = [convolution(inside, width, 3, stride)]
        else:
            layers = [convolution(inside, width, 1), convolution(width, width, 3, stride)]
        last = nn.Conv2d(
            width, outside, 3 if outside == width else 1, padding=int(outside == width), bias=False
        )
        self.layers = nn.Sequential(*layers, last, nn.BatchNorm2d(outside))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.layers(x) + self.shortcut(x))


class ResNet(Network):
    """A convolution of 7x7 and four stages of residual blocks, each of half the size and twice the
    channels.
    """

    def __init__(self, blocks: tuple[int, ...], wider: int) -> None:
        features: list[nn.Module] = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for number, count in enumerate(blocks):
            width = 64 << number
            for block in range(count):
                features.append(
                    Residual(channels, width, width * wider, 2 if number and not block else 1)
                )
                channels = width * wider
        super().__init__(features, linear(channels))


class ResNet18(ResNet):
    """Blocks of two convolutions."""

    def __init__(self) -> None:
        super().__init__((2, 2, 2, 2), 1)


class ResNet50(ResNet):
    """Blocks of three convolutions, the middle one narrow."""

    def __init__(self) -> None:
        super().__init__((3, 4, 6, 3), 4)


class Beside(nn.Module):
    """Several ways through, side by side: their channels are put together."""

    def __init__(self, *ways: nn.Module) -> None:
        super().__init__()
        self.ways = nn.ModuleList(ways)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([way(x) for way in self.ways], 1)


# Of each inception block: channels in, of 1x1, before and of 3x3, before and of 5x5, behind the
# pool; 0: half the size.
GOOGLENET = (
    (192, 64, 96, 128, 16, 32, 32),
    (256, 128, 128, 192, 32, 96, 64),
    (0,),
    (480, 192, 96, 208, 16, 48, 64),
    (512, 160, 112, 224, 24, 64, 64),
    (512, 128, 128, 256, 24, 64, 64),
    (512, 112, 144, 288, 32, 64, 64),
    (528, 256, 160, 320, 32, 128, 128),
    (0,),
    (832, 256, 160, 320, 32, 128, 128),
    (832, 384, 192, 384, 48, 128, 128),
)


class Inception(Beside):
    """1x1, 3x3, 5x5 and a pool, the larger ones behind a 1x1 that narrows."""

    def __init__(
        self, inside: int, one: int, before3: int, three: int, before5: int, five: int, pooled: int
    ) -> None:
        super().__init__(
            convolution(inside, one, 1),
            nn.Sequential(convolution(inside, before3, 1), convolution(before3, three, 3)),
            nn.Sequential(convolution(inside, before5, 1), convolution(before5, five, 5)),
            nn.Sequential(nn.MaxPool2d(3, 1, 1), convolution(inside, pooled, 1)),
        )


class GoogLeNet(Network):
    """Nine inception blocks (Szegedy 2014), with batch normalisation and without the two extra
    classifiers.
    """

    def __init__(self) -> None:
        features: list[nn.Module] = [
            convolution(3, 64, 7, 2),
            nn.MaxPool2d(3, 2, 1),
            convolution(64, 64, 1),
            convolution(64, 192, 3),
            nn.MaxPool2d(3, 2, 1),
        ]
        for channels, *widths in GOOGLENET:
            features.append(Inception(channels, *widths) if channels else nn.MaxPool2d(3, 2, 1))
        super().__init__(features, linear(1024))


# Of each pair of convolutions: channels, stride.
MOBILENET = (
    (64, 1),
    (128, 2),
    (128, 1),
    (256, 2),
    (256, 1),
    (512, 2),
    *[(512, 1)] * 5,
    (1024, 2),
    (1024, 1),
)


class MobileNet(Network):
    """Each convolution in two: every channel by itself, then all channels of a pixel (Howard
    2017).
    """

    def __init__(self) -> None:
        features: list[nn.Module] = [convolution(3, 32, 3, 2)]
        channels = 32
        for width, stride in MOBILENET:
            features += [
                convolution(channels, channels, 3, stride, groups=channels),
                convolution(channels, width, 1),
            ]
            channels = width
        super().__init__(features, linear(channels))


class Fire(nn.Sequential):
    """A narrow 1x1, then 1x1 and 3x3 side by side."""

    def __init__(self, inside: int, narrow: int, wide: int) -> None:
        beside = Beside(nn.Conv2d(narrow, wide, 1), nn.Conv2d(narrow, wide, 3, padding=1))
        super().__init__(
            nn.Conv2d(inside, narrow, 1), nn.ReLU(inplace=True), beside, nn.ReLU(inplace=True)
        )


class SqueezeNet(Network):
    """Few weights, and no dense layer (Iandola 2016, version 1.1)."""

    def __init__(self) -> None:
        features = [
            nn.Conv2d(3, 64, 3, 2, 1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
            Fire(64, 16, 64),
            Fire(128, 16, 64),
            nn.MaxPool2d(3, 2, 1),
            Fire(128, 32, 128),
            Fire(256, 32, 128),
            nn.MaxPool2d(3, 2, 1),
            Fire(256, 48, 192),
            Fire(384, 48, 192),
            Fire(384, 64, 256),
            Fire(512, 64, 256),
        ]
        classifier = nn.Sequential(
            nn.Dropout(),
            nn.Conv2d(512, CLASSES, 1),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
        )
        super().__init__(features, classifier)


class Growing(nn.Module):
    """Some channels more: normalisation before each convolution, and what came in stays (Huang
    2016).
    """

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inside),
            nn.ReLU(),
            nn.Conv2d(inside, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth),
            nn.ReLU(inplace=True),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.layers(x)], 1)


class DenseNet(Network):
    """DenseNet-121 at half the depth: blocks of 3, 6, 12 and 8 layers that grow by 32 channels
    each.
    """

    def __init__(self) -> None:
        features: list[nn.Module] = [convolution(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
        channels = 64
        for number, count in enumerate((3, 6, 12, 8)):
            if number:
                features += [
                    nn.BatchNorm2d(channels),
                    nn.ReLU(inplace=True),
                    nn.Conv2d(channels, channels // 2, 1, bias=False),
                    nn.AvgPool2d(2, ceil_mode=True),
                ]
                channels //= 2
            for _ in range(count):
                features.append(Growing(channels, 32))
                channels += 32
        super().__init__(
            [*features, nn.BatchNorm2d(channels), nn.ReLU(inplace=True)], linear(channels)
        )


NETWORKS: dict[str, Callable[[], Network]] = {
    network.__name__.lower(): network
    for network in (AlexNet, VGG11, ResNet18, ResNet50, GoogLeNet, MobileNet, SqueezeNet, DenseNet)
}
MODES = ("inference", "training")


def batch_of(
    model: nn.Module, mode: str, images: torch.Tensor, labels: torch.Tensor
) -> Callable[[], None]:
    """What is done with one batch."""
    model.train(mode == "training")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)

    def infer() -> None:
        with torch.inference_mode():
            model(images)

    def learn() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()

    return learn if mode == "training" else infer


def measure(batch: Callable[[], None], seconds: float, warm_up: int) -> list[float]:
    """Seconds of each batch after the first ones, for as long as that."""
    for _ in range(warm_up):
        batch()
    spent: list[float] = []
    while len(spent) < AT_LEAST or sum(spent) < seconds:
        begin_s = time.perf_counter()
        batch()
        spent.append(time.perf_counter() - begin_s)
    return spent


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "networks",
        nargs="*",
        metavar="NETWORK",
        help=f"any of {', '.join(NETWORKS)} (default: all of them)",
    )
    parser.add_argument("--mode", choices=(*MODES, "both"), default="both")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument(
        "--image-size", type=int, default=96, help="pixels along a side; at least 64 (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1.0, help="of each network in each mode (%(default)s)"
    )
    parser.add_argument(
        "--warm-up", type=int, default=2, metavar="BATCHES", help="that do not count (%(default)s)"
    )
    parser.add_argument("--threads", type=int, help="threads that compute")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    unknown = [name for name in options.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"there is no network {unknown[0]}; there are {', '.join(NETWORKS)}")
    if options.image_size < 64:
        parser.error("images have 64 pixels along a side at least")
    return options


def main() -> None:
    """Measures one network after the other."""
    options = parse_arguments()
    torch.manual_seed(options.seed)
    if options.threads:
        torch.set_num_threads(options.threads)
    size = options.image_size
    images = torch.randn(options.batch_size, 3, size, size)
    labels = torch.randint(0, CLASSES, (options.batch_size,))
    print(
        f"batches of {options.batch_size} synthetic images of {size}x{size}, "
        f"{torch.get_num_threads()} threads; "
        f"wall time, the first {options.warm_up} batches left out"
    )
    print(
        f"{'network':<12}{'parameters':>12}{'mode':>12}{'batches':>9}"
        f"{'ms a batch':>12}{'images/s':>10}"
    )
    for name in options.networks or NETWORKS:
        model = NETWORKS[name]()
        parameters = sum(parameter.numel() for parameter in model.parameters())
        for mode in MODES if options.mode == "both" else (options.mode,):
            spent = measure(batch_of(model, mode, images, labels), options.seconds, options.warm_up)
            batch_s = statistics.median(spent)
            rate = options.batch_size / batch_s
            row = f"{name:<12}{parameters:>12,}{mode:>12}{len(spent):>9}"
            print(f"{row}{batch_s * 1e3:>12.1f}{rate:>10,.1f}", flush=True)


if __name__ == "__main__":
    main()
