#pragma once

// Compares what the shim makes of the templates in a folder, and of small ones, with what llama.cpp does. How often it
// did; ends the process with exit code 1 at the first difference. thoroughly: with more options and histories.
int templates_are_llama_cpps(const char * folder, bool thoroughly);
