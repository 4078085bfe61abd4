"""A framework for tests, in Python alone: operators with a backward pass, an optimizer, a loader.

It computes `y = w * x + b` for lists of numbers, and tells whoever listens what it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_listeners: list[tuple[Callable[[str, str, int], object], Callable[[object, int], None]]] = []
_sequence = 0


def listen(begins: Callable[[str, str, int], object], ends: Callable[[object, int], None]) -> None:
    """Call `begins(kind, name, sequence)` where something begins, and `ends` with its answer and the
    sequence number where it is over.
    """
    _listeners.append((begins, ends))


@contextmanager
def _running(kind: str, name: str, sequence: int = -1) -> Iterator[None]:
    handles = [(begins(kind, name, sequence), ends) for begins, ends in _listeners]
    try:
        yield
    finally:
        for handle, ends in reversed(handles):
            ends(handle, sequence)


class Value:
    """Numbers, how they were made, and what their gradient adds to."""

    def __init__(self, numbers: list[float], backward: Callable[[list[float]], None]) -> None:
        self.numbers = numbers
        self.backward = backward


class Parameter:
    """A number that is learned."""

    def __init__(self, number: float) -> None:
        self.number = number
        self.gradient = 0.0


def scale(weight: Parameter, x: list[float]) -> list[float]:
    """Every number times the weight."""
    with _running("function", "toy::scale"):
        return [weight.number * number for number in x]


def affine(weight: Parameter, bias: Parameter, x: list[float]) -> Value:
    """Every number times the weight, plus the bias."""
    global _sequence
    _sequence += 1
    sequence = _sequence
    with _running("function", "toy::affine", sequence):
        numbers = [number + bias.number for number in scale(weight, x)]

    def backward(gradient: list[float]) -> None:
        with _running("backward", "AffineBackward", sequence):
            weight.gradient += sum(g * number for g, number in zip(gradient, x, strict=True))
            bias.gradient += sum(gradient)

    return Value(numbers, backward)


class Descent:
    """Gradient descent."""

    def __init__(self, parameters: list[Parameter], rate: float) -> None:
        self.parameters = parameters
        self.rate = rate

    def step(self) -> None:
        """Go down."""
        with _running("optimizer", "toy step Descent"):
            for parameter in self.parameters:
                parameter.number -= self.rate * parameter.gradient
                parameter.gradient = 0.0


class Loader:
    """Batches of pairs."""

    def __init__(self, pairs: list[tuple[float, float]], size: int) -> None:
        self.pairs = pairs
        self.size = size

    def __iter__(self) -> Iterator[list[tuple[float, float]]]:
        for first in range(0, len(self.pairs), self.size):
            with _running("loader", "toy next batch"):
                batch = self.pairs[first : first + self.size]
            yield batch
