/* Memory for secrets: those of an engine (seal.c), and those that Python holds (Locked in _native/engine.pyx). */
#pragma once

#include <stddef.h>

/* Overwrites the part of the stack that functions called before have used: ciphers of a library leave keys there. */
void sc_secret_clean_stack(void);
/* Zeros at first: if the system can, neither swapped out nor dumped, and zeros in a child process. NULL without
 * memory. */
void *sc_secret_new(size_t bytes);
void sc_secret_overwrite(void *p, size_t bytes);
void sc_secret_free(void *p, size_t bytes); /* and overwrites the secret */
