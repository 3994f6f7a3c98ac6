// C streams over Python's file descriptors.

#include <cstdio>

#include "causerie.h"

#if defined(_WIN32)
#    include <io.h>
#    define dup _dup
#    define fdopen _fdopen
#    define close _close
#else
#    include <unistd.h>
#endif

FILE * causerie_file_open(int fd, const char * mode) {
    const int own = dup(fd);
    if (own < 0) {
        return nullptr;
    }
    FILE * file = fdopen(own, mode);
    if (file == nullptr) {
        close(own);
    }
    return file;
}

void causerie_file_close(FILE * file) {
    if (file != nullptr) {
        std::fclose(file);
    }
}
