// Facts of this build, written by CMake.

#include "causerie.h"

const char * causerie_build_info(void) {
    static const char text[] =
#include "build_info.inc"
        ;
    return text;
}
