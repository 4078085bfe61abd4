// A module in C whose function calls functions of Python.
// build: gcc -O2 -shared -fPIC -I{include} {source} -o {folder}/c_planted.so
// run: {python} {script} {seconds}
/* python
import c_planted
import planted


def called():
    planted.compute()  # line: called


def drives():
    c_planted.repeat(called, planted.BATCH)  # line: drives


def other():
    for _ in range(planted.BATCH // 2):
        planted.compute()


while planted.going():
    with planted.Cpu(
        function="called", line="called", line_total="drives", symbol_total="planted_repeat"
    ):
        drives()
    with planted.Cpu(function="other"):
        other()
planted.finish()
*/

#include "planted.h"

#include <Python.h>

NOINLINE long planted_repeat(PyObject *function, long times) {
    for (long i = 0; i < times; i++) {
        PyObject *found = PyObject_CallNoArgs(function);
        if (!found) return -1;
        Py_DECREF(found);
    }
    return times;
}

static PyObject *repeat(PyObject *module, PyObject *arguments) {
    PyObject *function;
    long times;
    (void)module;
    if (!PyArg_ParseTuple(arguments, "Ol", &function, &times)) return NULL;
    return PyLong_FromLong(planted_repeat(function, times));
}

static PyMethodDef methods[] = {{"repeat", repeat, METH_VARARGS, ""}, {0, 0, 0, 0}};
static struct PyModuleDef definition = {.m_base = PyModuleDef_HEAD_INIT,
                                        .m_name = "c_planted",
                                        .m_size = -1,
                                        .m_methods = methods};

PyMODINIT_FUNC PyInit_c_planted(void) { return PyModule_Create(&definition); }
