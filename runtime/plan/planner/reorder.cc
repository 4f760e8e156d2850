// Blocks that change their ranks as a whole, by one permutation; the rank that a call names as its
// root.
#include "runtime/plan/planner/transitions.h"

#include "ir/support/error.h"

#include <fmt/format.h>

#include <map>

namespace spmd::runtime {

using ir::AxisId;
using rules::Collective;

// Blocks change their ranks. Copies, and addends, of one block are as good as one another: they are
// taken in the order of the ranks.
llvm::Expected<BufferId> TransitionPlanner::reordered(PlanSite &site, unsigned operand,
                                                      unsigned result,
                                                      llvm::ArrayRef<AxisId> axes) {
  std::string name = values_.who(site.frame, site.inst.result(result));
  BufferId from = plan_.values[site.values[operand]].buffer;
  llvm::Expected<Placement> before = Placement::make(program_, world_, site.args[operand], name);
  if (!before)
    return before.takeError();
  llvm::Expected<Placement> after = Placement::make(
      program_, world_, checked_.known(site.inst.result(result), site.frame.typing), name);
  if (!after)
    return after.takeError();
  CommunicatorId id = builder_.communicator(site.mesh(program_), axes);
  const Groups &group = builder_.groups(id);
  std::vector<int64_t> pairs;
  for (size_t g = 0; g < group.count(); ++g) {
    std::map<std::vector<int64_t>, llvm::SmallVector<RankId, 4>> held;
    auto key = [](const Block &block) {
      std::vector<int64_t> key(block.first.begin(), block.first.end());
      key.insert(key.end(), block.dims.begin(), block.dims.end());
      return key;
    };
    for (RankId rank : llvm::reverse(group[g]))
      held[key(before->block(world_, rank))].push_back(rank);
    std::vector<int64_t> own;
    for (RankId rank : group[g]) {
      llvm::SmallVector<RankId, 4> &sources = held[key(after->block(world_, rank))];
      if (sources.empty())
        return make_error(
            fmt::format("{}: rank {} is to hold a block that no rank of its group has", name,
                        world_.number(rank)));
      own.push_back(group.position(sources.pop_back_val()));
      own.push_back(group.position(rank));
    }
    if (g > 0 && own != pairs)
      return make_error(fmt::format("{}: blocks move otherwise from group to group", name));
    pairs = std::move(own);
  }
  Communicate made{Collective::Permute};
  made.group = id;
  made.operand = from;
  made.result = builder_.buffer_like(from, builder_.dims_of_buffer(from));
  made.dtype = plan_.buffers[from].dtype;
  made.perm = {static_cast<uint32_t>(plan_.numbers.size()), static_cast<uint32_t>(pairs.size())};
  plan_.numbers.insert(plan_.numbers.end(), pairs.begin(), pairs.end());
  return builder_.communicate(made, site.mesh(program_));
}

llvm::Expected<uint32_t> TransitionPlanner::root_of(PlanSite &site, size_t size) {
  const ir::AttrValue *root = program_.find(site.inst.attrs, "root");
  if (!root)
    return 0;
  if (root->form != ir::AttrForm::Integer || root->as_integer() < 0 ||
      root->as_integer() >= static_cast<int64_t>(size))
    return make_error(fmt::format("`root` is none of the {} ranks of a group", size));
  return static_cast<uint32_t>(root->as_integer());
}

} // namespace spmd::runtime
