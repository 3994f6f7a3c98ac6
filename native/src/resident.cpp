// Gives back pages of shared libraries that only loading them has touched.

#include "hooks.h"

#if defined(__linux__)

#    include <link.h>
#    include <sys/mman.h>
#    include <unistd.h>

#    include <cstdint>
#    include <cstring>

namespace causerie {

// What an evaluation never calls, but relocating and initialising it reads: 3.5 MB of them. llama.cpp's core is left
// alone, as every process with a model needs it.
static bool is_seldom_used(const char * path) {
    const char * slash = std::strrchr(path, '/');
    const char * name = slash == nullptr ? path : slash + 1;
    return std::strcmp(name, "libcauserie-llama-common.so") == 0 || std::strcmp(name, "libcauserie-mtmd.so") == 0;
}

static int give_back(dl_phdr_info * info, size_t, void *) {
    if (!is_seldom_used(info->dlpi_name)) {
        return 0;
    }
    const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const ElfW(Phdr) & segment = info->dlpi_phdr[i];
        // Written pages (relocations, variables) exist in this process alone. The others equal the file: whoever reads
        // one again has it mapped again.
        if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) {
            continue;
        }
        const uintptr_t begin = (info->dlpi_addr + segment.p_vaddr) & ~(page - 1);
        const uintptr_t end = (info->dlpi_addr + segment.p_vaddr + segment.p_filesz + page - 1) & ~(page - 1);
        madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
    }
    return 0;
}

void give_back_load_pages() noexcept { dl_iterate_phdr(give_back, nullptr); }

}  // namespace causerie

#else

namespace causerie {

void give_back_load_pages() noexcept {}

}  // namespace causerie

#endif
