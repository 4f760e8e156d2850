// Equal on the ranks of R and I, summed over those of P, block by block over those of S.
#include "tests/soundness/judge.h"

#include "checker/check.h"
#include "checker/operand_list.h"
#include "ir/text/text.h"

#include <fmt/format.h>

namespace spmd::soundness {

using ir::AxisSet;
using ir::Kind;
using ir::ValueId;

std::string refute_data(const ir::Program &program, const World &world, const Typed &value,
                        const ir::Type &type, const Held &ranks, const Held &meant,
                        Residue factor) {
  ir::MeshId mesh = type.mesh();
  AxisSet same = (type.replicated() | type.of(Kind::Invariant)) & program.meshes[mesh].typed_axes();
  AxisSet pending = type.of(Kind::Partial) - same;
  Placement place(program, world, value);
  AxisSet lists = type.of(Kind::Varying) - type.sharded();
  for (unsigned r = 0; r < world.size(); ++r) {
    // What is no list is one tensor to all ranks.
    unsigned member = world.moved(mesh, lists, 0, r);
    if (!(meant.at[meant.rep[r]] == meant.at[meant.rep[member]]))
      return fmt::format("one device has a tensor for each of the ranks {} and {}", member, r);
    const Array &own = ranks.at[ranks.rep[r]];
    if (own.dims != place.block(r).dims)
      return fmt::format("rank {} holds another shape", r);
    // Axis by axis: each rank against the first one along it.
    for (ir::AxisId axis : same) {
      unsigned first = world.moved(mesh, axis, r, 0);
      if (!(own == ranks.at[ranks.rep[first]]))
        return fmt::format("ranks {} and {} differ", first, r);
    }
    if (world.moved(mesh, same | pending, r, 0) != r)
      continue; // judged with the first ones
    Array sum = Array::zeros(own.dims);
    for (unsigned other = 0; other < world.size(); ++other)
      if (world.moved(mesh, pending, other, 0) == r)
        add_to(sum, ranks.at[ranks.rep[other]]);
    const Array &whole = meant.at[meant.rep[r]];
    if (whole.dims != place.whole(r))
      return fmt::format("one device has another shape than rank {}", r);
    if (!(sum == times(take(whole, place.block(r)), factor)))
      return fmt::format("rank {}: not what one device computes", r);
  }
  return {};
}

Execution::Execution(ir::Program &program, const checker::CheckResult &checked, uint64_t seed)
    : program_(program), setting_(program, checked), seed_(seed), used_(program.values.size()) {
  for (const ir::Inst &inst : program.insts) {
    llvm::StringRef name = program.op_name(inst.op);
    if (name == "backward" || name == "grad") // a loss is an end of its own
      continue;
    checker::OperandList operands;
    operands.read(program, inst.operands);
    for (ValueId value : operands.values)
      used_[value.index] = true;
  }
}

Verdict Execution::run() {
  Verdict verdict;
  if (!ranks_) {
    ranks_ = std::make_unique<Run>(setting_, Run::Side::Ranks, seed_);
    meant_ = std::make_unique<Run>(setting_, Run::Side::Whole, seed_);
  }
  for (Run *run : {ranks_.get(), meant_.get()})
    if (!run->run()) {
      verdict.form = run->wrong ? Verdict::Form::Wrong : Verdict::Form::NotFollowed;
      verdict.what = run->why;
      break;
    }
  return verdict;
}

// What no list is on one device, and has the extents there that its type says.
bool Execution::can_be_observed(ValueId value) const {
  if (!ran(value))
    return false;
  Typed known = setting_.typed(value, 0);
  const ir::Type &type = program_.types[known.type];
  if (!known.shape.valid() || type.gradient_free() || type.unknown || type.combining() ||
      type.either() || (type.of(Kind::Varying) - type.sharded()))
    return false;
  Placement place(program_, setting_.world, known);
  const Held &meant = *meant_->value(value);
  for (unsigned r = 0; place.known() && r < setting_.world.size(); ++r)
    if (meant.rep[r] != 0 || meant.at[0].dims != place.whole(r) ||
        ranks_->value(value)->at[r].dims != place.block(r).dims)
      return false;
  return place.known();
}

llvm::SmallVector<ValueId, 32> Execution::observed() const {
  llvm::SmallVector<ValueId, 32> values;
  for (const ir::Param &param : program_.params)
    if (can_be_observed(param.value))
      values.push_back(param.value);
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
    for (uint32_t r = 0; r < program_.insts[ir::InstId{i}].result_count; ++r)
      if (ValueId value = program_.insts[ir::InstId{i}].result(r); can_be_observed(value))
        values.push_back(value);
  return values;
}

void Execution::observe_all() {
  llvm::SmallVector<ValueId, 32> all = observed();
  ranks_->differentiate_with(all);
  meant_->differentiate_with(all);
}

void Execution::run_again_observed() {
  llvm::SmallVector<ValueId, 32> all = observed();
  ranks_ = std::make_unique<Run>(setting_, Run::Side::Ranks, seed_);
  meant_ = std::make_unique<Run>(setting_, Run::Side::Whole, seed_);
  ranks_->observe(all);
  meant_->observe(all);
  bool done = run().is(Verdict::Form::Upheld);
  SPMD_CHECK(done, "what ran once does not run again");
  observe_all();
}

Verdict Execution::judge(Claims claims) {
  Verdict verdict;
  for (const ir::Param &param : program_.params)
    judge_value(param.value, verdict);
  auto each_result = [&](auto &&judge) {
    for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i)
      for (uint32_t r = 0; r < program_.insts[ir::InstId{i}].result_count; ++r)
        judge(program_.insts[ir::InstId{i}].result(r));
  };
  each_result([&](ValueId value) {
    if (claims == Claims::All || !used_[value.index])
      judge_value(value, verdict);
  });
  for (const ir::Param &param : program_.params)
    judge_gradient(param.value, verdict);
  each_result([&](ValueId value) { judge_stated(value, verdict); });
  judge_steps(verdict);
  if (claims == Claims::All)
    each_result([&](ValueId value) { judge_gradient(value, verdict); });
  return verdict;
}

