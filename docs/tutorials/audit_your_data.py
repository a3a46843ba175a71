"""Audit your data: wrong labels, copies and poison are planted in pictures of clothes, and looked for.

Run with `python docs/tutorials/audit_your_data.py [figure.png]`; it takes seconds and needs no download. The numbers
of the page are those of `... figure.png full`, of all pictures that come with tangentkit, in about a minute.
"""

import sys
from dataclasses import replace

import numpy as np
import torch

import tangentkit as tk
from tangentkit.core.seeds import Key
from tangentkit.linearized import Training, train
from tangentkit.surrogate import Share

# --- A network, and data that it has not seen ---------------------------------------------------------------
# 1,000 pictures train a LeNet; others are audited. (A network that has learned the wrong labels by heart would hide
# them.)
full = "full" in sys.argv
n, shares, new = (2000, (0.01, 0.05, 0.2), 300) if full else (400, (0.2,), 100)
data, others = tk.data.load("fashion-mini", "train", limit=n), tk.data.load("fashion-mini", "test")
training = Training(10, 2e-3, optimizer="adam", loss="cross-entropy", batch=64)
network = tk.models.lenet(seed=0)
train(network, others.inputs, others.targets, training, key=Key(0))

# The data as they are: no label is in doubt.
clean = tk.audit(network, data)
print(clean)
assert not clean.of("mislabeled")

# --- Wrong labels -------------------------------------------------------------------------------------------
# A share of the labels is replaced by random other ones. How many flags are right, how many errors are found?
precision, recall, noise = {}, {}, {}
for share in shares:
    rng = Key(0).fold("wrong labels").numpy()
    wrong = rng.permutation(len(data))[: round(share * len(data))]
    labels = data.targets.clone()
    labels[wrong] = (labels[wrong] + torch.from_numpy(rng.integers(1, 10, len(wrong)))) % 10
    found = tk.audit(network, replace(data, targets=labels))
    flagged = {flag.sample for flag in found.of("mislabeled")}
    hits = len(flagged & set(wrong.tolist()))
    precision[share], recall[share] = Share(hits, len(flagged)), Share(hits, len(wrong))
    noise[share] = found.label_noise
    print(
        f"{share:.0%} wrong, estimated {found.label_noise:.1%}: precision {precision[share]}; recall {recall[share]}"
    )
# At 1 % and 5 % more flags are false than the 5 % that were asked for: a probe on the features of a network that has
# seen 1,000 pictures is not right up to a temperature. With larger data it is nearer to that, see below.
assert min(share.value for share in precision.values()) > 0.7
assert all(recall[share].value > 0.2 for share in shares if share >= 0.05)

# Each flag says why, and which samples show it.
worst = found.of("mislabeled")[0]
print(f"sample {worst.sample}: {worst.reason}")

# --- Copies -------------------------------------------------------------------------------------------------
# Ten pictures occur twice, five of them with another label; ten others come again a little darker.
x = torch.cat([data.inputs, data.inputs[:10], 0.95 * data.inputs[10:20]])
y = torch.cat([data.targets, data.targets[:5], (data.targets[5:10] + 1) % 10, data.targets[10:20]])
copies = tk.audit(network, (x, y))
print(copies.table())
exact = {flag.sample for flag in copies.of("duplicate")}
near = {flag.sample for flag in copies.of("near-duplicate")}
assert exact == {*range(10), *range(n, n + 10)}
assert len(near & {*range(10, 20), *range(n + 10, n + 20)}) >= 15
assert {flag.sample for flag in copies.of("conflicting")} >= {*range(5, 10), *range(n + 5, n + 10)}

# --- A backdoor ---------------------------------------------------------------------------------------------
# A square in the corner of a tenth of the training pictures, all labeled "coat": a network learns that the square
# means coat. Half of the poisoned samples are known. Where are the others?
dirty, poisoned = tk.data.poisoned(data, key=Key(0))
victim = tk.models.lenet(seed=0)
train(victim, dirty.inputs, dirty.targets, training, key=Key(0))
known = torch.zeros_like(poisoned)
known[poisoned.nonzero().flatten()[::2]] = True
traced = {flag.sample for flag in tk.audit(victim, dirty, poisoned=known).of("poisoned")}
rest = set((poisoned & ~known).nonzero().flatten().tolist())
right, of_all = Share(len(traced & rest), len(traced)), Share(len(traced & rest), len(rest))
print(f"poison traced: precision {right}; recall {of_all}")
assert right.value > 0.9

# And new samples, by the votes of their five nearest training samples:
test = replace(others, inputs=others.inputs[:new], targets=others.targets[:new])
samples = torch.cat([test.inputs, tk.data.poison_all(test).inputs])
kernel = tk.ConjugateKernel(victim).normalized()
forensics = tk.forensics(kernel, dirty.inputs, poisoned, (samples, torch.arange(2 * new) >= new))
print(forensics.table())
assert forensics.precision.value > 0.9

# One page for all of it, which needs no network: found.report("audit.html")

figures = [argument for argument in sys.argv[1:] if argument != "full"]
if figures:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right_axes) = plt.subplots(
        1, 2, figsize=(9.5, 3.8), layout="constrained", width_ratios=(1, 1.5)
    )
    for name, found_shares, marker, shift in (
        ("precision", precision, "o", -0.08),
        ("recall", recall, "s", 0.08),
    ):
        values = np.array([share.value for share in found_shares.values()])
        ends = np.array([share.interval for share in found_shares.values()]).T
        at = np.arange(len(found_shares)) + shift
        left.errorbar(at, values, abs(ends - values), fmt=marker, capsize=4, label=name)
    left.axhline(0.95, color="gray", linestyle="--", linewidth=1)
    left.set(title="labels flagged", ylim=(0, 1.03), xlabel="wrong labels")
    left.set_xticks(range(len(precision)), [f"{share:.0%}" for share in precision])
    left.legend(loc="lower left")
    rows = [
        torch.cat([data.inputs[number, 0] for number in (flag.sample, *flag.evidence[:5])], 1)
        for flag in found.of("mislabeled")[:4]
    ]
    right_axes.imshow(torch.cat(rows).numpy(), cmap="gray_r")
    names = [found.classes[found.labels[flag.sample]] for flag in found.of("mislabeled")[:4]]
    right_axes.set_yticks(
        [14 + 28 * row for row in range(len(names))], [f"labeled\n{name}" for name in names]
    )
    right_axes.set_xticks([14, 14 + 28 * 3], ["flagged", "nearest of the likelier class"])
    right_axes.tick_params(length=0)
    right_axes.set_title("flags and their evidence")
    figure.savefig(figures[0], dpi=130)
