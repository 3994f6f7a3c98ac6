// How many cores there are, by llama.cpp's own counting.

#include "causerie.h"
#include "common.h"
#include "guard.h"

int32_t causerie_physical_cores(void) {
    return causerie_guarded<int32_t>(__func__, [] { return common_cpu_get_num_physical_cores(); }, 0);
}
