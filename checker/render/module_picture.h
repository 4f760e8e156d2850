// The graph of modules as a picture, and as a table that says the same.
#pragma once

#include "checker/report/module_graph.h"

namespace spmd::checker {

// SVG and HTML; names are escaped by `html`.
std::string module_picture(const ModuleGraph &graph, std::string (*html)(llvm::StringRef text));

} // namespace spmd::checker
