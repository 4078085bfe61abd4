"""A module of the program raises while it is imported; torch was imported before."""

import torch

torch.hypot(torch.ones(1), torch.ones(1))
raise RuntimeError("this program does not work")
