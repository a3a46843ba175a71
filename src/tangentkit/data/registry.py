"""The table of data sets: what each is, who made it, and which files hold it, by the md5 of their content.

Plain Python: the table can be listed without importing torch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class File:
    """One file of a data set. On disk it may also be gzipped, with `.gz` after its name."""

    name: str
    md5: str
    """Of the raw content, never of a `.gz`: two programs that compress the same content differ."""
    urls: tuple[str, ...] = ()
    """Public addresses, the first that answers is taken."""
    member: str = ""
    """The path of the file inside the archive at the address, if that is an archive."""
    nbytes: int = 2**27
    """The most bytes that the raw content may have: no archive is unzipped any further."""


@dataclass(frozen=True)
class Edition:
    """A form in which a data set is handed on: files that belong together."""

    folders: tuple[str, ...]
    """Where the files lie below a root, most usual first; downloads go to the first."""
    files: Mapping[str, tuple[File, ...]]
    """The files of each split."""
    note: str = ""

    @property
    def is_public(self) -> bool:
        """Whether every file has a public address."""
        return all(file.urls for file in self.all_files)

    @property
    def all_files(self) -> tuple[File, ...]:
        """The files of all splits, each once."""
        return tuple(dict.fromkeys(file for files in self.files.values() for file in files))


@dataclass(frozen=True)
class Entry:
    """One data set of the table."""

    name: str
    title: str
    source: str
    licence: str
    size: str
    """Of the download."""
    splits: tuple[str, ...]
    classes: tuple[str, ...] = ()
    note: str = ""
    editions: tuple[Edition, ...] = ()
    standing: tuple[Path, ...] = ()
    """Folders outside the roots where a package of the system, or tangentkit itself, keeps the files."""
    origin: str = ""
    """For sets without files: where the numbers come from."""
    shape: tuple[int, ...] = ()
    """Channels, height and width of an image; empty for what is none."""
    counts: Mapping[str, int] = field(default_factory=dict)
    """Split -> number of images, to be known before they are read."""
    unpacker: str = ""
    """A script that may lie beside a packed copy and writes the files from it: `python SCRIPT TARGET`."""


def _idx(splits: Mapping[str, tuple[int, str, str]], *mirrors: str) -> dict[str, tuple[File, ...]]:
    """The four files of an MNIST-like set from number, md5 of images and md5 of labels of each split."""

    def file(name: str, md5: str, nbytes: int) -> File:
        return File(name, md5, tuple(f"{mirror}{name}.gz" for mirror in mirrors), nbytes=nbytes)

    stems = {"train": "train", "test": "t10k"}
    return {
        split: (
            file(f"{stems[split]}-images-idx3-ubyte", images, 16 + samples * 28 * 28),
            file(f"{stems[split]}-labels-idx1-ubyte", labels, 8 + samples),
        )
        for split, (samples, images, labels) in splits.items()
    }


def _members(url: str, folder: str, nbytes: int, sums: Mapping[str, str]) -> tuple[File, ...]:
    return tuple(File(name, md5, (url,), f"{folder}/{name}", nbytes) for name, md5 in sums.items())


_DIGITS = tuple("0123456789")
_GARMENTS = (
    *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
    *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
)
_OBJECTS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_IMAGE_SPLITS = ("train", "test")
_ZALANDO = "Zalando Research, https://github.com/zalandoresearch/fashion-mnist"
_MIT = "MIT, Copyright 2017 Zalando SE"
_KRIZHEVSKY = "Krizhevsky (2009), https://www.cs.toronto.edu/~kriz/cifar.html"
_UNLICENSED = "none stated; research use, cite the authors"

_MNIST = Edition(
    folders=("mnist", "MNIST/raw"),
    files=_idx(
        {
            "train": (60_000, "6bbc9ace898e44ae57da46a324031adb", "a25bea736e30d166cdddb491f175f624"),
            "test": (10_000, "2646ac647ad5339dbf082846283269ea", "27ae3e4e09519cfbb04c329615203637"),
        },
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        "https://storage.googleapis.com/cvdf-datasets/mnist/",
    ),
)
_FASHION = Edition(
    folders=("fashion-mnist", "FashionMNIST/raw"),
    files=_idx(
        {
            "train": (60_000, "f4a8712d7a061bf5bd6d2ca38dc4d50a", "9018921c3c673c538a1fc5bad174d6f9"),
            "test": (10_000, "8181f5470baa50b63fa0f6fddb340f0a", "15d484375f8d13e6eb1aabb0c3f46965"),
        },
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    ),
)
_FASHION_MINI = Edition(
    folders=("fashion-mini",),
    files=_idx(
        {
            "train": (2_000, "31b245c6c07c1ff3166be401ddd2ae7d", "6ef0bea2dd2cf9af0a5943b5713fbf23"),
            "test": (1_000, "8d102f88fb9453c33dc484137c8f34d9", "ddb1d152005b82c185ecac91378789ff"),
        }
    ),
)
_CIFAR_URL, _CIFAR_FOLDER = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "cifar-10-batches-bin"
_CIFAR_BYTES = 10_000 * (1 + 3 * 32 * 32)
_CIFAR = Edition(
    folders=(_CIFAR_FOLDER, f"cifar10/{_CIFAR_FOLDER}", "cifar10"),
    files={
        "train": _members(
            _CIFAR_URL,
            _CIFAR_FOLDER,
            _CIFAR_BYTES,
            {
                "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
                "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
                "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
                "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
                "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            },
        ),
        "test": _members(
            _CIFAR_URL, _CIFAR_FOLDER, _CIFAR_BYTES, {"test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d"}
        ),
    },
)
_COLA_URL, _COLA_FOLDER = "https://nyu-mll.github.io/CoLA/cola_public_1.1.zip", "cola_public/raw"
_COLA = Edition(
    folders=("cola", _COLA_FOLDER),
    files={
        "train": _members(
            _COLA_URL, _COLA_FOLDER, 428_578, {"in_domain_train.tsv": "0017f72718b43d880cd9050d8107f811"}
        ),
        "dev": _members(
            _COLA_URL, _COLA_FOLDER, 25_957, {"in_domain_dev.tsv": "26b4107fdf8eeb4aa04436a3d6d8367c"}
        ),
        "out-of-domain": _members(
            _COLA_URL, _COLA_FOLDER, 27_754, {"out_of_domain_dev.tsv": "2f23640e335e0f7e2dd50f76298315a9"}
        ),
    },
)
_TWEETS_SAMPLE = Edition(
    folders=("sentiment140",),
    files={
        "P": (
            File("training.sample20000.noemoticon.csv", "7e778bc9d492e94b7aff5e79d2385008", nbytes=2_940_653),
        ),
        "M": (File("testdata.manual.2009.06.14.csv", "a99a333b3708d52f78c75e1dffddaceb", nbytes=73_670),),
    },
    note="P here is a sample of 20,000 tweets that is not random: negatives are from April 2009, positives "
    "from 16 June 2009, so class and date are confounded",
)
_TWEETS_ZIP = File(
    "trainingandtestdata.zip",
    "1647eb110dd2492512e27b9a70d5d1bc",
    (
        "https://cs.stanford.edu/people/alecmgo/trainingandtestdata.zip",
        "https://zenodo.org/records/11116734/files/trainingandtestdata.zip",
    ),
)
_TWEETS = Edition(
    folders=("sentiment140",),
    files={"P": (_TWEETS_ZIP,), "M": (_TWEETS_ZIP,)},
    note="P is the original archive, 1,600,000 tweets; handles are replaced by USERNAME when it is read",
)

_ENTRIES = (
    Entry(
        name="fashion-mini",
        title="2,000 + 1,000 images of Fashion-MNIST, 28x28, balanced; comes with tangentkit",
        source=_ZALANDO,
        licence=_MIT,
        size="1.3 MB",
        splits=_IMAGE_SPLITS,
        classes=_GARMENTS,
        shape=(1, 28, 28),
        counts={"train": 2_000, "test": 1_000},
        editions=(_FASHION_MINI,),
        standing=(EMBEDDED,),
    ),
    Entry(
        name="digits",
        title="1,797 digits, 8x8: 1,200 train, 597 test, or all",
        source="UCI optical recognition of handwritten digits (test part), as in scikit-learn",
        licence="CC BY 4.0",
        size="-",
        splits=("train", "test", "all"),
        classes=_DIGITS,
        shape=(1, 8, 8),
        counts={"train": 1_200, "test": 597, "all": 1_797},
        note="the split into 1,200 + 597 is balanced and fixed by tangentkit; scikit-learn has none",
        origin="inside scikit-learn",
    ),
    Entry(
        name="mnist",
        title="60,000 + 10,000 digits, 28x28",
        source="LeCun, Cortes and Burges, http://yann.lecun.com/exdb/mnist",
        licence="CC BY-SA 3.0",
        size="11 MB",
        splits=_IMAGE_SPLITS,
        classes=_DIGITS,
        shape=(1, 28, 28),
        counts={"train": 60_000, "test": 10_000},
        editions=(_MNIST,),
    ),
    Entry(
        name="fashion-mnist",
        title="60,000 + 10,000 garments, 28x28",
        source=_ZALANDO,
        licence=_MIT,
        size="31 MB",
        splits=_IMAGE_SPLITS,
        classes=_GARMENTS,
        shape=(1, 28, 28),
        counts={"train": 60_000, "test": 10_000},
        editions=(_FASHION,),
        standing=(Path("/usr/share/datasets/fashion-mnist"),),
    ),
    Entry(
        name="cifar10",
        title="50,000 + 10,000 color images of 10 kinds of objects, 3x32x32",
        source=_KRIZHEVSKY,
        licence=_UNLICENSED,
        size="170 MB",
        splits=_IMAGE_SPLITS,
        classes=_OBJECTS,
        shape=(3, 32, 32),
        counts={"train": 50_000, "test": 10_000},
        editions=(_CIFAR,),
        unpacker="unpack_cifar10.py",
    ),
    Entry(
        name="cifar2",
        title="CIFAR-10 with two labels: 1 for classes 0-4, 0 for classes 5-9",
        source=_KRIZHEVSKY,
        licence=_UNLICENSED,
        size="170 MB",
        splits=_IMAGE_SPLITS,
        classes=("classes 5-9", "classes 0-4"),
        shape=(3, 32, 32),
        counts={"train": 50_000, "test": 10_000},
        note="all ten classes in two groups; airplane against automobile is cifar10 with classes=[0, 1]",
        editions=(_CIFAR,),
        unpacker="unpack_cifar10.py",
    ),
    Entry(
        name="cola",
        title="CoLA: 8,551 sentences, acceptable or not; 527 dev, 516 out-of-domain dev",
        source="Warstadt, Singh and Bowman (2018), https://nyu-mll.github.io/CoLA",
        licence="none stated; excerpts of published works, research use",
        size="0.3 MB",
        splits=("train", "dev", "out-of-domain"),
        classes=("unacceptable", "acceptable"),
        editions=(_COLA,),
    ),
    Entry(
        name="sentiment140",
        title="tweets: P labeled by emoticons, M = 359 labeled by hand",
        source="Go, Bhayani and Huang (2009), http://help.sentiment140.com/for-students",
        licence="none stated; academic use, cite the authors",
        size="81 MB",
        splits=("P", "M"),
        classes=("negative", "positive"),
        note="M leaves out its 139 neutral tweets",
        editions=(_TWEETS_SAMPLE, _TWEETS),
    ),
    *(
        Entry(
            name=f"function-{name}",
            title=f"{name}(x) = {formula} on [-1, 1]: 201 train, 601 test nodes, trapezoid weights",
            source="computed",
            licence="-",
            size="-",
            splits=_IMAGE_SPLITS,
            origin="computed",
        )
        for name, formula in (("f1", "exp(sin(2 pi x))"), ("f2", "exp(3x)"), ("f3", "cos(exp(3x))"))
    ),
    *(
        Entry(
            name=f"grid-{name}",
            title=f"sign of {name} = {formula} on a grid of [-1, 1]^2: 96 train, 506 test points",
            source="computed",
            licence="-",
            size="-",
            splits=_IMAGE_SPLITS,
            classes=("negative", "positive"),
            origin="computed",
        )
        for name, formula in (
            ("F1", "4 x1^2 - 3 x1 + 5 x2 - 1"),
            ("F2", "2 x1^3 - 0.6 x1^2 - 1.94 x1 + x2 + 0.2"),
        )
    ),
    Entry(
        name="teacher",
        title="single-index teacher in 1,000 dimensions: 2,000 noisy train, 2,000 clean test labels",
        source="computed from the seed",
        licence="-",
        size="-",
        splits=_IMAGE_SPLITS,
        origin="computed",
    ),
)

SETS: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}
"""Every data set by name."""
