// Text for a caller of the C ABI, who frees it with causerie_string_free.

#pragma once

#include <cstdlib>
#include <cstring>
#include <new>
#include <string>

namespace causerie {

inline char * copy_out(const std::string & text) {
    char * out = static_cast<char *>(std::malloc(text.size() + 1));
    if (out == nullptr) {
        throw std::bad_alloc();
    }
    std::memcpy(out, text.c_str(), text.size() + 1);
    return out;
}

}  // namespace causerie
