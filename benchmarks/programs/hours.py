"""A training loop as a job of hours has it, in fast motion: many operators a second, under many
names, in steps.

usage: hours.py [--seconds S] [--rate N] [--names N] [--without-steps] A step is a TorchScript loop
over some of the names, each a range with tiny operators in it, so that Python's own time does not
limit the rate, and a real small module with its loss, backward pass and optimizer. All names occur
in turn. --without-steps: the loop alone, without module and optimizer. Prints one line of JSON:
begin_ns, spans (those of the loop), steps, names, wall_ns, cpu_ns.
"""

from __future__ import annotations

import argparse
import json
import time

import torch

NAMES_A_STEP = 400
ROUNDS = 3  # of two operators each, below a name
# What the loop makes below a name: range, entering and leaving it, and the operators.
SPANS_A_NAME = 3 + 2 * ROUNDS
# What was not made by then is not made up for: at full speed a ring is full in a tenth of a second.
BEHIND_S = 0.1


@torch.jit.script
def pass_through(
    x: torch.Tensor, decay: torch.Tensor, names: list[str], rounds: int
) -> torch.Tensor:
    """A range for each name, with `rounds` multiplications and additions in it."""
    for name in names:
        with torch.autograd.profiler.record_function(name):
            for _ in range(rounds):
                x = x * decay + decay
    return x


class Training:
    """The last part of a step: a small module learns what the loop has computed."""

    def __init__(self) -> None:
        torch.manual_seed(1)
        self.model = torch.nn.Linear(8, 1)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def learn(self, x: torch.Tensor) -> None:
        """One optimizer step."""
        self.optimizer.zero_grad()
        self.model(x).square().mean().backward()
        self.optimizer.step()


def run(seconds: float, rate: float, names: list[str], training: Training | None) -> int:
    """Steps at such a pace that their loops make `rate` spans a second; returns how many."""
    groups = [names[i : i + NAMES_A_STEP] for i in range(0, len(names), NAMES_A_STEP)]
    x, decay = torch.zeros(8), torch.full((8,), 0.01)
    steps, spans = 0, 0
    begin = time.monotonic()
    while (spent := time.monotonic() - begin) < seconds:
        ahead = spans / rate - spent
        if ahead > 0:
            time.sleep(ahead)
        elif ahead < -BEHIND_S:
            begin -= ahead + BEHIND_S
            seconds += ahead + BEHIND_S
        group = groups[steps % len(groups)]
        x = pass_through(x, decay, group, ROUNDS)
        if training:
            training.learn(x)
        steps, spans = steps + 1, spans + len(group) * SPANS_A_NAME
    return steps


def main() -> None:
    """Run for the time that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=530_000.0, help="spans a second")
    parser.add_argument("--names", type=int, default=10_000)
    parser.add_argument("--without-steps", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [f"block.{i // 100}.layer.{i % 100}" for i in range(options.names)]
    training = None if options.without_steps else Training()
    pass_through(torch.zeros(8), torch.zeros(8), names[:2], ROUNDS)  # compiles
    pass_through(torch.zeros(8), torch.zeros(8), names[:2], ROUNDS)
    begin_ns, cpu_ns = time.monotonic_ns(), time.process_time_ns()
    steps = run(options.seconds, options.rate, names, training)
    wall_ns, cpu_ns = time.monotonic_ns() - begin_ns, time.process_time_ns() - cpu_ns
    found = {
        "begin_ns": begin_ns,
        "spans": steps * min(NAMES_A_STEP, len(names)) * SPANS_A_NAME,
        "steps": 0 if training is None else steps,
        "names": len(names),
        "wall_ns": wall_ns,
        "cpu_ns": cpu_ns,
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
