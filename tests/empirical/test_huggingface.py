"""Hugging Face BERT and GPT-2 from their configurations, with attention masks."""

import pytest
import torch
from torch.utils.data import Dataset

from cases import TOLERANCE, along, gap, kernel_of_jacobians
from tangentkit import reference
from tangentkit.compute import gram
from tangentkit.core import InputError, ModelError
from tangentkit.empirical import ConjugateKernel, EmbeddingKernel, TangentKernel
from tangentkit.empirical.activations.kernels import LeftOutWarning, PositionsWarning
from tangentkit.machines import refit_last_layer
from tangentkit.sketch import SketchedTangentKernel

transformers = pytest.importorskip(
    "transformers", reason="transformers is not installed: pip install tangentkit[hf]"
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*do not reach the output"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]

VOCABULARY, T = 20, 5


def bert(attention):
    config = transformers.BertConfig(
        vocab_size=VOCABULARY, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
        max_position_embeddings=8, num_labels=3, attn_implementation=attention,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def gpt2(attention):
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=8, num_labels=3, pad_token_id=0,
        attn_implementation=attention,
    )  # fmt: skip
    return transformers.GPT2ForSequenceClassification(config)


def language_model(attention):
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, n_positions=8, attn_implementation=attention
    )
    model = transformers.GPT2LMHeadModel(config)
    assert model.lm_head.weight is model.transformer.wte.weight
    return model


def logits(model, batch):
    return model(**batch).logits


def last_token(model, batch):
    last = batch["attention_mask"].sum(1) - 1
    return model(**batch).logits[torch.arange(len(last)), last][:, :4]


MODELS = {"bert": (bert, logits), "gpt2": (gpt2, logits), "gpt2 language model": (language_model, last_token)}


def batch(n, seed):
    generator = torch.Generator().manual_seed(seed)
    length = torch.randint(2, T + 1, (n,), generator=generator)
    length[0] = T
    mask = (torch.arange(T)[None, :] < length[:, None]).long()
    return {
        "input_ids": torch.randint(1, VOCABULARY, (n, T), generator=generator) * mask,
        "attention_mask": mask,
    }


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", MODELS)
def test_right_with_attention_masks(name, attention):
    make, forward = MODELS[name]
    model = make(attention).double().eval()
    x, y = batch(6, 1), batch(4, 2)
    jx, jy = (reference.jacobian(model, part, forward=forward) for part in (x, y))
    learned = TangentKernel(model, forward=forward)
    for outputs in ("trace", "full", "pseudo", 1):
        kernel = along(learned, outputs)
        assert gap(kernel(x), kernel_of_jacobians(jx, jx, outputs)) <= 1e-10
        assert gap(kernel(x, y), kernel_of_jacobians(jx, jy, outputs)) <= 1e-10
    v = torch.randn(jx.shape[:2]).double()
    full = kernel_of_jacobians(jx, jx, "full")
    assert gap(learned.product(x, v), torch.einsum("icjd,jd->ic", full, v)) <= 1e-10
    single = TangentKernel(model.float(), forward=forward)
    assert gap(single(x, y), kernel_of_jacobians(jx, jy, "trace")) <= TOLERANCE[torch.float32]


@pytest.mark.parametrize("name", MODELS)
def test_padded_samples_are_known_to_stay_apart(name):
    """Masks are looked up by numbers of samples; models that do more are compared with autograd in every batch."""
    make, forward = MODELS[name]
    kernel, x = TangentKernel(make("sdpa").eval(), forward=forward), batch(6, 1)
    kernel(x)
    assert not kernel._profiles.of(x).structure.doubtful


@pytest.mark.parametrize("name", MODELS)
def test_padding_does_not_matter(name):
    """What stands behind the mask changes nothing, neither in the first batch nor in the second."""
    make, forward = MODELS[name]
    kernel = TangentKernel(make("eager").double().eval(), forward=forward)
    x = batch(6, 1)
    other = {
        **x,
        "input_ids": torch.where(x["attention_mask"] == 0, 0 if name == "gpt2" else 7, x["input_ids"]),
    }
    assert gap(kernel(other), kernel(x)) <= 1e-12
    assert gap(kernel(other, x), kernel(x)) <= 1e-12


@pytest.mark.parametrize("name", MODELS)
def test_most_parameters_have_rules(name):
    make, forward = MODELS[name]
    kernel = TangentKernel(make("sdpa").double().eval(), forward=forward)
    rows = kernel.plan(batch(6, 1)).rows
    assert sum(row.share for row in rows if row.route.startswith("fallback")) < 0.05


class Encoded(Dataset):
    """A data set of tokenized sentences, with labels, as `datasets` gives them."""

    def __init__(self, encoded):
        self.encoded = encoded

    def __len__(self):
        return len(self.encoded["input_ids"])

    def __getitem__(self, i):
        return {name: part[i].tolist() for name, part in self.encoded.items()} | {"labels": i % 3}


