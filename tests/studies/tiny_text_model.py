"""A text model of one narrow layer in a folder, and tweets out of a small grammar, for tests of text studies."""

from pathlib import Path

import numpy as np
import torch

from tangentkit.data.dataset import Data

FEELINGS = (("sad", "awful", "hate"), ("happy", "great", "love"))
TOPICS = {"P": ("morning", "school", "sleep"), "M": ("kindle", "camera", "phone")}
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def save_model(folder: Path) -> str:
    """Writes a BERT with random weights and its tokenizer, and gives the name of the folder."""
    from transformers import BertConfig, BertModel, BertTokenizerFast

    everything = [*SPECIAL, *FEELINGS[0], *FEELINGS[1], *TOPICS["P"], *TOPICS["M"]]
    (folder / "vocab.txt").write_text("\n".join(everything))
    BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(everything),
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
    )
    BertModel(config).save_pretrained(folder)
    return str(folder)


def tweets(name: str, split: str, classes: object = None) -> Data:
    """Sentences with a feeling and topics that depend on the split."""
    rng = np.random.default_rng(split == "P")
    labels = np.arange(359 if split == "M" else 120) % 2
    texts = [" ".join([*rng.choice(FEELINGS[y], 1), *rng.choice(TOPICS[split], 3)]) for y in labels]
    return Data(texts, torch.from_numpy(labels), name, split, ("negative", "positive"))
