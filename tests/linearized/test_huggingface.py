"""Networks of Hugging Face, called with their keywords, returning their own outputs."""

import pytest
import torch

from cases import gap
from tangentkit import reference
from tangentkit.core.seeds import Key
from tangentkit.linearized import linearize

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install tangentkit[hf]"
)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def bert(attention):
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=8, num_labels=3, attn_implementation=attention,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2(attention):
    config = transformers.GPT2Config(
        vocab_size=20, n_embd=8, n_layer=1, n_head=2, n_positions=8, num_labels=3, pad_token_id=0,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.GPT2ForSequenceClassification(config)


@pytest.mark.parametrize("make", [bert, gpt2])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_value_and_gradient_of_the_logits(make, attention):
    torch.manual_seed(0)
    network = make(attention).double().eval()
    batch = {
        "input_ids": torch.randint(1, 20, (4, 5), generator=Key(0).torch()),
        "attention_mask": torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 0], [1, 0, 0, 0, 0]]),
    }
    batch["input_ids"] *= batch["attention_mask"]  # padding by token 0, whose embedding has no gradient
    j = reference.jacobian(network, batch, forward=lambda m, b: m(**b).logits)
    model = linearize(network)
    generator = Key(1).torch()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
        before = network(**batch)
    u = torch.cat([p.detach().flatten() for p in model.parameters()])
    found = model(**batch)
    assert type(found) is type(before)
    assert gap(found.logits.detach(), before.logits + j @ u) <= 1e-10
    v = torch.randn(4, 3, generator=generator).double()
    found.logits.backward(v)
    gradient = torch.cat(
        [(p.grad if p.grad is not None else 0 * p.detach()).flatten() for p in model.parameters()]
    )
    assert gap(gradient, torch.einsum("nc,ncp->p", v, j)) <= 1e-10


def test_models_that_are_checkpointed_train_without():
    torch.manual_seed(0)
    network = bert("sdpa").double().eval()
    plain = linearize(network)
    network.gradient_checkpointing_enable()
    model = linearize(network)
    batch = {"input_ids": torch.randint(1, 20, (4, 5), generator=Key(0).torch())}
    gradients = []
    for module in (plain, model):
        module(**batch).logits.square().sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None]))
    assert gap(gradients[1], gradients[0]) <= 1e-12


def test_models_that_compute_in_float32_inside_are_right_to_its_rounding():
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
        max_position_embeddings=8,
    )  # fmt: skip
    network = transformers.LlamaForCausalLM(config).double().eval()
    batch = {"input_ids": torch.randint(1, 20, (4, 5), generator=Key(0).torch())}
    model = linearize(network)
    logits, v = model(**batch).logits, torch.randn(4, 5, 20, generator=Key(1).torch()).double()
    expected = network(**batch).logits
    assert gap(logits.detach(), expected.detach()) <= 1e-5
    logits.backward(v)
    truth = torch.autograd.grad(expected, list(network.parameters()), v)
    found = [p.grad for p in model.parameters()]
    assert gap(*(torch.cat([g.flatten() for g in part]) for part in (found, truth))) <= 1e-5
