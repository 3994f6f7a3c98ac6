// Looks at backends that are libraries of their own, before ggml loads one of them.

#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "causerie.h"
#include "guard.h"

#if defined(_WIN32)
#    define WIN32_LEAN_AND_MEAN
#    define NOMINMAX
#    include <windows.h>
#else
#    include <dlfcn.h>
#endif

namespace {

#if defined(_WIN32)

using Handle = std::remove_pointer_t<HMODULE>;

void unload(Handle * library) { FreeLibrary(library); }

Handle * load(const char * path) {
    const UINT mode = SetErrorMode(SEM_FAILCRITICALERRORS);  // no dialog about a library that is missing
    Handle * library = LoadLibraryW(std::filesystem::u8path(path).c_str());
    const DWORD code = GetLastError();
    SetErrorMode(mode);
    if (library == nullptr) {
        throw std::runtime_error("Windows cannot load it, or a library that it needs (error " + std::to_string(code) + ")");
    }
    return library;
}

void * find(Handle * library, const char * name) { return reinterpret_cast<void *>(GetProcAddress(library, name)); }

#else

using Handle = void;

void unload(Handle * library) { dlclose(library); }

Handle * load(const char * path) {
    Handle * library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char * reason = dlerror();
        throw std::runtime_error(reason == nullptr ? "it cannot be loaded" : reason);
    }
    return library;
}

void * find(Handle * library, const char * name) { return dlsym(library, name); }

#endif

int score(const char * path) {
    const std::unique_ptr<Handle, decltype(&unload)> library(load(path), unload);
    const auto commit_of = reinterpret_cast<const char * (*)()>(find(library.get(), "causerie_plugin_commit"));
    if (commit_of == nullptr) {
        throw std::runtime_error("it is no plugin of causerie");
    }
    const std::string commit = commit_of();
    if (commit != causerie_plugin_commit()) {
        throw std::runtime_error("it is of llama.cpp " + commit + ", and not of " + causerie_plugin_commit());
    }
    const auto score_of = reinterpret_cast<int (*)()>(find(library.get(), "ggml_backend_score"));
    return score_of == nullptr ? 1 : score_of();
}

}  // namespace

int32_t causerie_plugin_score(const char * path) {
    return causerie_guarded<int32_t>(__func__, [&] { return score(path); }, -1);
}
