"""The network of a run and the processes it is trained by."""

import os

import torch
from lightning_fabric import Fabric
from lightning_fabric.strategies.ddp import DDPStrategy

from fewtags.backbones.norm import synchronise_batch_norms, tolerate_single_values
from fewtags.encoders.base import Encoder
from fewtags.methods import Method
from fewtags.model.network import Network
from fewtags.training.recipe import Recipe
from fewtags.training.source import FeatureSource, Source


def processes() -> tuple[int, int]:
    """(rank, how many) as torchrun tells; (0, 1) without it."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def make_fabric(recipe: Recipe) -> Fabric:
    """One process on a GPU or the CPU, or all that torchrun has started."""
    _, count = processes()
    accelerator = "cuda" if torch.cuda.is_available() else "cpu"
    if count == 1:
        fabric = Fabric(accelerator=accelerator, devices=1, precision=recipe.precision)
    else:
        here = int(os.environ.get("LOCAL_WORLD_SIZE", count))
        fabric = Fabric(
            accelerator=accelerator,
            devices=here,
            num_nodes=count // here,
            # heads for pseudo-labels get no gradient in the warm-up; buffers are the same everywhere by themselves
            strategy=DDPStrategy(find_unused_parameters=True, broadcast_buffers=False),
            precision=recipe.precision,
        )
    fabric.launch()
    return fabric


def build_network(
    encoder: Encoder, source: Source, method: Method, recipe: Recipe, tags: int, fabric: Fabric
) -> Network:
    """Heads on the backbone itself, or on what the method puts between them and stored features."""
    torch.manual_seed(recipe.seed)
    method.expect_words(encoder.words)
    heads = method.build_heads(encoder.width, tags)
    if recipe.tune == "heads":
        body = method.build_body(encoder.width, recipe.adapter)
        if isinstance(source, FeatureSource):
            method.start(body, heads, source.statistics)
    else:
        body = encoder.backbones[0]
    network = Network(body, heads)
    if fabric.world_size > 1:
        synchronise_batch_norms(network)
    else:
        tolerate_single_values(network)
    if recipe.precision == "64-true":
        network.double()  # before the averaged copy is taken of it, which Fabric would not convert
    return network.to(fabric.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]
