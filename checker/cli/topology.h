// What the links of a machine cost, from a file.
#pragma once

#include "rules/redistribute/request.h"

#include <string>

namespace spmd::checker {

// `launch = 2e-6`, then per axis `[axes.dp]`, `bytes_per_second = 4e11`, `latency = 1e-6`. Empty,
// or what is wrong with the file.
std::string read_topology(const std::string &path, rules::redistribute::Topology &topology);

} // namespace spmd::checker
