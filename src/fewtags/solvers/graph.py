"""A nearest-neighbour graph of images, and label propagation on it. Pure functions on tensors."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from fewtags.errors import UserError
from fewtags.utils.extras import install_command

EXACT_UP_TO = 100_000  # images; with more, an approximate index is searched
BLOCK_CELLS = 1 << 26  # similarities held at a time: 256 MiB
LOWEST = 1e-6  # minimum cosine, so that every row has a positive sum
POWER = 3.0  # a neighbour's weight is its cosine to this power


class Neighbours(NamedTuple):
    """The k nearest neighbours of every image, with weights."""

    rows: Tensor  # [n, k] positions in the bank, nearest first
    weights: Tensor  # [n, k], each row sums to one

    def average(self, values: Tensor) -> Tensor:
        """values [m, K] of the bank -> their weighted mean over every image's neighbours [n, K]."""
        if not self.rows.shape[1]:
            return values.new_zeros(len(self.rows), values.shape[1])
        return embedding_bag(self.rows, values, per_sample_weights=self.weights.to(values), mode="sum")


def find_neighbours(vectors: Tensor, k: int, bank: Tensor | None = None, power: float = POWER) -> Neighbours:
    """The k nearest rows of the bank by cosine; without a bank, of the vectors themselves, excluding each row itself.

    vectors [n, d], bank [m, d]; a neighbour's weight is its cosine to the given power, and each row sums to one.

    >>> find_neighbours(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0]]), 1).rows.flatten().tolist()
    [1, 0, 1]
    """
    own = bank is None
    queries = normalize(vectors.float(), dim=1)
    among = queries if bank is None else normalize(bank.float(), dim=1)
    k = min(k, len(among) - own)
    if k < 1:
        nothing = torch.zeros(len(vectors), 0, device=vectors.device)
        return Neighbours(nothing.long(), nothing)
    cosines, rows = nearest(queries, among, k, own)
    weights = cosines.clamp(min=LOWEST).pow(power)
    return Neighbours(rows, weights / weights.sum(1, keepdim=True))


def nearest(queries: Tensor, among: Tensor, k: int, own: bool) -> tuple[Tensor, Tensor]:
    """Cosines and rows [n, k] of the nearest of `among` [m, d], both of length one.

    own: the queries are those rows themselves, and none is its own neighbour.
    """
    search = _exact if len(among) <= EXACT_UP_TO or queries.device.type != "cpu" else _indexed
    return search(queries, among, k, own)


def smooth(first: Tensor, neighbours: Neighbours, share: float = 0.5, rounds: int = 8) -> Tensor:
    """Label propagation: F <- share · W F + (1 - share) · F0, `rounds` times; F0 [n, K]."""
    found = first
    for _ in range(rounds):
        found = share * neighbours.average(found) + (1 - share) * first
    return found


def clamp_known(scores: Tensor, targets: Tensor) -> Tensor:
    """Scores with every known cell replaced by its label; unknown cells (below zero) keep theirs."""
    return torch.where(targets >= 0, targets.to(scores.dtype), scores)


def raised(soft: Tensor, share: Tensor, level: float = 0.9) -> Tensor:
    """Probabilities [n, K] scaled up where even the surest images of a tag stay below the level, and cut at 1.

    The surest are the top percent of all images, or half of those that should show the tag by its share [K] among
    the labelled images if that is less. A tag that no labelled image shows is raised too: the graph takes it from
    images that resemble labelled ones, and what is left has not been labelled yet.
    """
    percent = torch.tensor(0.01, device=soft.device)
    some = torch.where(share > 0, torch.minimum(share / 2, percent), percent).clamp(min=1 / len(soft))
    place = (some * len(soft)).long().clamp(1, len(soft)) - 1  # counted from the top
    top = soft.sort(0, descending=True).values.gather(0, place[None])[0]
    return (soft * (level / top.clamp(min=1e-6)).clamp(min=1)).clamp(max=1)


def _exact(queries: Tensor, among: Tensor, k: int, own: bool) -> tuple[Tensor, Tensor]:
    """All similarities, one block of queries at a time."""
    block = max(1, BLOCK_CELLS // len(among))
    cosines, rows = [], []
    for start in range(0, len(queries), block):
        alike = queries[start : start + block] @ among.T
        if own:
            place = torch.arange(len(alike), device=alike.device)
            alike[place, start + place] = -torch.inf
        found = alike.topk(k, dim=1)
        cosines.append(found.values)
        rows.append(found.indices)
    return torch.cat(cosines), torch.cat(rows)


def _indexed(queries: Tensor, among: Tensor, k: int, own: bool) -> tuple[Tensor, Tensor]:
    """An inverted-file index of faiss: searches the cells of the bank nearest to a query."""
    try:
        import faiss
    except ImportError as error:
        raise UserError(
            f"{len(among):,} images are too many for an exact search of neighbours; run: {install_command('scale')}"
        ) from error
    cells = int(4 * len(among) ** 0.5)
    index = faiss.index_factory(among.shape[1], f"IVF{cells},Flat", faiss.METRIC_INNER_PRODUCT)
    index.cp.seed = 1
    bank = among.numpy()
    index.train(bank)
    index.add(bank)
    index.nprobe = max(8, cells // 32)
    cosines, rows = (torch.from_numpy(found) for found in index.search(queries.numpy(), k + own))
    if own:  # drop the image itself; if duplicates rank before it, drop the last result instead
        itself = rows == torch.arange(len(rows))[:, None]
        itself[:, -1] |= ~itself.any(1)
        kept = ~itself
        cosines, rows = (found[kept].view(len(found), k) for found in (cosines, rows))
    missing = rows < 0  # fewer than k in the cells that were searched
    return cosines.masked_fill(missing, 0.0), rows.masked_fill(missing, 0)
