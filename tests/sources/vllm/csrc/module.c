/* `vllm._C`: says what it was compiled from. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "frames.h"
#include "sources.h"

static PyObject *describe(PyObject *self, PyObject *arguments) {
    (void)self;
    (void)arguments;
    return Py_BuildValue("(ssl)", sources_declared_in(), frames_declared_in(), FRAMES_CHUNK_BYTES);
}

static PyMethodDef methods[] = {
    {"describe", describe, METH_NOARGS, "The headers' paths and the size of a chunk in bytes."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", VLLM_TARGET_DEVICE, -1, methods, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__C(void) { return PyModule_Create(&module); }
