"""Trains a small network with Lightning: 16 batches, N to a step; `evaluate`: validates before and after each epoch.

Prints the number of steps last.
"""

import sys
import warnings

import lightning
import torch
from torch import nn

warnings.simplefilter("ignore")


class Network(nn.Sequential):
    pass


class Training(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.network = Network(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))

    def training_step(self, batch, number):
        value = nn.functional.mse_loss(self.network(batch[0]), batch[1])
        self.log("loss", value)
        return value

    def validation_step(self, batch, number):
        self.log("validation", nn.functional.mse_loss(self.network(batch[0]), batch[1]))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters())


torch.set_num_threads(1)
data = torch.utils.data.TensorDataset(torch.randn(32, 16), torch.randn(32, 4))
training = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
validation = torch.utils.data.DataLoader(data, batch_size=4)
trainer = lightning.Trainer(
    accelerator="cpu",
    max_epochs=2,
    accumulate_grad_batches=int(sys.argv[1]),
    num_sanity_val_steps=2,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    enable_model_summary=False,
)
trainer.fit(Training(), training, validation if "evaluate" in sys.argv else None)
print(trainer.global_step)
