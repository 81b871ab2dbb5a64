/* A replicated counter in C: each member multicasts increments, and all add them up in one order. Python joins and
 * leaves; in between, no Python code runs for a message. docs/embedding.md explains the calls, and how this is
 * compiled.
 *
 *     counter PYTHON CLUSTER NAME MEMBERS INCREMENTS [INTERFACE]
 *
 * PYTHON is the interpreter for which seqcast is installed, such as .venv/bin/python. The program waits for a view of
 * MEMBERS members, sends INCREMENTS increments, and leaves after those of all members have come. */
#include <seqcast/embed.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    uint32_t members; /* to wait for */
    uint64_t increments; /* of each */
    uint64_t total, received;
    int sent;
} counter;

/* Python, with its packages, as the program `python` would find them. */
static int start_python(const char *python) {
    PyConfig config;
    PyConfig_InitPythonConfig(&config);
    PyStatus status = PyConfig_SetBytesString(&config, &config.program_name, python);
    if (!PyStatus_Exception(status)) status = Py_InitializeFromConfig(&config);
    PyConfig_Clear(&config);
    if (!PyStatus_Exception(status)) return 0;
    fprintf(stderr, "Python did not start: %s\n", status.err_msg ? status.err_msg : "no reason given");
    return -1;
}

static PyObject *join(const char *cluster, const char *name, const char *interface) {
    PyObject *group = NULL, *module = PyImport_ImportModule("seqcast");
    PyObject *join = module ? PyObject_GetAttrString(module, "join") : NULL;
    PyObject *arguments = Py_BuildValue("(s)", cluster),
             *named = Py_BuildValue("{ssss}", "name", name, "interface", interface);
    if (join && arguments && named) group = PyObject_Call(join, arguments, named);
    Py_XDECREF(named);
    Py_XDECREF(arguments);
    Py_XDECREF(join);
    Py_XDECREF(module);
    return group;
}

static int send_increments(counter *c, const seqcast_table *seqcast, seqcast_member *member, int32_t rank) {
    int code = SEQCAST_OK;
    uint64_t one = (uint64_t)rank + 1;
    for (uint64_t i = 0; i < c->increments && code == SEQCAST_OK; i++)
        code = seqcast->send(member, 0, 0, &one, sizeof one, -1);
    c->sent = 1;
    return code;
}

static int take(counter *c, const seqcast_table *seqcast, seqcast_member *member, seqcast_item *item) {
    const seqcast_message *message;
    while ((message = seqcast->next(item))) {
        uint64_t by;
        if (message->len != sizeof by) continue;
        memcpy(&by, message->data, sizeof by);
        c->total += by;
        c->received++;
    }
    if (item->kind == SEQCAST_MESSAGES) return SEQCAST_OK;
    printf("%s\n", item->text);
    int full = (item->kind == SEQCAST_VIEW || item->kind == SEQCAST_MERGE_VIEW) && item->n == c->members;
    return full && !c->sent ? send_increments(c, seqcast, member, item->rank) : SEQCAST_OK;
}

/* Without the GIL. Returns the code of the call that failed. */
static int run(counter *c, const seqcast_table *seqcast, seqcast_member *member) {
    int code = SEQCAST_OK;
    while (code == SEQCAST_OK && c->received < c->members * c->increments) {
        seqcast_item *item;
        code = seqcast->poll(member, 1 << 20, 30000000000, &item);
        if (code != SEQCAST_OK) break;
        code = take(c, seqcast, member, item);
        seqcast->give_back(member, item);
    }
    return code;
}

static int count(PyObject *group, counter *c) {
    const seqcast_table *seqcast = seqcast_import();
    seqcast_member *member = seqcast ? seqcast->open(group) : NULL;
    if (!member) return -1;
    PyThreadState *python = PyEval_SaveThread(); /* seqcast's control thread needs the GIL from now on */
    int code = run(c, seqcast, member);
    PyEval_RestoreThread(python);
    if (code != SEQCAST_OK) {
        const char *error = seqcast->error(member);
        PyErr_Format(PyExc_RuntimeError, "seqcast returned %d: %s", code, error ? error : "see seqcast/embed.h");
    }
    seqcast->close(member);
    return code;
}

int main(int argc, char **argv) {
    if (argc < 6) {
        fprintf(stderr, "usage: counter PYTHON CLUSTER NAME MEMBERS INCREMENTS [INTERFACE]\n");
        return 2;
    }
    counter c = {.members = (uint32_t)strtoul(argv[4], NULL, 10), .increments = strtoull(argv[5], NULL, 10)};
    if (start_python(argv[1])) return 1;
    PyObject *group = join(argv[2], argv[3], argc > 6 ? argv[6] : "");
    int failed = !group || count(group, &c);
    PyObject *left = failed ? NULL : PyObject_CallMethod(group, "leave", NULL);
    if (left) printf("%" PRIu64 " messages, total %" PRIu64 "\n", c.received, c.total);
    if (PyErr_Occurred()) PyErr_Print();
    Py_XDECREF(left);
    Py_XDECREF(group);
    return Py_FinalizeEx() < 0 || !left; /* leaves a group that is still open */
}
