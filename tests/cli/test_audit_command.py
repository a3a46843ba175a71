"""`tangentkit audit` from the shell: every kind of file, and files that mean no good."""

import json
import os
import re

import numpy as np
import pytest
import torch

import tangentkit as tk

WORDS = ("audit", "--width", "16")


@pytest.fixture
def pictures(tmp_path):
    """A folder of small pictures in class sub-folders; two are the same."""
    Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed: pip install 'tangentkit[data]'")
    rng = np.random.default_rng(0)
    for name, level in (("dark", 60), ("<b>light", 190)):
        (tmp_path / "pictures" / name).mkdir(parents=True)
        for i in range(40):
            pixels = np.clip(rng.normal(level, 25, (8, 8)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / "pictures" / name / f"{i:02}.png")
    first = tmp_path / "pictures" / "dark" / "00.png"
    (tmp_path / "pictures" / "dark" / "copy.png").write_bytes(first.read_bytes())
    return tmp_path / "pictures"


def audited(tangentkit, data, *words):
    return tangentkit(*WORDS, "--model", "mlp", "--data", str(data), *words)


def test_a_folder_of_pictures(tangentkit, pictures, tmp_path):
    done = audited(tangentkit, pictures, "--out", "page.html")
    assert done.code == 0, done.err
    assert "duplicate: dark/00.png: the same as dark/copy.png" in done.out
    assert "of the samples their label" in done.out
    page = (tmp_path / "page.html").read_text()
    assert "dark/copy.png" in page
    assert "<b>light" not in page
    assert "data:image/webp" in page


def test_json_for_machines(tangentkit, pictures):
    done = audited(tangentkit, pictures, "--json")
    found = json.loads(done.out)
    assert found["counts"]["duplicate"] == 2
    assert {flag["name"] for flag in found["flags"] if flag["kind"] == "duplicate"} == {
        "dark/00.png",
        "dark/copy.png",
    }
    assert found["page"] is None


def test_samples_known_to_be_poisoned_find_others_like_them(tangentkit, tmp_path):
    x = torch.randn(120, 6) + 4 * (torch.arange(120) % 2)[:, None]
    x[:20] += 40  # a cluster of its own: the poison
    np.savez(tmp_path / "data.npz", x=x.numpy(), y=(torch.arange(120) % 2).numpy())
    (tmp_path / "known.txt").write_text("\n".join(map(str, range(10))) + "\n\n")
    done = audited(tangentkit, tmp_path / "data.npz", "--poisoned", "known.txt", "--json")
    assert done.code == 0, done.err
    flagged = {flag["sample"] for flag in json.loads(done.out)["flags"] if flag["kind"] == "poisoned"}
    assert set(range(10, 20)) <= flagged <= set(range(20))


def test_poison_is_named_as_files_are(tangentkit, pictures, tmp_path):
    (tmp_path / "known.txt").write_text("dark/03.png\nlight/99.png\n")
    done = audited(tangentkit, pictures, "--poisoned", "known.txt")
    assert done.code != 0
    assert "names a sample that is not there" in done.err
    assert "light/99.png" in done.err
    missing = audited(tangentkit, pictures, "--poisoned", "nowhere.txt")
    assert "cannot read nowhere.txt" in missing.err


@pytest.mark.parametrize("kind", ["npz", "safetensors"])
def test_files_of_tensors(tangentkit, tmp_path, kind):
    x = torch.randn(80, 6) + 4 * (torch.arange(80) % 2)[:, None]
    x[5] = x[3]
    y = torch.arange(80) % 2 + 7
    path = tmp_path / f"data.{kind}"
    if kind == "npz":
        np.savez(path, x=x.numpy(), y=y.numpy())
    else:
        pytest.importorskip("safetensors.torch").save_file({"inputs": x, "labels": y}, path)
    done = audited(tangentkit, path, "--json")
    assert done.code == 0, done.err
    flags = {(f["sample"], f["kind"]) for f in json.loads(done.out)["flags"]}
    assert {(3, "duplicate"), (5, "duplicate")} <= flags


def test_a_data_set_by_name_and_another_kernel(tangentkit):
    words = ("--data", "digits", "--samples", "80", "--kernel", "sketched", "--dim", "64")
    done = tangentkit(*WORDS, "--model", "mlp", *words)
    assert done.code == 0, done.err
    assert "sketched kernel of mlp" in done.err


def tiny_classifier(folder):
    """A Hugging Face classifier with its tokenizer, of random weights."""
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install 'tangentkit[hf]'"
    )
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "very", "a"]
    folder.mkdir()
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(words),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
    )
    transformers.BertForSequenceClassification(config).save_pretrained(folder, safe_serialization=True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_sentences_with_a_hugging_face_model(tangentkit, tmp_path, kind):
    tiny_classifier(tmp_path / "classifier")
    rows = [(f"a {'very ' * (i // 2)}{'good' if i % 2 else 'bad'} film", i % 2) for i in range(8)] + [
        ("a bad film", 1)
    ]
    path = tmp_path / f"reviews.{kind}"
    if kind == "csv":
        path.write_text("sentence,class\n" + "".join(f"{text},{label}\n" for text, label in rows))
    else:
        path.write_text(
            "".join(json.dumps({"sentence": text, "class": label}) + "\n" for text, label in rows)
        )
    model = f"hf:{tmp_path / 'classifier'}"
    words = ("--text-column", "sentence", "--label-column", "class", "--json")
    done = tangentkit("audit", "--model", model, "--data", str(path), *words)
    assert done.code == 0, done.err
    flags = json.loads(done.out)["flags"]
    assert {flag["kind"] for flag in flags} >= {"duplicate", "conflicting"}


def test_sentences_without_a_model_of_sentences_say_what_is_needed(tangentkit, tmp_path):
    (tmp_path / "data.csv").write_text("text,label\nyes,1\nno,0\n")
    done = audited(tangentkit, tmp_path / "data.csv")
    assert done.code == 2
    assert "expected hf:NAME, a Hugging Face classifier with its tokenizer" in done.err


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("data.csv", b"text,label\n\xff\xfe,1\n", "is not UTF-8"),
        ("data.csv", b'text,label\n"open,1\n', "is damaged: expected CSV"),
        ("data.csv", b"words,label\nyes,1\n", "row 2 of .* has no 'text'"),
        ("data.csv", b"", "has no rows"),
        ("data.jsonl", b'{"text": "a"\n', "line 1 of .* is damaged: expected JSON"),
        ("data.jsonl", b"[1]\n", "expected a JSON object, got list"),
        ("data.npz", b"PK\x03\x04nothing", "cannot read"),
        ("data.safetensors", b"\xff" * 40, "expected a safetensors file"),
        ("data.pkl", b"\x80\x04.", "files of pickles are not read"),
    ],
)
def test_what_cannot_be_read_is_an_error_that_names_the_file(tangentkit, tmp_path, name, content, said):
    path = tmp_path / name
    path.write_bytes(content)
    done = audited(tangentkit, path, "--out", "page.html")
    assert done.code in (1, 2)
    assert re.search(said, done.err), done.err
    assert str(path) in done.err
    assert not (tmp_path / "page.html").exists()


