"""Training of small classifiers, with every mini-batch drawn from a key, on a chosen number of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tangentkit.core.errors import NumericalError
from tangentkit.core.seeds import Key
from tangentkit.studies.study import Progress, silent


def train_classifier(
    model: nn.Module,
    x: Float[Tensor, "n ..."],
    y: Int[Tensor, " n"],
    *,
    epochs: int,
    batch: int,
    learning_rate: float,
    key: Key,
    progress: Progress = silent,
    stage: str = "training",
) -> None:
    """Trains a classifier in place by Adam on the mean cross-entropy, and leaves it in evaluation mode.

    Args:
        model: images -> logits.
        x: the inputs.
        y: the classes.
        epochs: passes over the data.
        batch: samples of a step.
        learning_rate: of Adam.
        key: of the order of the samples.
        progress: told after each epoch.
        stage: what progress is told.

    Raises:
        NumericalError: the loss is not finite.
    """
    rng = key.torch()
    optimizer = torch.optim.Adam(model.parameters(), lr=learning_rate)
    model.train()
    for epoch in range(epochs):
        progress(stage, epoch, epochs)
        for rows in torch.randperm(len(x), generator=rng).split(batch):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            if not loss.isfinite():
                raise NumericalError(
                    f"training diverged in epoch {epoch + 1}",
                    got=f"loss {loss.item()}",
                    hint="a smaller learning rate",
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    progress(stage, epochs, epochs)
    model.eval()


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Lets torch work on so many threads for a while; None leaves it as it is.

    Rounding depends on the number of threads, and training makes a different network of it.
    """
    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
