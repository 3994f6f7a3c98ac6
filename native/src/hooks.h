// What causerie_init() installs into llama.cpp.

#pragma once

namespace causerie {

void install_abort_hook();
void install_log_hook();

}  // namespace causerie
