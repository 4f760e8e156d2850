// Where buffers lie. Lives are ranges of steps; what lives at one time does not overlap. The
// largest buffers come first, each into the smallest gap that takes it.
#include "runtime/plan/plan.h"

#include "rules/boundary/name.h"
#include "rules/ops/registry.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace spmd::runtime {
namespace {

constexpr int64_t kAlignment = 64;
constexpr size_t kMostBestFit =
    1 << 14; // above this, buffers are placed in the order of their steps

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

class Memory {
public:
  Memory(const ir::Program &program, Plan &plan) : program_(program), plan_(plan) {}
  void run();

private:
  // Buffers that take over one another's bytes.
  struct Chain {
    StepRange life;
    int64_t bytes = 0, offset = 0;
  };

  void lives();
  template <class F> void each_buffer(const Step &step, F &&f) const;
  void touch(BufferId buffer, uint32_t step);
  void widen();
  void releases();
  void move_steps();
  void reuse();
  bool takes_over(uint32_t step, BufferId operand, BufferId result) const;
  bool pointwise(const Compute &compute, unsigned operand) const;
  void chains();
  void place_largest_first(llvm::ArrayRef<uint32_t> order);
  void place_in_time(llvm::MutableArrayRef<uint32_t> order);

  const ir::Program &program_;
  Plan &plan_;
  std::vector<StepRange> ranges_; // of branches and loops, inner ones first
  // By old step: where it is now, and where what comes before it ends.
  std::vector<uint32_t> at_, ends_;
  std::vector<uint32_t> released_; // by buffer: the step; none: ~0
  std::vector<uint32_t> chain_of_; // by buffer
  std::vector<Chain> chains_;
};

template <class F> void Memory::each_buffer(const Step &step, F &&f) const {
  auto all = [&](Span span) {
    for (const Use &use : plan_.used(span))
      f(use.buffer);
  };
  switch (step.form) {
  case StepForm::Compute:
    all(plan_.computes[step.index].operands);
    all(plan_.computes[step.index].results);
    break;
  case StepForm::LocalStep:
    all(plan_.local_steps[step.index].operands);
    f(plan_.local_steps[step.index].result);
    break;
  case StepForm::Communicate:
    f(plan_.communicates[step.index].operand);
    f(plan_.communicates[step.index].result);
    break;
  case StepForm::Release:
    break;
  case StepForm::Branch:
    f(plan_.branches[step.index].predicate);
    break;
  case StepForm::Loop:
    f(plan_.loops[step.index].predicate);
    break;
  }
}

void Memory::touch(BufferId id, uint32_t step) {
  StepRange &life = plan_.buffers[id].life;
  if (life.empty())
    life = {step, step + 1};
  life.first = std::min(life.first, step);
  life.last = std::max(life.last, step + 1);
}

// What crosses the border of a branch or a loop lives through all of it.
void Memory::widen() {
  for (uint32_t b = 0; b < plan_.buffers.size(); ++b) {
    StepRange &life = plan_.buffers[BufferId{b}].life;
    for (StepRange range : ranges_) {
      bool apart = life.empty() || life.last <= range.first || range.last <= life.first;
      bool inside = range.first < life.first && life.last <= range.last;
      if (apart || inside)
        continue;
      life.first = std::min(life.first, range.first);
      life.last = std::max(life.last, range.last);
    }
  }
}

void Memory::lives() {
  const uint32_t end = static_cast<uint32_t>(plan_.steps.size());
  for (uint32_t i = 0; i < end; ++i) {
    const Step &step = plan_.steps[i];
    each_buffer(step, [&](BufferId id) { touch(id, i); });
    if (step.form == StepForm::Branch)
      ranges_.push_back({i, plan_.branches[step.index].else_end});
    if (step.form == StepForm::Loop)
      ranges_.push_back({i, plan_.loops[step.index].body_end});
  }
  std::reverse(ranges_.begin(), ranges_.end());
  // A value can be read where the instruction that made it ends, whether or not another one reads
  // it.
  for (const PlannedValue &value : plan_.values.all())
    if (value.value.valid())
      touch(value.buffer, value.from ? value.from - 1 : 0);
  auto keep = [&](PlannedId value) {
    plan_.buffers[plan_.values[value].buffer].life.last = end + 1;
  };
  for (PlannedId output : plan_.outputs) {
    touch(plan_.values[output].buffer, 0 < end ? end - 1 : 0);
    keep(output);
  }
  for (const Plan::OptimizerInput &stepped : plan_.optimizer_inputs) {
    touch(plan_.values[stepped.gradient].buffer, 0 < end ? end - 1 : 0);
    keep(stepped.gradient);
  }
  // What is published or stored can be read when all is done.
  for (const Execution &each : plan_.executions) {
    rules::Boundary op = rules::boundary_of(program_, program_.insts[each.inst].op);
    if (rules::results_outlive_program(op) && !each.nested)
      for (PlannedId value : plan_.list(each.results))
        keep(value);
  }
  widen();
}

// A release stands behind the last step that touches a buffer, and behind the instruction that it
// is part of: what an instruction took and gave can be read when it is done.
void Memory::releases() {
  const uint32_t end = static_cast<uint32_t>(plan_.steps.size());
  std::vector<llvm::SmallVector<BufferId, 2>> inside(end + 1), behind(end + 1); // by end of life
  for (uint32_t b = 0; b < plan_.buffers.size(); ++b) {
    StepRange life = plan_.buffers[BufferId{b}].life;
    if (life.empty() || life.last > end)
      continue;
    bool nested = llvm::any_of(ranges_, [&](StepRange range) {
      return range.first < life.first && life.last <= range.last;
    });
    (nested ? inside : behind)[life.last].push_back(BufferId{b});
  }
  std::vector<Step> steps;
  released_.assign(plan_.buffers.size(), ~0u);
  auto release = [&](llvm::ArrayRef<BufferId> dead) {
    for (BufferId id : dead) {
      steps.push_back({StepForm::Release,
                       static_cast<uint32_t>(plan_.releases.size()),
                       plan_.buffers[id].mesh,
                       {}});
      plan_.releases.push_back({id});
      released_[id.index] = static_cast<uint32_t>(steps.size()) - 1;
    }
  };
  for (uint32_t i = 0; i <= end; ++i) {
    release(inside[i]);
    ends_.push_back(static_cast<uint32_t>(steps.size()));
    release(behind[i]);
    at_.push_back(static_cast<uint32_t>(steps.size()));
    if (i < end)
      steps.push_back(plan_.steps[i]);
  }
  plan_.steps = std::move(steps);
}

void Memory::move_steps() {
  for (Branch &each : plan_.branches)
    each.then_end = ends_[each.then_end], each.else_end = ends_[each.else_end];
  for (Loop &each : plan_.loops)
    each.cond_end = ends_[each.cond_end], each.body_end = ends_[each.body_end];
  for (Execution &each : plan_.executions)
    each.steps = {ends_[each.steps.first], ends_[each.steps.last]};
  for (uint32_t b = 0; b < plan_.buffers.size(); ++b)
    if (StepRange &life = plan_.buffers[BufferId{b}].life; !life.empty())
      life = {at_[life.first],
              life.last > at_.size() - 1 ? at_.back() + 1 : at_[life.last - 1] + 1};
  for (uint32_t v = 0; v < plan_.values.size(); ++v) {
    PlannedValue &value = plan_.values[PlannedId{v}];
    value.from = ends_[value.from];
    value.until = released_[value.buffer.index];
  }
}

// The operand and the result stand at the same place of equal tensors, and nothing else is read of
// the operand: so elements may be replaced one by one.
bool Memory::pointwise(const Compute &compute, unsigned operand) const {
  const rules::OpDef *row = nullptr;
  rules::ResolvedOp op = rules::resolve_op(program_, compute.op);
  row = op.row;
  if (!row || row->factors || (op.alias && (op.alias->choose || op.alias->factors)) ||
      row->choose || row->each || compute.results.count != 1)
    return false;
  const rules::Equation &equation = row->equation.equation;
  auto rest = [&](bool has_dims, uint8_t first, uint8_t count) {
    return has_dims && count == 1 && equation.dims[first].form == rules::Dim::Form::Rest;
  };
  for (unsigned i = 0; i < equation.ref_count; ++i)
    if (const rules::Ref &ref = equation.refs[i];
        ref.operand != rules::kGenerator && !rest(ref.has_dims, ref.first_dim, ref.dim_count))
      return false;
  const rules::Result &result = equation.results[0];
  return operand < compute.operands.count && equation.whole == 0 &&
         rest(result.has_dims, result.first_dim, result.dim_count);
}

bool Memory::takes_over(uint32_t step, BufferId operand, BufferId result) const {
  const Buffer &from = plan_.buffers[operand], &to = plan_.buffers[result];
  return operand != result && from.life.last == step + 1 && to.life.first == step &&
         from.bytes == to.bytes && from.dims == to.dims && from.mesh == to.mesh;
}

void Memory::reuse() {
  for (uint32_t i = 0; i < plan_.steps.size(); ++i) {
    const Step &step = plan_.steps[i];
    if (step.form == StepForm::Communicate) {
      const Communicate &made = plan_.communicates[step.index];
      if (made.collective == rules::Collective::AllReduce &&
          takes_over(i, made.operand, made.result))
        plan_.buffers[made.result].in_place = made.operand;
    }
    if (step.form != StepForm::Compute)
      continue;
    const Compute &made = plan_.computes[step.index];
    if (made.results.count != 1)
      continue;
    BufferId result = plan_.used(made.results)[0].buffer;
    llvm::ArrayRef<Use> operands = plan_.used(made.operands);
    for (unsigned a = 0; a < operands.size(); ++a)
      if (takes_over(i, operands[a].buffer, result) && pointwise(made, a)) {
        plan_.buffers[result].in_place = operands[a].buffer;
        break;
      }
  }
}

void Memory::chains() {
  chain_of_.assign(plan_.buffers.size(), ~0u);
  // An operand is made before what takes it over, and has the smaller index.
  for (uint32_t b = 0; b < plan_.buffers.size(); ++b) {
    const Buffer &buffer = plan_.buffers[BufferId{b}];
    if (buffer.in_place.valid() && chain_of_[buffer.in_place.index] != ~0u) {
      chain_of_[b] = chain_of_[buffer.in_place.index];
      Chain &chain = chains_[chain_of_[b]];
      chain.life.first = std::min(chain.life.first, buffer.life.first);
      chain.life.last = std::max(chain.life.last, buffer.life.last);
      continue;
    }
    chain_of_[b] = static_cast<uint32_t>(chains_.size());
    chains_.push_back({buffer.life, aligned(buffer.bytes)});
  }
}

void Memory::place_largest_first(llvm::ArrayRef<uint32_t> order) {
  std::vector<uint32_t> placed; // by offset
  for (uint32_t id : order) {
    Chain &chain = chains_[id];
    int64_t end = 0, best = -1, room = 0;
    for (uint32_t other : placed) {
      const Chain &at = chains_[other];
      if (at.life.last <= chain.life.first || chain.life.last <= at.life.first)
        continue;
      int64_t gap = at.offset - end;
      if (gap >= chain.bytes && (best < 0 || gap < room))
        best = end, room = gap;
      end = std::max(end, at.offset + at.bytes);
    }
    chain.offset = best < 0 ? end : best;
    plan_.peak_bytes = std::max(plan_.peak_bytes, chain.offset + chain.bytes);
    placed.insert(llvm::partition_point(
                      placed, [&](uint32_t at) { return chains_[at].offset < chain.offset; }),
                  id);
  }
}

// Gaps by offset, as buffers come and go.
void Memory::place_in_time(llvm::MutableArrayRef<uint32_t> order) {
  llvm::sort(order, [&](uint32_t a, uint32_t b) {
    return std::pair(chains_[a].life.first, a) < std::pair(chains_[b].life.first, b);
  });
  std::map<int64_t, int64_t> gaps;         // offset, bytes
  std::multimap<uint32_t, uint32_t> alive; // end of life, chain
  auto free = [&](int64_t offset, int64_t bytes) {
    auto next = gaps.lower_bound(offset);
    if (next != gaps.end() && next->first == offset + bytes)
      bytes += next->second, next = gaps.erase(next);
    if (next != gaps.begin())
      if (auto last = std::prev(next); last->first + last->second == offset)
        return void(last->second += bytes);
    gaps[offset] = bytes;
  };
  for (uint32_t id : order) {
    Chain &chain = chains_[id];
    for (auto at = alive.begin(); at != alive.end() && at->first <= chain.life.first;
         at = alive.erase(at))
      free(chains_[at->second].offset, chains_[at->second].bytes);
    auto best = gaps.end();
    for (auto at = gaps.begin(); at != gaps.end(); ++at)
      if (at->second >= chain.bytes && (best == gaps.end() || at->second < best->second))
        best = at;
    if (best == gaps.end()) {
      chain.offset = plan_.peak_bytes;
      plan_.peak_bytes += chain.bytes;
    } else {
      chain.offset = best->first;
      int64_t left = best->second - chain.bytes;
      gaps.erase(best);
      if (left > 0)
        gaps[chain.offset + chain.bytes] = left;
    }
    alive.insert({chain.life.last, id});
  }
}

void Memory::run() {
  lives();
  releases();
  move_steps();
  reuse();
  chains();
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < chains_.size(); ++i)
    if (!chains_[i].life.empty() && chains_[i].bytes > 0)
      order.push_back(i);
  llvm::stable_sort(order,
                    [&](uint32_t a, uint32_t b) { return chains_[a].bytes > chains_[b].bytes; });
  if (order.size() > kMostBestFit)
    place_in_time(order);
  else
    place_largest_first(order);
  for (uint32_t b = 0; b < plan_.buffers.size(); ++b)
    plan_.buffers[BufferId{b}].offset = chains_[chain_of_[b]].offset;
}

} // namespace

void plan_memory(const ir::Program &program, Plan &plan) { Memory(program, plan).run(); }

} // namespace spmd::runtime
