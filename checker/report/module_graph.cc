// Follows each operand of the forward back through collectives to the module that made it.
#include "checker/report/module_graph.h"

#include "checker/program_queries.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <optional>
#include <set>

namespace spmd::checker {
namespace {

constexpr size_t kMostDepth = 8;

class GraphBuilder {
public:
  GraphBuilder(const ir::Program &program, llvm::ArrayRef<CommCall> messages)
      : program_(program), messages_(messages) {
    for (uint32_t i = 0; i < messages.size(); ++i)
      of_inst_[messages[i].inst.index].push_back(i);
  }

  size_t names(size_t depth) const;
  ModuleGraph build(size_t depth);

private:
  bool forward(ir::InstId id) const {
    ir::Phase phase = program_.insts[id].phase;
    return phase == ir::Phase::Unstated || phase == ir::Phase::Forward;
  }
  uint32_t node(ir::InstId id);
  void add(Moved &moved, ir::InstId id);
  void connect(ir::InstId user, ir::ValueId value);

  const ir::Program &program_;
  llvm::ArrayRef<CommCall> messages_;
  llvm::DenseMap<uint32_t, llvm::SmallVector<uint32_t, 1>> of_inst_; // messages
  size_t depth_ = 1;
  ModuleGraph graph_;
  std::map<std::string, uint32_t> nodes_;
  std::map<std::pair<uint32_t, uint32_t>, Moved> edges_;
  std::set<std::array<uint32_t, 3>> counted_; // instruction, from, to
  std::set<uint32_t> crossed_;                // collectives that stand on an edge
};

size_t GraphBuilder::names(size_t depth) const {
  std::set<std::string> found;
  for (uint32_t i = 0; i < program_.insts.size(); ++i)
    if (forward(ir::InstId{i}))
      found.insert(without_numbers(scope_of(program_, ir::InstId{i}), depth));
  found.erase("");
  return found.size();
}

uint32_t GraphBuilder::node(ir::InstId id) {
  std::string name = without_numbers(scope_of(program_, id), depth_);
  auto [at, fresh] = nodes_.try_emplace(name, static_cast<uint32_t>(graph_.nodes.size()));
  if (fresh)
    graph_.nodes.push_back({.name = name, .ops = 0, .inside = {}});
  return at->second;
}

void GraphBuilder::add(Moved &moved, ir::InstId id) {
  for (uint32_t index : of_inst_[id.index]) {
    const CommCall &message = messages_[index];
    TrafficKey key = traffic_key(program_, message, TrafficBy::Op);
    Traffic &row = moved[fmt::format("{} over {}", key[1], key[2])];
    ++row.calls;
    row.unknown += !message.bytes;
    row.bytes += message.bytes.value_or(0);
  }
}

// A collective is on the way of a value, wherever it was called from.
void GraphBuilder::connect(ir::InstId user, ir::ValueId value) {
  llvm::SmallVector<ir::InstId, 2> way;
  ir::InstId made = defining_inst(program_, value);
  while (made.valid() && of_inst_.count(made.index)) {
    way.push_back(made);
    llvm::SmallVector<ir::ValueId, 4> tensors = tensors_of(program_, made);
    made = tensors.empty() ? ir::InstId() : defining_inst(program_, tensors.front());
  }
  if (!made.valid() || !forward(made))
    return;
  uint32_t from = node(made), to = node(user);
  if (from == to)
    return;
  Moved &moved = edges_[{from, to}];
  for (ir::InstId id : way) {
    crossed_.insert(id.index);
    if (counted_.insert({id.index, from, to}).second)
      add(moved, id);
  }
}

ModuleGraph GraphBuilder::build(size_t depth) {
  depth_ = depth;
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    ir::InstId id{i};
    if (!forward(id) || of_inst_.count(i))
      continue;
    ++graph_.nodes[node(id)].ops;
    for (ir::ValueId value : tensors_of(program_, id))
      connect(id, value);
  }
  constexpr std::string_view kInside[] = {"within", "within", "backward", "recomputed",
                                          "optimizer"};
  for (uint32_t i = 0; i < program_.insts.size(); ++i) {
    ir::InstId id{i};
    if (!of_inst_.count(i) || crossed_.count(i))
      continue;
    std::string phase(kInside[static_cast<unsigned>(program_.insts[id].phase)]);
    add(graph_.nodes[node(id)].inside[phase], id);
  }
  for (auto &[ends, moved] : edges_)
    graph_.edges.push_back({.from = ends.first, .to = ends.second, .moved = std::move(moved)});
  return std::move(graph_);
}

} // namespace

ModuleGraph module_graph(const ir::Program &program, llvm::ArrayRef<CommCall> messages,
                         size_t most) {
  GraphBuilder builder(program, messages);
  size_t depth = 1;
  while (depth < kMostDepth && builder.names(depth + 1) <= most)
    ++depth;
  if (builder.names(depth) < 2)
    return {};
  return builder.build(depth);
}

} // namespace spmd::checker
