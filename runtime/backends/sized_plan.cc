// A plan is made and run once for each exchange that asks for something new: what comes before it
// is done again, which costs time and keeps a plan free of steps that make plans.
#include "runtime/backends/sized_plan.h"

#include "runtime/reference/blocks.h"

#include "ir/support/error.h"
#include "ir/text/text.h"

#include <fmt/format.h>

namespace spmd::runtime {
namespace {} // namespace

llvm::Expected<Plan> make_sized_plan(checker::CheckedProgram &program, const World &world,
                                     StartedBackend started, TensorSizes &sizes,
                                     PlanOptions options) {
  while (true) {
    options.sizes = &sizes;
    llvm::Expected<Plan> plan = make_plan(program, world, options);
    if (!plan || plan->unknown_sizes.empty())
      return plan;
    std::unique_ptr<Backend> backend = started(*plan);
    if (!backend)
      return make_error("what says how much is moved could not be run");
    if (llvm::Error failed = backend->run(plan->all(), kNoDeadline))
      return llvm::Expected<Plan>(std::move(failed));
    for (PlannedId asked : plan->unknown_sizes) {
      const PlannedValue &value = plan->values[asked];
      std::string name = ir::print_value(program.program(), value.value);
      std::vector<TensorSizes::Lengths> lengths;
      for (RankId rank : world.ranks(plan->buffers[value.buffer].mesh)) {
        Tensor held;
        if (llvm::Error failed = backend->read(value.buffer, rank, held))
          return llvm::Expected<Plan>(std::move(failed));
        std::optional<TensorSizes::Lengths> own = whole_numbers(held);
        if (!own || held.dims.size() != 1)
          return make_error(
              fmt::format("{} says how much is moved, and is no list of numbers", name));
        lengths.push_back(std::move(*own));
      }
      sizes.lengths[{value.value.index, plan->calls[value.call].path}] = std::move(lengths);
    }
  }
}

} // namespace spmd::runtime
