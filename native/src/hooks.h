// What causerie_init() does to llama.cpp and its libraries.

#pragma once

namespace causerie {

void install_abort_hook();
void install_log_hook();
// Lowers resident memory; nothing else changes.
void give_back_load_pages() noexcept;

}  // namespace causerie
