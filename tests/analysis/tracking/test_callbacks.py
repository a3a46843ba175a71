"""The tracker in the trainers of others."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch
from torch import nn

from analysis.tracking.runs import problem
from tangentkit.analysis import Tracker
from tangentkit.core.errors import InputError


class _Rows(torch.utils.data.Dataset):
    def __init__(self, x, y):
        self.x, self.y = x, y

    def __len__(self):
        return len(self.y)

    def __getitem__(self, i):
        return {"x": self.x[i], "labels": self.y[i]}


class _WithLoss(nn.Module):
    """What Hugging Face's Trainer takes: a loss where there are labels."""

    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x, labels=None):
        logits = self.net(x)
        found = {"logits": logits}
        return found if labels is None else {"loss": nn.functional.cross_entropy(logits, labels)} | found


def test_hugging_faces_trainer_is_followed(tmp_path):
    pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate: pip install accelerate")
    pytest.importorskip("transformers", reason="transformers is not installed: pip install 'tangentkit[hf]'")
    from transformers import Trainer, TrainingArguments

    net, x, y = problem()
    tracker = Tracker(["loss", "ntk", "lazy"], every=2, probe=({"x": x}, y))
    args = TrainingArguments(
        str(tmp_path), max_steps=5, per_device_train_batch_size=8, report_to=[], save_strategy="no",
        disable_tqdm=True, use_cpu=True, dataloader_pin_memory=False,
    )  # fmt: skip
    Trainer(_WithLoss(net), args, train_dataset=_Rows(x, y), callbacks=[tracker.hugging_face()]).train()
    assert tracker.course.steps == [0, 2, 4, 5]
    assert tracker["lazy/weight change"][-1] > 0


def test_the_hugging_face_callback_measures_start_steps_and_end():
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not installed: pip install 'tangentkit[hf]'"
    )
    net, x, _ = problem()
    tracker = Tracker(["lazy"], every=2, probe={"x": x})
    model, callback = _WithLoss(net), tracker.hugging_face()
    assert isinstance(callback, transformers.TrainerCallback)
    callback.on_train_begin(None, SimpleNamespace(global_step=0), None, model=model)
    for step in range(1, 4):
        with torch.no_grad():
            net[0].weight.add_(0.1)
        callback.on_step_end(None, SimpleNamespace(global_step=step), None, model=model, optimizer=None)
    callback.on_train_end(None, SimpleNamespace(global_step=3), None, model=model)
    assert tracker.course.steps == [0, 2, 3]


@pytest.mark.filterwarnings("ignore")  # Lightning's own, of torch and of few workers
def test_lightning_is_followed(tmp_path):
    import pytorch_lightning as pl

    net, x, y = problem()

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = net

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    tracker = Tracker(["ntk", "lazy"], every=2, probe=(x, y))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    trainer = pl.Trainer(
        max_steps=5, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        enable_model_summary=False, default_root_dir=tmp_path,
        callbacks=[tracker.lightning(lambda module: module.net)],
    )  # fmt: skip
    trainer.fit(Module(), loader)
    assert tracker.course.steps == [0, 2, 4, 5]


def test_the_lightning_callback_is_of_the_package_that_is_loaded(monkeypatch):
    class Callback:
        """What a package under the other name would hand out."""

    package, inner = ModuleType("lightning"), ModuleType("lightning.pytorch")
    inner.Callback = Callback  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "lightning", package)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", inner)
    monkeypatch.delitem(sys.modules, "pytorch_lightning", raising=False)
    tracker = Tracker(["lazy"], probe=torch.randn(4, 5))
    assert isinstance(tracker.lightning(), Callback)


def test_packages_that_are_missing_are_named(monkeypatch, tmp_path):
    tracker = Tracker(["lazy"], probe=torch.randn(4, 5))
    for name in ("transformers", "lightning", "lightning.pytorch", "pytorch_lightning", "tensorboard"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"tangentkit\[hf\]"):
        tracker.hugging_face()
    with pytest.raises(InputError, match="pip install lightning"):
        tracker.lightning()
    with pytest.raises(InputError, match="pip install tensorboard"):
        Tracker(["lazy"], probe=torch.randn(4, 5), folder=tmp_path, tensorboard=True)


def test_scalars_go_to_tensorboard(monkeypatch, tmp_path):
    written = []

    class SummaryWriter:
        def __init__(self, folder, purge_step):
            assert folder == str(tmp_path / "tensorboard")
            written.append(("open", purge_step))

        def add_scalar(self, name, value, step):
            assert isinstance(value, float)
            written.append((name, step))

        def flush(self):
            pass

    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = SummaryWriter  # pyright: ignore[reportAttributeAccessIssue]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    net, x, _ = problem()
    Tracker(["ntk"], probe=x, folder=tmp_path).step(net)
    Tracker(["ntk"], probe=x, folder=tmp_path).step(net)
    names = [name for name, _ in written]
    assert names[0] == "open"
    assert {"ntk/values", "ntk/trace", "ntk/effective_rank"} <= set(names)
    assert written[-1] == ("open", 1)
