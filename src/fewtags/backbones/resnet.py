"""ResNet-18, 34, 50 and 101 with torchvision's key names, so that its public weight files load."""

from pathlib import Path

from torch import Tensor, nn

from fewtags.backbones.base import Backbone, imagenet_scaling
from fewtags.backbones.weights import load_weights
from fewtags.errors import UserError

_SIZE = 224


class _BasicBlock(nn.Module):
    """Two 3×3 convolutions with a shortcut (ResNet-18 and 34)."""

    expansion = 1

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels_in, channels, 3, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _conv(channels, channels, 3)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = _shortcut(channels_in, channels * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn1(self.conv1(x)).relu_()
        y = self.bn2(self.conv2(y))
        return y.add_(x if self.downsample is None else self.downsample(x)).relu_()


class _Bottleneck(nn.Module):
    """1×1, 3×3, 1×1 convolutions with a shortcut (ResNet-50 and 101); the stride is in the 3×3."""

    expansion = 4

    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = _conv(channels_in, channels, 1)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = _conv(channels, channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = _conv(channels, channels * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(channels * self.expansion)
        self.downsample = _shortcut(channels_in, channels * self.expansion, stride)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.bn1(self.conv1(x)).relu_()
        y = self.bn2(self.conv2(y)).relu_()
        y = self.bn3(self.conv3(y))
        return y.add_(x if self.downsample is None else self.downsample(x)).relu_()


_Block = type[_BasicBlock] | type[_Bottleneck]
_VARIANTS: dict[str, tuple[_Block, tuple[int, int, int, int]]] = {
    "resnet18": (_BasicBlock, (2, 2, 2, 2)),
    "resnet34": (_BasicBlock, (3, 4, 6, 3)),
    "resnet50": (_Bottleneck, (3, 4, 6, 3)),
    "resnet101": (_Bottleneck, (3, 4, 23, 3)),
}


class ResNet(Backbone):
    """Stem and four layers of residual blocks; the classifier, if the weights have one, is `fc`."""

    def __init__(self, name: str) -> None:
        block, repeats = _VARIANTS[name]
        super().__init__(name, 512 * block.expansion, _SIZE)
        self.set_scaling(*imagenet_scaling())
        self.conv1 = _conv(3, 64, 7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        self.layer1 = _layer(block, 64, 64, repeats[0], stride=1)
        self.layer2 = _layer(block, 64 * block.expansion, 128, repeats[1], stride=2)
        self.layer3 = _layer(block, 128 * block.expansion, 256, repeats[2], stride=2)
        self.layer4 = _layer(block, 256 * block.expansion, 512, repeats[3], stride=2)

    def _features(self, scaled: Tensor) -> Tensor:
        x: Tensor = self.maxpool(self.bn1(self.conv1(scaled)).relu_())
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return x


def build_resnet(name: str, weights: Path | None, pretrained: bool) -> ResNet:
    """A ResNet with weights from a file, or random ones (pretrained=False)."""
    if weights is None and pretrained:
        raise UserError(
            f"{name} brings no weights of its own: give torchvision's public file with "
            f"--weights {name}.pth (or .safetensors), or choose efficientnet_lite0, which needs no file"
        )
    backbone = ResNet(name)
    if weights is not None:
        load_weights(backbone, weights, optional=ResNet.classifier_name)
    return backbone


def _conv(channels_in: int, channels: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    conv = nn.Conv2d(channels_in, channels, kernel, stride, padding=kernel // 2, bias=False)
    nn.init.kaiming_normal_(conv.weight, mode="fan_out", nonlinearity="relu")
    return conv


def _shortcut(channels_in: int, channels: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and channels_in == channels:
        return None
    return nn.Sequential(_conv(channels_in, channels, 1, stride), nn.BatchNorm2d(channels))


def _layer(block: _Block, channels_in: int, channels: int, repeats: int, stride: int) -> nn.Sequential:
    rest = [block(channels * block.expansion, channels, 1) for _ in range(repeats - 1)]
    return nn.Sequential(block(channels_in, channels, stride), *rest)