std::string Execution::refute(ValueId value, const Typed &known, const ir::Type &type) {
  return refute_data(program_, setting_.world, known, type, *ranks_->value(value),
                     *meant_->value(value), scale_number(program_, type.scale));
}

std::string Execution::refute_gradient(ValueId value, const Typed &known, const ir::Type &type) {
  if (!ranks_->was_differentiated(value) || type.gradient_free())
    return {};
  const Held *held = ranks_->gradient(value), *meant = meant_->gradient(value);
  if (!held || !meant)
    return {};
  ValueId root = ranks_->root();
  Residue of_root = root.valid()
                        ? scale_number(program_, program_.types[setting_.typed(root, 0).type].scale)
                        : Residue(1);
  return refute_data(program_, setting_.world, known, type.dual(), *held, *meant,
                     of_root * scale_number(program_, type.scale).inverse());
}

void Execution::judge_value(ValueId value, Verdict &verdict) {
  if (!verdict.is(Verdict::Form::Upheld) || !ran(value))
    return;
  Typed known = setting_.typed(value, 0);
  const ir::Type &type = program_.types[known.type];
  if (type.unknown || type.combining())
    return;
  ++verdict.values;
  if (std::string what = refute(value, known, type); !what.empty()) {
    verdict.form = Verdict::Form::Wrong;
    verdict.what = fmt::format("{}: {}", ir::print_value(program_, value), what);
  }
}

void Execution::judge_gradient(ValueId value, Verdict &verdict) {
  if (!verdict.is(Verdict::Form::Upheld) || !ran(value))
    return;
  Typed known = setting_.typed(value, 0);
  const ir::Type &type = program_.types[known.type];
  if (!ranks_->was_differentiated(value) || type.gradient_free() || type.unknown ||
      type.combining())
    return;
  ++verdict.gradients;
  if (std::string what = refute_gradient(value, known, type); !what.empty()) {
    verdict.form = Verdict::Form::Wrong;
    verdict.what = fmt::format("the gradient of {}: {}", ir::print_value(program_, value), what);
  }
}

Verdict judge(ir::Program &program, const checker::CheckResult &checked, uint64_t seed,
              Claims claims) {
  Execution execution(program, checked, seed);
  Verdict verdict = execution.run();
  if (verdict.is(Verdict::Form::Upheld))
    verdict = execution.judge(claims);
  if (!verdict.is(Verdict::Form::Upheld) || claims != Claims::All)
    return verdict;
  execution.observe_all();
  Verdict again = execution.judge(claims);
  again.values = verdict.values;
  again.gradients += verdict.gradients;
  if (!again.what.empty())
    again.what += " (where the loss depends on every value)";
  return again;
}

} // namespace spmd::soundness
