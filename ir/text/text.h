// Values and instructions as the canonical text has them, for sentences and listings.
#pragma once

#include "ir/program.h"

#include <string>

namespace spmd::ir {

std::string print_value(const Program &program, ValueId value);
// `%10 (layers.0.norm.weight)`: a declared value with the name that the framework gives it.
std::string print_named(const Program &program, ValueId value);
// One instruction as one line of canonical text, without location, scope or nested bodies.
std::string print_inst(const Program &program, InstId inst);

} // namespace spmd::ir
