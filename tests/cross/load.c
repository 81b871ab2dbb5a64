/* Loads each library that is named, with all that it refers to, and looks for the function by which Python begins a
   module. */
#include <stdio.h>
#include <string.h>

#ifdef _WIN32
#include <windows.h>
#define OPEN(path) ((void *)LoadLibraryA(path))
#define FIND(library, name) ((void *)GetProcAddress((HMODULE)(library), name))
static const char *why(void) {
    static char text[32];
    snprintf(text, sizeof text, "error %lu", GetLastError());
    return text;
}
#else
#include <dlfcn.h>
#define OPEN(path) dlopen(path, RTLD_NOW)
#define FIND(library, name) dlsym(library, name)
static const char *why(void) { return dlerror(); }
#endif

int main(int count, char **paths) {
    for (int i = 1; i < count; i++) {
        char begins[256];
        const char *slash = strrchr(paths[i], '/'), *name = slash ? slash + 1 : paths[i];
        snprintf(begins, sizeof begins, "PyInit_%.*s", (int)strcspn(name, "."), name);
        void *library = OPEN(paths[i]);
        if (!library || !FIND(library, begins)) {
            fprintf(stderr, "%s: %s\n", paths[i], why());
            return 1;
        }
    }
    printf("%d extensions loaded\n", count - 1);
    return 0;
}
