import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from tangentkit.core import InputError, ModelError
from tangentkit.models import TransformerClassifier, standard_normal
from tangentkit.models.transformer import Attention


def build(**options):
    """A network whose attention is far from uniform."""
    options = {"length": 16, "width": 12, "heads": 3, "outputs": 2} | options
    return TransformerClassifier(20, init=standard_normal, **options).double().eval()


def padded(n=4, s=7):
    lengths = torch.tensor([s, 1, 3, s - 1])[:n, None]
    return torch.randint(20, (n, s)), torch.arange(s) < lengths


VARIANTS = [{"causal": c, "pooling": p} for c in (False, True) for p in ("mean", "last")]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_is_torchs(causal):
    attention = Attention(12, 3).double()
    reference = nn.MultiheadAttention(12, 3, batch_first=True).double()
    reference.load_state_dict(
        {
            "in_proj_weight": attention.qkv.weight,
            "in_proj_bias": attention.qkv.bias,
            "out_proj.weight": attention.out.weight,
            "out_proj.bias": attention.out.bias,
        }
    )
    x, mask = torch.randn(4, 7, 12, dtype=torch.float64), padded()[1]
    allowed = mask[:, None, :] | torch.eye(7, dtype=torch.bool)
    if causal:
        allowed = allowed & torch.ones(7, 7, dtype=torch.bool).tril()
    expected, _ = reference(x, x, x, attn_mask=~allowed.repeat_interleave(3, 0))
    torch.testing.assert_close(attention(x, allowed), expected)


@pytest.mark.parametrize("options", VARIANTS)
def test_padding_has_no_effect(options):
    model, (ids, mask) = build(**options), padded()
    expected = torch.cat([model(row[keep][None]) for row, keep in zip(ids, mask, strict=True)])
    torch.testing.assert_close(model(ids, mask), expected)
    garbage = torch.where(mask, ids, torch.randint(20, ids.shape))
    torch.testing.assert_close(model(garbage, mask), expected)
    longer = F.pad(ids, (0, 5), value=3), F.pad(mask, (0, 5))
    torch.testing.assert_close(model(*longer), expected)


@pytest.mark.parametrize("options", VARIANTS)
def test_padding_on_the_left_is_ignored_too(options):
    """Absolute positions shift, so that outputs are not those without padding; but it stays unseen."""
    model, (ids, mask) = build(**options), padded()
    ids, mask = ids.flip(1), mask.flip(1)
    f = model(ids, mask)
    f.sum().backward()
    assert f.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters())
    garbage = torch.where(mask, ids, torch.randint(20, ids.shape))
    torch.testing.assert_close(model(garbage, mask), f)


def test_masks_of_integers_are_masks():
    model, (ids, mask) = build(), padded()
    assert torch.equal(model(ids, mask.long()), model(ids, mask))


def test_causal_networks_do_not_see_the_future():
    ids = torch.randint(20, (3, 9))
    changed = ids.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % 20
    causal, open_ = build(causal=True), build()
    torch.testing.assert_close(causal.hidden(ids)[:, :5], causal.hidden(changed)[:, :5])
    assert not torch.allclose(causal.hidden(ids)[:, 5:], causal.hidden(changed)[:, 5:])
    assert not torch.allclose(open_.hidden(ids)[:, :5], open_.hidden(changed)[:, :5])


def test_embeddings_pool_hidden_vectors_and_feed_the_head():
    ids, mask = padded()
    for pooling in ("mean", "last"):
        model = build(pooling=pooling)
        hidden = model.hidden(ids, mask)
        kept = [h[keep] for h, keep in zip(hidden, mask, strict=True)]
        expected = torch.stack([h.mean(0) if pooling == "mean" else h[-1] for h in kept])
        torch.testing.assert_close(model.embed(ids, mask), expected, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(model(ids, mask), model.head(model.embed(ids, mask)))


def test_order_matters():
    model, ids = build(), torch.tensor([[1, 2, 3, 4]])
    assert not torch.allclose(model(ids), model(ids.flip(1)))


def test_next_tokens_are_learned():
    """Sequences that count upwards: the next token is certain, the loss of a guess is log 20 = 3.0."""
    model = TransformerClassifier(20, length=8, width=16, heads=2, causal=True, seed=0)
    sequences = (torch.arange(20)[:, None] + torch.arange(9)) % 20
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(60):
        logits = model.next_token_logits(sequences[:, :-1])
        assert logits.shape == (20, 8, 20)
        loss = F.cross_entropy(logits.flatten(0, 1), sequences[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.3


def test_next_tokens_need_a_causal_network():
    with pytest.raises(ModelError, match="causal"):
        build().next_token_logits(torch.zeros(1, 3, dtype=torch.long))


# torch compiles its forward-mode rules by a function that it has itself deprecated.
@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")
def test_forward_mode_under_any_attention_backend():
    model, (ids, mask) = build(causal=True), padded()
    params = {name: p.detach() for name, p in model.named_parameters()}
    tangent = {name: torch.randn_like(p) for name, p in params.items()}

    def f(params):
        return torch.func.functional_call(model, params, (ids, mask))

    _, plain = torch.func.jvp(f, (params,), (tangent,))
    with sdpa_kernel(SDPBackend.MATH):
        _, math = torch.func.jvp(f, (params,), (tangent,))
    step = 1e-6
    there, back = (f({n: p + sign * step * tangent[n] for n, p in params.items()}) for sign in (1, -1))
    torch.testing.assert_close(plain, math)
    torch.testing.assert_close(plain, (there - back) / (2 * step), rtol=1e-5, atol=1e-5)


def test_dropout_acts_in_training_mode_only():
    model, (ids, mask) = build(dropout=0.5), padded()
    assert torch.equal(model(ids, mask), model(ids, mask))
    model.train()
    assert not torch.equal(model(ids, mask), model(ids, mask))


def test_bad_arguments_are_refused():
    with pytest.raises(InputError, match="at most 16"):
        build()(torch.zeros(1, 17, dtype=torch.long))
    with pytest.raises(InputError, match="divisor of 12"):
        build(heads=5)
    with pytest.raises(InputError, match="pooling"):
        build(pooling="max")
