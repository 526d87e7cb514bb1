"""Lightning fits one network on all workers, and goes on from its last checkpoint where it was begun again."""
import argparse
import math
import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


def spirals(seed, count):
    """Points on three spirals that wind about each other, and which of them each is on."""
    random = torch.Generator().manual_seed(seed)
    arm = torch.randint(3, (count,), generator=random)
    radius = 0.1 + 0.9 * torch.rand(count, generator=random)
    angle = 5 * radius + arm * 2 * math.pi / 3 + 0.4 * torch.randn(count, generator=random)
    return TensorDataset(torch.stack([radius * angle.cos(), radius * angle.sin()], 1), arm)


class Classifier(lightning.LightningModule):
    def __init__(self, learning_rate):
        super().__init__()
        self.learning_rate = learning_rate
        self.network = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64),
                                           torch.nn.ReLU(), torch.nn.Linear(64, 3))

    def training_step(self, batch, _):
        points, arms = batch
        loss = cross_entropy(self.network(points), arms)
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def validation_step(self, batch, _):
        points, arms = batch
        hits = (self.network(points).argmax(1) == arms).float().mean()
        self.log("accuracy", hits, sync_dist=True)

    def on_train_epoch_end(self):  # the validation of the epoch is done by then
        seen = self.trainer.callback_metrics
        self.print(f"epoch={self.current_epoch + 1} loss={seen['loss']:.4f} accuracy={seen['accuracy']:.4f} "
                   f"workers={self.trainer.world_size}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=self.learning_rate, momentum=0.9)


def last_checkpoint():
    """Of an earlier attempt, or of the run that `dtrain rerun --resume` goes on from."""
    for folder in (os.environ["OUTPUT_DIR"], os.environ.get("RESUME_DIR", "")):
        path = os.path.join(folder, "last.ckpt")
        if os.path.exists(path):
            return path


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--learning-rate", type=float, default=0.05)
    options.add_argument("--epochs", type=int, default=10)
    options = options.parse_args()

    lightning.seed_everything(1, verbose=False)
    devices = int(os.environ["LOCAL_WORLD_SIZE"])  # 1, or as many as torchrun starts in each replica
    trainer = lightning.Trainer(
        accelerator="auto", strategy="ddp", devices=devices, num_nodes=int(os.environ["WORLD_SIZE"]) // devices,
        max_epochs=options.epochs, logger=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[ModelCheckpoint(os.environ["OUTPUT_DIR"], "best", monitor="accuracy", mode="max", save_last=True)])
    batch = 240 // trainer.world_size
    trainer.fit(Classifier(options.learning_rate), DataLoader(spirals(1, 12_000), batch, shuffle=True),
                DataLoader(spirals(2, 2_000), batch), ckpt_path=last_checkpoint())


if __name__ == "__main__":
    main()
