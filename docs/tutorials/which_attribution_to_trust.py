"""Which attribution to trust: several methods, put to the same tests.

A network says "coat". Which training images made it say so? Many methods answer, in the same words and with different
images. Whether an answer is right can be tested: leave training images out, train again, and see whether the network
changes as the scores predicted. Here a LeNet has learned clothes from images of which some labels are wrong, and five
methods are compared with scores drawn at random.

Run with `python docs/tutorials/which_attribution_to_trust.py [figure.png [full]]`. It takes half a minute on images
that come with the library; with `full`, on 2,000 images of Fashion-MNIST and 130 retrained networks, about ten.
"""

import sys

import torch

import tangentkit as tk
from tangentkit.core import Key
from tangentkit.linearized import Training
from tangentkit.surrogate import trak
from tangentkit.surrogate.evaluation import (
    FindsMislabels,
    FindsSameClass,
    PredictsSubsets,
    Retrained,
    Retraining,
    methods_of,
    noise_ceiling,
    random_subsets,
    retrain_on,
)

full = "full" in sys.argv[2:]
name, m, n, networks, repeated = (
    ("fashion-mnist", 2000, 200, 100, 30) if full else ("fashion-mini", 200, 50, 12, 4)
)

# --- A network, and wrong labels ----------------------------------------------------------------------------
# One training label in ten is replaced by another class. A sample is an image with its label, since TRAK's kernel
# wants to know the label; the network sees the image alone.
train_set, test_set = tk.data.load(name, "train"), tk.data.load(name, "test")
rng = Key(0).fold("wrong labels").torch()
wrong = torch.rand(m, generator=rng) < 0.1
shift = torch.randint(1, 10, (m,), generator=rng)
labels = torch.where(wrong, (train_set.targets[:m] + shift) % 10, train_set.targets[:m])
train = {"image": train_set.inputs[:m], "label": labels}
test = {"image": test_set.inputs[:n], "label": test_set.targets[:n]}


def logits(model, batch):
    return model(batch["image"])


settings = Training(12 if full else 16, 2e-3, optimizer="adam", batch=32, loss="cross-entropy")
width = 1 if full else 0.5
retrain = Retraining(lambda seed: tk.models.lenet(width, seed=seed), train, labels, settings, forward=logits)
model = retrain(torch.arange(m), 0)
with torch.no_grad():
    accuracy = (logits(model, test).argmax(1) == test["label"]).double().mean()
print(
    f"the network: {accuracy:.1%} of {n} test images right, after {m} images with {int(wrong.sum())} wrong labels"
)

# --- Three kernels of the same network ----------------------------------------------------------------------
# The normalized tangent kernel, the conjugate kernel of the last hidden layer, and the kernel of the margin
# ln p/(1 - p) of each sample's own label, which is TRAK's.


def margin(model, batch):
    z, label = logits(model, batch), batch["label"][:, None]
    others = z.scatter(1, label, -torch.inf).logsumexp(1, keepdim=True)
    return z.gather(1, label) - others


kernels = {
    "tangent": tk.TangentKernel(model, forward=logits).normalized(),
    "conjugate": tk.ConjugateKernel(model, forward=logits).normalized(),
}
surrogates = {
    kind: tk.Surrogate(model, kernel, forward=logits).fit(train, labels) for kind, kernel in kernels.items()
}
for kind, surrogate in surrogates.items():
    faithful = surrogate.faithfulness(test, test["label"])
    print(
        f"surrogate on the {kind} kernel: Kendall's tau {faithful.kendall_tau:.2f}, "
        f"difference of accuracy {faithful.accuracy_difference:+.1f} points"
    )

# --- Networks trained on halves -----------------------------------------------------------------------------
# Every network sees a random half of the training images. They are trained once, for all methods. With path= their
# answers would be kept in a file, and an interrupted run would go on from there.
halves = retrain_on(random_subsets(m, networks), retrain, test, forward=logits)

# No method can predict what one training does otherwise than the next. Some networks are trained once more on the
# same halves: r is how well one predicts the other, and √r about the most that a linear datamodeling score can be.
few = Retrained(halves.masks[:repeated], halves.logits[:repeated])
again = retrain_on(few.masks, retrain, test, forward=logits, seed=1)
ceiling = noise_ceiling(few, again, test["label"])
print(f"two networks of the same half: {ceiling}; so an LDS is at most about {ceiling.value**0.5:.2f}")

# --- The tests ----------------------------------------------------------------------------------------------
# The methods of a surrogate share its kernel: the surrogate's own coefficients, influence by the damped inverse of
# the kernel, scores in TRAK's style, representer points. TRAK on a kernel that does not know the labels cannot tell
# whether a training image speaks for a class or against it; on its own kernel it can.
methods = {
    f"{method.removesuffix(' points')}, {kind}": attribute
    for kind, surrogate in surrogates.items()
    for method, attribute in methods_of(surrogate).items()
}
of_margins = tk.Surrogate(model, tk.TangentKernel(model, forward=margin), forward=logits).fit(train, labels)
methods["TRAK, margins"] = lambda samples: trak(of_margins, samples, damping=1e-2)

found = tk.evaluate_attribution(
    methods,
    (train, labels),
    (test, test["label"]),
    model=model,
    forward=logits,
    tests=[PredictsSubsets(retrained=halves), FindsMislabels(wrong), FindsSameClass()],
)
print(found)

# Differences between methods are known better than the methods themselves, since all have seen the same networks. The
# best of nine, chosen by these very numbers, looks a little better than it is.
scores = found.of("LDS")
best = max(scores, key=lambda method: scores[method].value)
for method in methods:
    gap = found.difference("LDS", best, method)
    if method != best:
        print(f"LDS of {best} above that of {method}: {gap.mean:.3f}, 95 % {gap.low:.3f} to {gap.high:.3f}")

assert found.difference("LDS", best, "random").low > 0
assert found.difference("LDS", "TRAK, margins", "TRAK-style, tangent").low > 0
assert found.of("mislabel AUROC")["representer, tangent"].interval.low > 0.5

if len(sys.argv) > 1:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained", sharey=True)
    titles = ("predicts retrained networks", "finds wrong labels", "points to the predicted class")
    for ax, question, title in zip(panels, found.questions, titles, strict=True):
        found.plot(question, ax)
        ax.set_title(title)
    figure.savefig(sys.argv[1], dpi=130)
