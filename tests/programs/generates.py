"""Generators whose calls are requests where layerscope is there, used in all ways that there are."""

import asyncio
import gc
import inspect
import warnings

try:
    from layerscope.profiler import Request
except ImportError:

    def Request(name):
        """Bare."""
        return lambda function: function


warnings.simplefilter("error")
told = []


@Request("counts")
def counts(end):
    told.append("begin")
    try:
        for number in range(end):
            try:
                told.append((yield number))
            except KeyError as error:
                told.append(f"caught {error}")
                yield "after"
    finally:
        told.append("end")
    return "value"


@Request("stubborn")
def stubborn():
    while True:
        try:
            yield 1
        except GeneratorExit:
            yield 2


@Request("delegates")
def delegates():
    value = yield from counts(2)
    yield value


@Request("asynchronous")
async def asynchronous(end):
    try:
        for number in range(end):
            await asyncio.sleep(0)
            try:
                told.append((yield number))
            except KeyError:
                told.append("caught")
                yield "after"
    finally:
        await asyncio.sleep(0)
        told.append("end")


def outcome(function, *arguments):
    """What a call gives, or raises."""
    try:
        return function(*arguments)
    except BaseException as error:
        return type(error).__name__, str(error), type(error.__cause__).__name__


async def awaited(what):
    """The same of what is awaited."""
    try:
        return await what
    except BaseException as error:
        return type(error).__name__, str(error)


def say(*values):
    """Print these, and what generators told meanwhile."""
    print(*values, told)
    told.clear()


def at_once():
    """Generators of functions."""
    say(list(counts(3)), list(delegates()), inspect.isgeneratorfunction(counts))
    say(inspect.signature(counts), counts.__qualname__)
    one = counts(3)
    say(next(one), one.send("sent"), one.throw(KeyError("key")), next(one), one.close())
    for error in (StopIteration(1), ZeroDivisionError("zero"), GeneratorExit()):
        one, other = counts(1), counts(1)
        say(outcome(other.throw, error), outcome(next, other))
        say(next(one), outcome(one.throw, error), outcome(next, one))
    say(outcome(counts(1).send, 1))
    for way in ("close", "throw"):
        one = stubborn()
        arguments = [GeneratorExit()] if way == "throw" else []
        say(next(one), outcome(getattr(one, way), *arguments))
    one = counts(2)
    next(one)
    del one
    gc.collect()
    say(outcome(next, counts(0)))


async def one_after_the_other():
    """Asynchronous ones."""
    say([value async for value in asynchronous(3)], inspect.isasyncgenfunction(asynchronous))
    one = asynchronous(3)
    values = [await one.asend(None), await one.asend("sent"), await one.athrow(KeyError(1))]
    say(values, await one.__anext__(), await one.aclose())
    for error in (StopAsyncIteration(), ZeroDivisionError("zero")):
        one, other = asynchronous(2), asynchronous(2)
        say(await awaited(other.athrow(error)))
        say(await one.__anext__(), await awaited(one.athrow(error)), await awaited(one.__anext__()))
    async for _ in asynchronous(3):
        break
    await asyncio.sleep(0.01)
    say("left")
    task = asyncio.create_task(awaited(asynchronous(1).__anext__()))
    await asyncio.sleep(0)
    task.cancel()
    say(await awaited(task))
    one_after_the_other.kept = asynchronous(3)
    say(await one_after_the_other.kept.__anext__())


at_once()
asyncio.run(one_after_the_other())
say("over")
