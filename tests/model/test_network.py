"""Heads, their merge and mix, the averaged copy, the adapter, and BatchNorm over several processes."""

import copy

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from fewtags.backbones.norm import SynchronisedBatchNorm, synchronise_batch_norms
from fewtags.methods.parts.heads import Adapter, Heads, merge_patches, mixed_scores, patch_logits
from fewtags.model.network import Network
from fewtags.training.average import Average

PATCHES = torch.tensor([2.0, 0.0, 0.0, -2.0]).view(1, 4, 1)
WHOLE = torch.tensor([[1.0]])
ALL = ("whole_make", "patch_make", "whole_use", "patch_use")
finite = st.floats(-30, 30, width=32)


@given(st.lists(finite, min_size=1, max_size=9), st.floats(0.1, 10), st.randoms())
def test_merged_patches_lie_between_mean_and_maximum_in_any_order(values, alpha, random):
    merged = merge_patches(torch.tensor(values).view(1, -1, 1), alpha).item()
    random.shuffle(values)
    assert merge_patches(torch.tensor(values).view(1, -1, 1), alpha).item() == pytest.approx(merged, abs=1e-4)
    assert sum(values) / len(values) - 1e-4 <= merged <= max(values) + 1e-4


def test_one_patch_or_equal_patches_are_their_own_merge():
    alone = torch.randn(3, 1, 5)
    torch.testing.assert_close(merge_patches(alone, 0.3), alone[:, 0])
    torch.testing.assert_close(merge_patches(alone.expand(3, 6, 5), 0.3), alone[:, 0])


def test_a_small_alpha_follows_the_best_patch_and_a_large_one_the_mean():
    assert merge_patches(PATCHES, 0.01).item() == pytest.approx(2.0)
    assert merge_patches(PATCHES, 1000.0).item() == pytest.approx(0.0, abs=0.01)


def test_the_merge_of_the_released_code_and_of_the_paper():
    assert merge_patches(PATCHES).item() == pytest.approx(1.523, abs=5e-4)
    assert merge_patches(PATCHES.sigmoid()).item() == pytest.approx(0.572, abs=5e-4)
    assert patch_logits(PATCHES, "logits").item() == pytest.approx(1.523, abs=5e-4)
    assert patch_logits(PATCHES, "probs").sigmoid().item() == pytest.approx(0.572, abs=5e-4)


@pytest.mark.parametrize(("merge", "score"), [("logits", 0.779), ("probs", 0.651)])
def test_the_mixed_score_of_the_released_code_and_of_the_paper(merge, score):
    logits = {"whole_make": WHOLE, "patch_make": PATCHES, "whole_use": -WHOLE, "patch_use": -PATCHES}
    assert mixed_scores(logits, merge).item() == pytest.approx(score, abs=5e-4)


def test_without_patches_the_whole_image_alone_gives_the_score():
    assert mixed_scores({"whole_make": WHOLE}).item() == pytest.approx(torch.sigmoid(WHOLE).item())


def test_scores_of_half_precision_logits_are_float32():
    logits = {"whole_make": WHOLE.half(), "patch_make": PATCHES.half()}
    assert mixed_scores(logits).dtype == torch.float32


def test_whole_heads_read_the_whole_image_and_patch_heads_the_patches():
    network = Network(nn.Identity(), Heads(3, 2, ALL))
    whole, patches = torch.randn(4, 3), torch.randn(4, 5, 3)
    logits = network(whole, patches)
    assert set(logits) == set(ALL)
    heads = dict(network.heads.named_children())
    for end in ("make", "use"):
        torch.testing.assert_close(logits[f"whole_{end}"], heads[f"whole_{end}"](whole))
        torch.testing.assert_close(logits[f"patch_{end}"], heads[f"patch_{end}"](patches))
    assert set(network(whole)) == {"whole_make", "whole_use"}


def test_heads_start_at_one_bias_so_that_every_tag_is_rare():
    logits = Heads(3, 2, ALL).start_at(-2.5)(torch.randn(4, 3), "whole")
    for of_head in logits.values():
        torch.testing.assert_close(of_head, torch.full((4, 2), -2.5))


def test_use_heads_are_given_the_weights_of_the_make_heads():
    heads = Heads(3, 2, ALL)
    before = copy.deepcopy(heads)
    heads.copy_make_to_use()
    for part in ("whole", "patch"):
        make, use = getattr(heads, f"{part}_make"), getattr(heads, f"{part}_use")
        torch.testing.assert_close(use.weight, make.weight, rtol=0, atol=0)
        torch.testing.assert_close(use.bias, make.bias, rtol=0, atol=0)
        assert torch.equal(make.weight, getattr(before, f"{part}_make").weight)
    with torch.no_grad():
        heads.whole_make.weight.add_(1)
    assert not torch.equal(heads.whole_use.weight, heads.whole_make.weight)  # a copy, not the same memory


def test_the_average_keeps_the_share_of_the_start_that_its_decay_says():
    network = Network(nn.BatchNorm2d(1), Heads(1, 1, ["whole_make"]))
    average = Average(network, 0.9997)
    with torch.no_grad():
        start = [value.clone() for value in network.state_dict().values()]
        for value in network.state_dict().values():
            value.add_(1)
    for _ in range(216):
        average.follow(network)
    kept = 0.9997**216
    assert kept == pytest.approx(0.937, abs=1e-3)
    for name, value, first in zip(network.state_dict(), average.network.state_dict().values(), start, strict=True):
        expected = first + 1 if "num_batches" in name else first + (1 - kept)
        torch.testing.assert_close(value, expected, rtol=0, atol=1e-5)


def test_the_average_never_learns_and_stays_out_of_training():
    network = Network(nn.BatchNorm2d(1), Heads(1, 1, ["whole_make"])).train()
    average = Average(network, 0.5)
    assert not average.network.training
    assert not any(parameter.requires_grad for parameter in average.network.parameters())
    assert network.training
    assert all(parameter.requires_grad for parameter in network.parameters())


def test_an_adapter_starts_as_the_features_themselves_at_length_ten():
    features = torch.randn(6, 8)
    adapted = Adapter(8, 16)(features)
    torch.testing.assert_close(adapted, 10 * features / features.norm(dim=1, keepdim=True))
    torch.testing.assert_close(adapted.norm(dim=1), torch.full((6,), 10.0))


def test_an_adapter_learns_a_correction():
    adapter = Adapter(8, 16)
    features = torch.randn(6, 8)
    adapter(features).square().sum().backward()
    assert adapter.widen.weight.grad.abs().sum() > 0
    with torch.no_grad():
        adapter.widen.weight.sub_(adapter.widen.weight.grad)
    assert not torch.allclose(adapter(features), Adapter(8, 16)(features))


@pytest.fixture
def group_of_one():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_batch_norm_of_joined_processes_is_batch_norm(group_of_one):
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4))
    nn.init.uniform_(plain[1].weight)
    nn.init.uniform_(plain[1].bias)
    joined = copy.deepcopy(plain)
    synchronise_batch_norms(joined)
    assert type(joined[1]) is SynchronisedBatchNorm
    for _ in range(3):
        x = 3 * torch.randn(5, 3, 2, 2) + 1
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        ours_out, theirs_out = joined(ours), plain(theirs)
        torch.testing.assert_close(ours_out, theirs_out)
        weights = torch.randn_like(ours_out)
        (ours_out * weights).sum().backward()
        (theirs_out * weights).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-5)
        for mine, other in zip(joined.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=1e-4, atol=1e-5)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(joined.state_dict()[name], value)
    torch.testing.assert_close(joined.eval()(x), plain.eval()(x))
