/* A member of a group in a program in C, C++ or Cython, without Python for each message: Python joins the group, and
 * the functions of one table send and receive. docs/embedding.md shows how.
 *
 * All memory that the table gives out is seqcast's: a program reads it, and gives items back. So a field added to the
 * end of a struct or of the table needs no new version; whatever else changes gets one, and `seqcast_import` refuses a
 * table of another version. */
#pragma once

#include <Python.h>

#include <stddef.h>
#include <stdint.h>

#define SEQCAST_EMBED_VERSION 1

typedef struct seqcast_member seqcast_member;

/* Results of the functions. Below 0, except for SEQCAST_UNSURE, the call has had no effect. */
enum {
    SEQCAST_OK = 0,
    SEQCAST_NONE = 1, /* nothing came in time, or the message could not be sent in time */
    SEQCAST_ENDED = -1, /* the member leaves, has left or was excluded, or this is the child of a fork */
    SEQCAST_NO_MEMBER = -2, /* the receiver is not in the view */
    SEQCAST_TOO_LARGE = -3, /* the message is larger than `message_bytes_max` */
    SEQCAST_UNSURE = -4, /* the member left while a large message waited for its order; others may deliver it */
    SEQCAST_BAD_ARGUMENT = -5, /* NULL, a budget of 0, an unknown flag; or no descriptor was asked for */
    SEQCAST_HOLDS_GIL = -6, /* a call that may wait needs a thread that has released the GIL */
    SEQCAST_ALL_BORROWED = -7, /* SEQCAST_ITEMS_MAX items are out: give one back first */
    SEQCAST_NOT_BORROWED = -8, /* the item was given back already, or is not of this member */
    SEQCAST_IN_USE = -9, /* items are still out, or another thread takes: close nothing yet */
    SEQCAST_FAILED = -10, /* Python raised an exception: see `error` */
    SEQCAST_OBSERVER = -11 /* an observer sends to single members only */
};

#define SEQCAST_ITEMS_MAX 64
#define SEQCAST_UNORDERED 1u /* flag of `send`: as `ordered=False` */

/* Kinds of items. */
enum {
    SEQCAST_MESSAGES = 1,
    SEQCAST_VIEW = 2,
    SEQCAST_MERGE_VIEW = 3, /* a view that merges separated groups */
    SEQCAST_LOST = 4,
    SEQCAST_BLOCKED = 5,
    SEQCAST_UNBLOCKED = 6,
    SEQCAST_INTERFACE_CHANGED = 7,
    SEQCAST_EXCLUDED = 8, /* the last item */
    SEQCAST_LEFT = 9, /* the last item */
    SEQCAST_COORDINATOR_CHANGED = 10, /* with coordinator_events=True; `ids`: of the new one, and of the previous */
    SEQCAST_SKIPPED =
        11 /* with slow="skip": this member missed messages of the member in `ids`; `text` says how many */
};

/* Flags of messages. */
enum { SEQCAST_UNICAST = 1, SEQCAST_TRANSITIONAL = 2 };

/* As seqcast.Message. */
typedef struct {
    const uint8_t *data;
    uint64_t len;
    uint64_t sender; /* id of the member */
    uint64_t seqno;
    uint64_t global_seqno; /* 0: none */
    int64_t sent_ns;
    uint32_t index;
    uint32_t flags;
} seqcast_message;

/* A batch of messages of one view, or an event. */
typedef struct {
    uint32_t kind;
    uint32_t n; /* messages of a batch, or members of a view */
    uint64_t bytes; /* of the messages */
    const uint64_t *ids; /* of a view, by rank */
    const char *const *names; /* UTF-8 */
    uint64_t view; /* counter of the view's id */
    int32_t rank; /* of this member in the view */
    int32_t sequencer; /* rank, or -1 */
    const char *text; /* of an event, in one line, UTF-8 */
    PyObject *event; /* the event in Python, borrowed, for those who hold the GIL; NULL: a batch */
} seqcast_item;

typedef struct {
    uint32_t version; /* SEQCAST_EMBED_VERSION */
    uint32_t size; /* bytes of the table */

    /* With the GIL. A handle of a seqcast.Group, which the handle keeps alive. NULL with an exception if the object is
     * not a group, or the group was left, already has a handle, or another thread receives from the group. Until the
     * handle is closed, Python cannot receive from the group, but can do everything else. */
    seqcast_member *(*open)(PyObject *group);

    /* All others without the GIL, though only those with a timeout other than 0 insist on it. Timeouts are in ns; below
     * 0: no limit. `poll` is for one thread at a time (others wait for it); the rest is for any number of threads. */

    /* To the group (`to` 0), or to the member with that id. Waits for room and for the end of a view change. While the
     * thread that polls waits here, arriving messages are kept for the next `poll`, up to the setting kept_bytes, as
     * nobody else takes them; this needs the GIL. SEQCAST_FAILED, with SendWouldBlock in `error`: that limit is
     * reached, and only `poll` helps. */
    int (*send)(seqcast_member *member, uint64_t to, uint32_t flags, const void *data, size_t len, int64_t timeout_ns);
    /* Transmits the messages that wait to fill a packet. Never needed: seqcast does so itself, within `flush_s_min`. */
    int (*flush)(seqcast_member *member);
    /* The next item: about `budget` bytes of messages at most, though at least one message, or an event. The thread
     * that waits here drives the sockets. The first item is a view. `poll` takes the GIL only for events, or if a
     * journal is written. */
    int (*poll)(seqcast_member *member, uint64_t budget, int64_t timeout_ns, seqcast_item **item);
    /* The next message of an item, or NULL. The next call overwrites the struct; the bytes of the message stay until
     * the item is given back. */
    const seqcast_message *(*next)(seqcast_item *item);
    /* Each item is given back once, by any thread. */
    int (*give_back)(seqcast_member *member, seqcast_item *item);
    /* For event loops: a descriptor to wait for until it is readable (a socket, on Windows), or a value below 0. Call
     * `watch` before each wait: SEQCAST_NONE: wait; SEQCAST_OK: an item is ready to poll. While the states of
     * groups that have merged are merged, which `poll` does in Python, `watch` returns SEQCAST_OK after a
     * millisecond. */
    intptr_t (*descriptor)(seqcast_member *member);
    int (*watch)(seqcast_member *member);
    /* Python's exception at the last SEQCAST_FAILED, until the next one; NULL: none so far. */
    const char *(*error)(const seqcast_member *member);
    /* Frees the handle; the group stays. No other call of the handle may run or follow. */
    int (*close)(seqcast_member *member);
} seqcast_table;

/* With the GIL: the table, or NULL with an ImportError. */
static inline const seqcast_table *seqcast_import(void) {
    PyObject *module = PyImport_ImportModule("seqcast.embed");
    PyObject *capsule = module ? PyObject_GetAttrString(module, "table") : NULL;
    const seqcast_table *table = NULL;
    if (capsule) table = (const seqcast_table *)PyCapsule_GetPointer(capsule, "seqcast.embed.table");
    Py_XDECREF(capsule); /* the table is static */
    Py_XDECREF(module);
    if (!table) return NULL;
    if (table->version == SEQCAST_EMBED_VERSION && table->size >= sizeof *table) return table;
    PyErr_Format(
        PyExc_ImportError,
        "this program was compiled for version %u of seqcast's table of functions, with %u bytes, and the installed "
        "seqcast has version %u, with %u bytes: compile the program again with the installed seqcast/embed.h",
        (unsigned)SEQCAST_EMBED_VERSION, (unsigned)sizeof *table, (unsigned)table->version, (unsigned)table->size);
    return NULL;
}
