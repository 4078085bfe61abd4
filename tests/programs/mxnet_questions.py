"""Asks of the functions of MXNet, and of the program's own, that a recording watches what programs
ask: who they are, what they take, where they come from; sets attributes of them, wraps, copies,
pickles and keeps them. Prints the answers, without addresses.
"""

import collections.abc
import copy
import functools
import gc
import inspect
import itertools
import json
import pickle
import re
import types
import weakref

import mxnet as mx
from mxnet import gluon


class AddOne(mx.operator.CustomOp):
    def forward(self, is_train, req, in_data, out_data, aux):
        """The code of the operator."""
        self.assign(out_data[0], req[0], in_data[0] + 1)

    def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
        self.assign(in_grad[0], req[0], out_grad[0])


def register(make):
    @mx.operator.register("AddOne")
    class Properties(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            """Makes one."""
            return make()

    return Properties


def functions(properties):
    found = [
        gluon.Trainer.step,
        gluon.Block.__call__,
        gluon.data.DataLoader.__iter__,
        mx.io.DataIter.__next__,
        mx.operator.register,
        mx.operator.register("name"),
        AddOne.forward,
        AddOne.backward,
        properties.create_operator,
    ]
    return found + ([mx.mod.Module.update] if hasattr(mx, "mod") else [])


def answer(ask):
    try:
        found = ask()
    except Exception as error:  # the same one is an answer too
        found = error
    return re.sub(r" at 0x\w+", "", repr(found))


def wrapped(function):
    @functools.wraps(function)
    def around(*arguments, **keywords):
        return function(*arguments, **keywords)

    around.__wrapped__.seen = "set"
    return inspect.signature(around), around.__dict__.keys(), around.__wrapped__ is function


def kept(function):
    """Attributes, as a program sets and deletes them."""
    function.note = "noted"
    held = function.note, vars(function), hasattr(function, "other")
    del function.note
    return held, vars(function)


def questions(function):
    bound = types.MethodType(function, 5)
    return [
        lambda: function,
        lambda: [getattr(function, name, None) for name in functools.WRAPPER_ASSIGNMENTS],
        lambda: (type(function), function.__class__, isinstance(function, types.FunctionType)),
        lambda: inspect.signature(function),
        lambda: inspect.getsource(function),
        lambda: (inspect.getfile(function), inspect.getfullargspec(function)),
        lambda: (inspect.isfunction(function), inspect.isroutine(function), callable(function)),
        lambda: (inspect.unwrap(function) is function, hasattr(function, "__wrapped__")),
        lambda: (function.__code__, function.__defaults__, len(function.__globals__) > 0),
        lambda: dir(function),
        lambda: wrapped(function),
        lambda: kept(function),
        lambda: pickle.dumps(function),
        lambda: pickle.loads(pickle.dumps(function)) is function,
        lambda: (copy.copy(function) is function, copy.deepcopy(function) is function),
        lambda: (hash(function) == hash(function), function == function, {function: 1}[function]),
        lambda: function < 1,
        lambda: (bound, bound.__func__ is function, bound.__name__, inspect.signature(bound)),
        lambda: (function.__get__(5) == bound, function.__get__(None, int) is function),
        lambda: weakref.ref(function)() is function,
        lambda: function(),
        lambda: function.__call__(wrong=1),
        lambda: function.nothing,
        lambda: setattr(function, "__name__", 5),
        lambda: type(function)(function.__code__, {}, closure=function.__closure__),
        lambda: (function.__closure__, function.__kwdefaults__, function.__annotations__),
    ]


def of_batches():
    """The generator of a loader."""
    loader = gluon.data.DataLoader(gluon.data.ArrayDataset(list(range(4)), list(range(4))), 2)
    batches = iter(loader)
    yield answer(lambda: batches)
    yield answer(lambda: (type(batches), isinstance(batches, collections.abc.Generator)))
    yield answer(lambda: (inspect.isgenerator(batches), inspect.getgeneratorstate(batches)))
    yield answer(lambda: (batches.gi_frame.f_code, batches.__name__, iter(batches) is batches))
    yield answer(lambda: copy.copy(batches))
    yield answer(lambda: pickle.dumps(batches))
    yield answer(lambda: type(batches)())
    yield answer(lambda: weakref.ref(batches)() is batches)
    yield answer(lambda: len(list(itertools.islice(batches, 1))))
    yield answer(lambda: len(batches.__next__()))
    yield answer(lambda: next(batches))

    def delegates():
        found = yield from iter(loader)
        return found

    yield answer(lambda: len(list(delegates())))
    again = iter(loader)
    next(again)
    yield answer(lambda: again.throw(ValueError("thrown")))
    yield answer(lambda: again.close())


def lets_go(properties, made):
    """Whether a class whose operators were made and that the program has no more is freed."""

    class Short(AddOne):
        def forward(self, *arguments):
            super().forward(*arguments)

    left = weakref.ref(Short)
    made[0] = Short
    properties().create_operator("cpu", [], []).forward.__func__.of = Short
    made[0] = AddOne
    del Short
    gc.collect()
    return left() is None


def members(kind):
    return [name for name, _ in inspect.getmembers(kind, inspect.isfunction)], [
        (one.name, one.kind) for one in inspect.classify_class_attrs(kind) if one.name[0] != "_"
    ]


def main():
    kinds = [AddOne]
    properties = register(lambda: kinds[0]())
    made = properties().create_operator("cpu", [], [])
    answers = [answer(ask) for function in functions(properties) for ask in questions(function)]
    answers += [answer(lambda kind=kind: members(kind)) for kind in (gluon.Trainer, AddOne)]
    answers += [answer(lambda: (made.forward, inspect.getsource(made.forward)))]
    answers += [*of_batches(), answer(lambda: lets_go(properties, kinds))]
    print(json.dumps(answers))


main()
