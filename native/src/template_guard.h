// Keeps a chat template within limits (template_limits.h), and from what its engine cannot bear.

#pragma once

#include "jinja/runtime.h"

namespace causerie {

// Replaces the nodes of a program by nodes of the same kinds that ask first. It renders what it rendered before, and
// runs inside within_limits() only.
void guard(jinja::program & program);

}  // namespace causerie
