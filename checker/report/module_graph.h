// A program as the modules that its operations belong to, and what is communicated where values go
// from one to another.
#pragma once

#include "checker/report/communication.h"

#include <map>
#include <string>
#include <vector>

namespace spmd::checker {

// Collectives by what they are called: `all_reduce over tp`.
using Moved = std::map<std::string, Traffic>;

struct ModuleGraph {
  struct Node {
    std::string name; // `layers.*.mlp`; empty: of what belongs to no module
    uint64_t ops = 0; // without collectives
    // What is communicated within the module, and after the forward, by phase: `backward`.
    std::map<std::string, Moved> inside;
  };
  struct Edge {
    uint32_t from = 0, to = 0; // nodes
    Moved moved;
  };
  std::vector<Node> nodes; // in the order in which their operations run first
  std::vector<Edge> edges; // of the forward, by nodes; none from a node to itself
};

// Modules of equal layers are one. Names are cut so that there are at most about `most` nodes.
// Empty if the program names no two modules.
ModuleGraph module_graph(const ir::Program &program, llvm::ArrayRef<CommCall> messages,
                         size_t most = 24);

} // namespace spmd::checker
