"""Trains a small decoder-only transformer to continue sentences of a made-up language, and says how
fast it learns.

In the language two letters decide which one usually follows, so that a model has to attend to both;
one letter in ten is random. The sentences are drawn from a seed: nothing is downloaded.

    python examples/transformer.py --steps 300
    python examples/transformer.py --seconds 600 --layers 4 --width 256
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

LETTERS = 24
NOISE = 0.1  # the share of letters that follow no rule
SENTENCES, TEST_SENTENCES = 8192, 512
# What a model that knows the language cannot do better than: nats a letter.
USUAL = 1 - NOISE + NOISE / LETTERS
BEST_LOSS = -USUAL * math.log(USUAL) - (LETTERS - 1) * NOISE / LETTERS * math.log(NOISE / LETTERS)
WARM_UP = 50  # steps until the learning rate is at its highest
REPORT_EVERY = 25


class Attention(nn.Module):
    """Every letter looks at itself and the ones before it, in several heads at once."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, 3 * width)
        self.merge = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        split = self.project(x).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.merge(seen.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Attention, then a small network for every letter by itself, each added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.feedforward = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.feedforward(self.norm2(x))


class Transformer(nn.Module):
    """Letters and their positions in, how likely each letter comes next out."""

    def __init__(self, layers: int, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(LETTERS, width)
        self.positions = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, LETTERS)

    def forward(self, sentences: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(sentences.shape[1], device=sentences.device)
        x = self.letters(sentences) + self.positions(positions)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def write_sentences(
    count: int, length: int, follows: torch.Tensor, draw: torch.Generator
) -> TensorDataset:
    """`count` sentences of `length` letters and one more, since each letter is a question and the
    next its answer.
    """
    sentences = torch.randint(LETTERS, (count, length + 1), generator=draw)
    random = torch.rand(count, length + 1, generator=draw) < NOISE
    for place in range(2, length + 1):
        usual = follows[sentences[:, place - 2], sentences[:, place - 1]]
        sentences[:, place] = torch.where(random[:, place], sentences[:, place], usual)
    return TensorDataset(sentences)


def train(model: nn.Module, loader: DataLoader, options: argparse.Namespace) -> tuple[int, float]:
    """Trains until the steps or the seconds are over, epoch after epoch; returns the steps, and
    tokens a second.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=0.01)
    # Up in a straight line, then down with the root of the steps: it needs no number of steps known
    # beforehand.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARM_UP, math.sqrt(WARM_UP / (step + 1)))
    )
    model.train()
    begin_s = reported_s = time.perf_counter()
    losses, step = torch.zeros(()), 0
    for step, sentences in enumerate(endless(loader), 1):
        optimizer.zero_grad()
        loss = loss_of(model, sentences)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses += loss.detach()
        now_s = time.perf_counter()
        if step % options.report_every == 0:
            rate = options.report_every * options.batch * options.sequence / (now_s - reported_s)
            print(
                f"step {step:>5}: loss {losses / options.report_every:.4f}, {rate:,.0f} tokens/s",
                flush=True,
            )
            losses.zero_()
            reported_s = now_s
        if step == options.steps or (options.seconds and now_s - begin_s >= options.seconds):
            break
    return step, step * options.batch * options.sequence / (time.perf_counter() - begin_s)


def endless(loader: DataLoader) -> Iterator[torch.Tensor]:
    """The batches of one epoch after the other, each in an order of its own."""
    for _ in itertools.count():
        for (sentences,) in loader:
            yield sentences


def loss_of(model: nn.Module, sentences: torch.Tensor) -> torch.Tensor:
    """How far the model is from knowing the next letter: nats a letter."""
    guesses = model(sentences[:, :-1])
    # The first letters of a sentence follow nothing: nobody can know them.
    return F.cross_entropy(guesses[:, 1:].flatten(0, 1), sentences[:, 2:].flatten())


@torch.no_grad()
def test(model: nn.Module, loader: DataLoader) -> float:
    """The mean loss on sentences that were not trained on."""
    model.eval()
    losses = [loss_of(model, sentences) for (sentences,) in loader]
    return float(torch.stack(losses).mean())


def parse_arguments() -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, help="of training (default: 300, without --seconds)")
    parser.add_argument("--seconds", type=float, help="of training, unless --steps are over before")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument(
        "--width", type=int, default=128, help="numbers that stand for a letter (%(default)s)"
    )
    parser.add_argument("--heads", type=int, default=4, help="of attention (%(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="sentences (%(default)s)")
    parser.add_argument(
        "--sequence", type=int, default=64, help="letters of a sentence (%(default)s)"
    )
    parser.add_argument(
        "--learning-rate", type=float, default=0.003, help="the highest (%(default)s)"
    )
    parser.add_argument("--report-every", type=int, default=REPORT_EVERY, metavar="STEPS")
    parser.add_argument("--threads", type=int, help="threads that compute")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.width % options.heads:
        parser.error(f"a width of {options.width} cannot be split into {options.heads} heads")
    if options.sequence < 2:
        parser.error("a sentence has two letters at least")
    if options.steps is None and options.seconds is None:
        options.steps = 300
    return options


def main() -> None:
    """Trains and tests."""
    options = parse_arguments()
    torch.manual_seed(options.seed)
    if options.threads:
        torch.set_num_threads(options.threads)
    draw = torch.Generator().manual_seed(options.seed)
    follows = torch.randint(LETTERS, (LETTERS, LETTERS), generator=draw)
    written = write_sentences(SENTENCES, options.sequence, follows, draw)
    unseen = write_sentences(TEST_SENTENCES, options.sequence, follows, draw)
    model = Transformer(options.layers, options.width, options.heads, options.sequence)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{parameters:,} parameters; guessing has loss {math.log(LETTERS):.4f}, knowing the "
        f"language {BEST_LOSS:.4f}"
    )

    steps, rate = train(
        model, DataLoader(written, options.batch, shuffle=True, drop_last=True), options
    )
    loss = test(model, DataLoader(unseen, options.batch))
    print(f"{steps} steps, {rate:,.0f} tokens/s; loss on unseen sentences {loss:.4f}")


if __name__ == "__main__":
    main()