def test_arrays_of_objects_are_not_unpickled(tangentkit, tmp_path):
    class Trap:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'trapped'}",)

    np.savez(tmp_path / "data.npz", x=np.array([Trap()], dtype=object), y=np.array([0]))
    done = audited(tangentkit, tmp_path / "data.npz")
    assert done.code == 1
    assert "cannot read" in done.err
    assert not (tmp_path / "trapped").exists()


def test_a_file_that_unpacks_to_more_than_memory_is_refused_before(tangentkit, tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "data.npz", x=np.zeros((1000, 1000)), y=np.zeros(1000, int))
    monkeypatch.setattr("tangentkit.core.memory.free_bytes", lambda _: 400_000)
    done = audited(tangentkit, tmp_path / "data.npz")
    assert done.code == 1
    assert "data.npz is too large: expected at most" in done.err


def test_pictures_that_cannot_be_read_links_and_sizes(tangentkit, pictures, tmp_path):
    bad = pictures / "dark" / "zz.png"
    bad.write_bytes(b"\x89PNG\r\n\x1a\nnothing")
    done = audited(tangentkit, pictures, "--out", "page.html")
    assert done.code == 1
    assert f"cannot read the picture {bad}" in done.err
    assert not (tmp_path / "page.html").exists()
    bad.unlink()
    bad.symlink_to("/etc/hostname")
    done = audited(tangentkit, pictures)
    assert done.code == 1
    assert "is a link" in done.err
    bad.unlink()
    from PIL import Image

    Image.new("RGB", (5, 9)).save(bad)
    done = audited(tangentkit, pictures)
    assert done.code == 2
    assert "expected one size, got 8 x 8, 9 x 5. Try: --size 32" in done.err
    assert audited(tangentkit, pictures, "--size", "8").code == 0


def test_a_folder_without_pictures_and_a_file_that_is_not_there(tangentkit, tmp_path):
    (tmp_path / "empty" / "a").mkdir(parents=True)
    assert "holds no pictures in sub-folders" in audited(tangentkit, tmp_path / "empty").err
    assert "there is no file" in audited(tangentkit, tmp_path / "gone.npz").err


def test_what_the_command_reads_is_what_python_reads(pictures):
    own = tk.data.read_files(pictures)
    assert own.data.inputs.shape == (81, 1, 8, 8)
    assert own.data.classes == ("<b>light", "dark")
    assert own.names[0] == "<b>light/00.png"
    assert own.data.inputs.min() >= 0
    assert own.data.inputs.max() <= 1