def test_classifiers_work_as_they_are():
    model, x = bert("sdpa").eval(), transformers.BatchEncoding(batch(6, 1))
    expected = TangentKernel(model, forward=logits)(x)
    kernel = TangentKernel(model)
    assert torch.equal(kernel(x), expected)
    assert torch.equal(kernel(Encoded(x)), expected)
    torch.testing.assert_close(gram(kernel, Encoded(x)).dense(), expected)
    assert torch.equal(reference.jacobian(model, x), reference.jacobian(model, x, forward=logits))
    sketched = SketchedTangentKernel(model, dim=64)
    assert torch.equal(sketched(x), SketchedTangentKernel(model, dim=64, forward=logits)(x))
    assert torch.equal(ConjugateKernel(model)(x), ConjugateKernel(model, forward=logits)(x))
    with pytest.warns(LeftOutWarning, match="'bert.embeddings.position_embeddings'"):
        found = EmbeddingKernel(model)(x)
    assert found.shape == (6, 6)


def test_labels_beside_the_inputs_do_not_matter():
    model, x = bert("sdpa").eval(), batch(6, 1)
    labeled = x | {"labels": torch.arange(6) % 3}
    for kind in (TangentKernel, ConjugateKernel):
        torch.testing.assert_close(kind(model)(labeled), kind(model)(x))


def test_without_a_head_the_hint_names_the_hidden_state():
    with pytest.raises(ModelError, match=r"not a tensor.*Try: forward=.*last_hidden_state"):
        TangentKernel(bert("eager").eval().bert)(batch(3, 1))


def test_tokens_beyond_the_vocabulary_are_named():
    x = batch(6, 1)
    x["input_ids"][4, 2] = VOCABULARY + 3
    with pytest.raises(
        InputError,
        match=r"'bert.embeddings.word_embeddings' does not take .*expected integers from 0 to 19, got .*23",
    ):
        TangentKernel(bert("eager").eval())(x)


def test_tied_embeddings_count_once():
    model = language_model("eager").double().eval()
    kernel = TangentKernel(model, forward=last_token)
    rows = {row.parameter: row for row in kernel.plan(batch(6, 1)).rows}
    assert "lm_head.weight" not in rows
    assert rows["transformer.wte.weight"].uses == 2


def test_mappings_of_tokenizers():
    x = transformers.BatchEncoding(batch(4, 1))
    model = bert("eager").double().eval()
    kernel = TangentKernel(model, forward=logits)
    assert torch.equal(kernel(x), kernel(dict(x)))


def test_the_error_for_samples_in_a_list_advises_to_collate_them():
    x = batch(4, 1)
    samples = [{name: part[i] for name, part in x.items()} for i in range(4)]
    with pytest.raises(InputError, match="default_collate"):
        TangentKernel(bert("eager").eval())(samples)
    assert TangentKernel(bert("eager").eval())(torch.utils.data.default_collate(samples)).shape == (4, 4)


def test_models_that_return_tuples_are_called_by_keywords_in_the_hint():
    model = bert("eager").eval()
    model.config.return_dict = False
    with pytest.raises(ModelError, match=r"Try: forward=lambda model, batch: model\(\*\*batch\)\[0\]"):
        TangentKernel(model)(batch(4, 1))


def test_the_error_for_labels_in_the_dict_of_a_loss_says_where_they_belong():
    x = batch(4, 1) | {"labels": torch.arange(4) % 3}
    kernel = SketchedTangentKernel(
        bert("eager").eval(), dim=32, outputs="loss", loss=torch.nn.CrossEntropyLoss(reduction="none")
    )
    with pytest.raises(InputError, match=r"a pair \(inputs, targets\), got dict. Try: .*pop\('labels'\)"):
        kernel.features(x)


def test_a_head_at_every_token_is_refused_and_the_advice_is_right():
    """A decoder's classifier scores every token, padding too, and puts out one of them."""
    model, x = gpt2("eager").double().eval(), batch(6, 1)
    last = x["attention_mask"].sum(1) - 1
    with torch.no_grad():
        h = model.transformer(**x).last_hidden_state[torch.arange(6), last]
    with pytest.warns(PositionsWarning, match=r"'score' is applied at 5 .*params=\['score.weight'\]"):
        ConjugateKernel(model)(x)
    assert gap(TangentKernel(model, 0, params=["score.weight"])(x), h @ h.T) <= 1e-12
    ConjugateKernel(model, "score")(x)  # asked for by name: no warning


def test_a_head_at_every_token_is_refitted_where_forward_picks_one():
    model, x = gpt2("eager").double().eval(), batch(6, 1)

    def picked(model, batch):
        last = batch["attention_mask"].sum(1) - 1
        return model.score(model.transformer(**batch).last_hidden_state[torch.arange(len(last)), last])

    targets = torch.randn(6, 3, dtype=torch.float64)
    with pytest.raises(ModelError, match=r"Try: forward=.*model\.score only the position that counts"):
        refit_last_layer(model, x, targets)
    better = refit_last_layer(model, x, targets, forward=picked, ridge=1e-10)
    with torch.no_grad():
        assert gap(better(**x).logits, targets) <= 1e-6  # 16 features reach any targets of 6 samples
