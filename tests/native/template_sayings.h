#pragma once

#include <string>
#include <vector>

// Small templates, which say each thing that a template can say, and what is wrong too.
const std::vector<std::string> & sayings();

// One of statements and expressions in any order, the same for each seed. Most of them render.
std::string random_template(unsigned seed);
