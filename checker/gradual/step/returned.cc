// What is sent is followed through names, casts and copies, each of which has one operand.
#include "checker/gradual/step/returned.h"

#include "checker/program_queries.h"
#include "checker/walk/gradients/backward_slice.h"

#include "rules/ops/registry.h"
#include "rules/shards/remesh.h"
#include "rules/violations/gradients.h"
#include "rules/violations/steps/returned.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"

#include <vector>

namespace spmd::checker {

using ir::InstId;
using ir::ValueId;

namespace {

// What stages send to each other.
class Messages {
public:
  explicit Messages(const ir::Program &program);

  bool any() const { return messages_.any(); }
  // Of one tensor, from one stage to another.
  bool is_message(InstId id) const { return id.valid() && messages_.test(id.index); }
  bool is_unknown(InstId id) const { return unknown_.test(id.index); } // what it computes
  ValueId root(ValueId value) const { return ends(value).root; }
  // Of which value it is the gradient; none if that is not said.
  ValueId gradient_target(ValueId value) const { return ends(value).target; }
  ValueId sent_as(ValueId value) const;
  InstId received_by(ValueId root) const;
  // By root: the first instruction of its backward that is no message.
  llvm::DenseMap<uint32_t, InstId> own_gradients() const;

private:
  struct Ends {
    ValueId root, target;
  };
  ValueId before(ValueId value) const;
  Ends ends(ValueId value) const;

  const ir::Program &program_;
  llvm::BitVector messages_, unknown_; // instructions
  mutable llvm::DenseMap<uint32_t, Ends>
      ends_; // by value: chains are long, and ask for each member
};

class Returned {
public:
  Returned(ir::Program &program, CheckResult &result)
      : program_(program), result_(result), messages_(program), used_(program.values.size()) {}

  void run();

private:
  void judge(InstId id);
  void find_overwritten(InstId id);
  void find_unreturned();
  bool depends_on_parameter(ValueId value) const;
  std::vector<InstId> uncleared();

  ir::Program &program_;
  CheckResult &result_;
  Messages messages_;
  llvm::BitVector used_;                // values that an instruction takes
  llvm::DenseSet<uint32_t> sent_;       // roots of what stages send
  llvm::DenseSet<uint32_t> overwrites_; // likewise, of what was reported
  llvm::DenseMap<uint32_t, InstId> own_gradients_;
};

Messages::Messages(const ir::Program &program)
    : program_(program), messages_(program.insts.size()), unknown_(program.insts.size()) {
  struct Op {
    bool waits = false, unknown = false;
  };
  llvm::DenseMap<uint32_t, Op> ops; // by spelling
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const ir::Inst &inst = program.insts[InstId{i}];
    auto [op, added] = ops.try_emplace(inst.op.index);
    if (added) {
      const rules::ResolvedOp resolved = rules::resolve_op(program, inst.op);
      op->second = {resolved.boundary == rules::Boundary::Wait,
                    resolved.form == rules::OpForm::Unknown};
    }
    if (op->second.unknown)
      unknown_.set(i);
    if (!op->second.waits || inst.result_count != 1)
      continue;
    const llvm::SmallVector<ValueId, 4> operands = tensors_of(program, InstId{i});
    const InstId made = operands.size() == 1 ? defining_inst(program, operands[0]) : InstId();
    // For the result of a collective that goes on beside it the same rank waits.
    if (operands.size() == 1 &&
        (!made.valid() || !program.find(program.insts[made].attrs, "async")))
      messages_.set(i);
  }
}

// What a value is another name, a cast or a copy of, within one stage; none at the end.
ValueId Messages::before(ValueId value) const {
  const InstId made = defining_inst(program_, value);
  if (!made.valid() || is_message(made))
    return {};
  if (const ValueId base = program_.values[value].alias_of; base.valid())
    return base.index < value.index ? base : ValueId();
  const llvm::SmallVector<ValueId, 4> operands = tensors_of(program_, made);
  return operands.size() == 1 ? operands[0] : ValueId();
}

Messages::Ends Messages::ends(ValueId value) const {
  llvm::SmallVector<ValueId, 8> chain;
  for (ValueId at = value; at.valid() && !ends_.count(at.index); at = before(at))
    chain.push_back(at);
  for (ValueId at : llvm::reverse(chain)) {
    const ValueId from = before(at), of = program_.values[at].grad_of;
    const Ends known = from.valid() ? ends_.lookup(from.index) : Ends{at, {}};
    ends_[at.index] = {known.root, of.valid() ? of : known.target};
  }
  return ends_.lookup(value.index);
}

// What another stage has sent, and is this value there; none if it was not received.
ValueId Messages::sent_as(ValueId value) const {
  const InstId made = defining_inst(program_, root(value));
  return is_message(made) ? tensors_of(program_, made)[0] : ValueId();
}

// The message by which it came; none: it was not received.
InstId Messages::received_by(ValueId root) const {
  const InstId made = defining_inst(program_, root);
  return is_message(made) ? made : InstId();
}

// Where the backward of each value begins with something that another stage has not sent.
llvm::DenseMap<uint32_t, InstId> Messages::own_gradients() const {
  llvm::DenseMap<uint32_t, InstId> found;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    for (uint32_t r = 0; r < inst.result_count && inst.phase == ir::Phase::Backward; ++r)
      if (const ValueId target = program_.values[inst.result(r)].grad_of;
          target.valid() && !is_message(InstId{i}))
        found.try_emplace(root(target).index, InstId{i});
  }
  return found;
}

// A message that is the gradient of what was sent there.
void Returned::judge(InstId id) {
  const ValueId back = program_.insts[id].first_result, taken = program_.values[back].grad_of;
  const ValueId there = messages_.gradient_target(tensors_of(program_, id)[0]);
  const ValueId sent = there.valid() ? messages_.sent_as(there) : ValueId();
  if (!sent.valid())
    return;
  if (taken.valid()) {
    if (messages_.root(taken) != messages_.root(sent) &&
        sent_.contains(messages_.root(taken).index))
      result_.findings.push_back({rules::CrossedGradient{taken, sent}, Place::inst(id)});
    return;
  }
  if (used_.test(back.index))
    return;
  if (const auto begins = own_gradients_.find(messages_.root(sent).index);
      begins != own_gradients_.end())
    result_.findings.push_back({rules::UnusedGradient{sent}, Place::inst(begins->second)});
}

// A backward reads what its forward has read. Where that was received, and it reads what was
// received later in its place, the later message has overwritten it.
void Returned::find_overwritten(InstId id) {
  const ir::Inst &inst = program_.insts[id];
  const InstId forward = inst.bwd_of.valid() ? defining_inst(program_, inst.bwd_of) : InstId();
  if (!forward.valid() || messages_.is_message(forward))
    return;
  auto received = [&](InstId at) {
    llvm::SmallVector<ValueId, 2> found;
    for (ValueId operand : tensors_of(program_, at))
      if (const ValueId root = messages_.root(operand);
          messages_.received_by(root).valid() && !messages_.gradient_target(root).valid() &&
          program_.insts[messages_.received_by(root)].phase != ir::Phase::Backward)
        found.push_back(root);
    return found;
  };
  const llvm::SmallVector<ValueId, 2> read = received(forward), reads = received(id);
  for (ValueId now : reads)
    for (ValueId then : read)
      if (!llvm::is_contained(read, now) && !llvm::is_contained(reads, then) &&
          result_.shapes[now.index] == result_.shapes[then.index] && then.index < now.index &&
          overwrites_.insert(then.index).second)
        result_.findings.push_back(
            {rules::OverwrittenMessage{then, now}, Place::inst(messages_.received_by(now))});
}

// Whether a stage has made it of a parameter that is trained.
bool Returned::depends_on_parameter(ValueId value) const {
  auto within = [&](InstId made, ValueId) { return !messages_.is_message(made); };
  auto is_trained = [&](ValueId at) {
    const ir::Param *param =
        defining_inst(program_, at).valid() ? nullptr : program_.find_param(at);
    return param && param->role == ir::Role::Param &&
           program_.values[at].requires_grad != ir::Tristate::False;
  };
  return search(program_, value, within, is_trained).valid();
}

// What a stage has received, and makes a gradient of that nothing takes, although it sends another
// one back.
void Returned::find_unreturned() {
  InstId returns;
  llvm::MapVector<uint32_t, InstId> received;   // by value: a message of the forward
  llvm::DenseMap<uint32_t, uint32_t> gradients; // by gradient: what was received
  llvm::DenseSet<uint32_t> made, taken;         // of what was received
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const llvm::SmallVector<ValueId, 4> operands = tensors_of(program_, InstId{i});
    const bool message = messages_.is_message(InstId{i});
    llvm::DenseSet<uint32_t> given; // what was received, of which the operands are gradients
    for (ValueId operand : operands)
      if (const auto at = gradients.find(operand.index); at != gradients.end())
        given.insert(at->second);
    if (message && !given.empty() && !returns.valid())
      returns = InstId{i};
    const bool names =
        !message && given.size() == 1 && inst.result_count == 1 &&
        llvm::all_of(operands, [&](ValueId operand) {
          return gradients.count(operand.index) &&
                 result_.shapes[operand.index] == result_.shapes[inst.first_result.index];
        });
    if (names) // or copies
      gradients[inst.first_result.index] = *given.begin();
    else
      taken.insert(given.begin(), given.end());
    if (message && is_forward(inst))
      received[inst.first_result.index] = InstId{i};
    for (uint32_t r = 0; r < inst.result_count && !message; ++r)
      if (const ValueId of = program_.values[inst.result(r)].grad_of; of.valid())
        if (const uint32_t root = messages_.root(of).index; received.count(root)) {
          gradients[inst.result(r).index] = root;
          made.insert(root);
        }
  }
  for (const auto &[value, message] : received)
    if (const ValueId sent = tensors_of(program_, message)[0];
        returns.valid() && made.contains(value) && !taken.contains(value) &&
        depends_on_parameter(sent))
      result_.findings.push_back({rules::UnreturnedGradient{sent}, Place::inst(returns)});
}

// The backward pass that adds something to the gradient that the step before has left of a
// parameter, by its first instruction, if the optimizer makes something of the sum; by parameter of
// the program. All are followed in one pass.
std::vector<InstId> Returned::uncleared() {
  struct Left {
    uint32_t param;
    ValueId of;
    bool ends = false; // it is cleared, or made something else of
    InstId added;      // first instruction of the backward pass
  };
  std::vector<Left> left;
  llvm::DenseMap<uint32_t, uint32_t> by_value;
  for (uint32_t i = 0; i < program_.params.size(); ++i) {
    const ValueId value = program_.params[i].value, of = program_.values[value].grad_of;
    const ir::Param *parameter = of.valid() ? program_.find_param(of) : nullptr;
    if (!parameter || parameter->role != ir::Role::Param)
      continue;
    by_value[value.index] = static_cast<uint32_t>(left.size());
    left.push_back({i, of, false, {}});
  }
  std::vector<InstId> found(program_.params.size());
  llvm::DenseMap<uint32_t, llvm::BitVector> sums; // by value: of which of `left` it is made
  InstId backward;
  for (uint32_t i = program_.main.first.index; !left.empty() && i < program_.main.last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    if (const rules::OpDef *row = op_of(program_, InstId{i}).row;
        row && row->constant != rules::OpDef::Constant::No && inst.phase == ir::Phase::Backward &&
        inst.result_count == 1 && program_.values[inst.first_result].grad_of.valid())
      backward = InstId{i};
    const llvm::SmallVector<ValueId, 4> operands = tensors_of(program_, InstId{i});
    llvm::BitVector made(static_cast<unsigned>(left.size()));
    for (ValueId operand : operands)
      if (const auto sum = sums.find(operand.index); sum != sums.end())
        made |= sum->second;
    for (unsigned which : made.set_bits())
      for (uint32_t r = 0; r < inst.result_count && inst.phase == ir::Phase::Optimizer; ++r)
        if (messages_.root(inst.result(r)) == left[which].of && !found[left[which].param].valid())
          found[left[which].param] = left[which].added;
    for (ValueId operand : operands) {
      const auto at = by_value.find(operand.index);
      if (at == by_value.end())
        continue;
      Left &each = left[at->second];
      if (each.ends || each.added.valid())
        continue;
      each.ends = inst.phase != ir::Phase::Backward || inst.result_count != 1 ||
                  operands.size() != 2 || operands[0] != operand ||
                  program_.values[inst.first_result].alias_of != operand;
      if (each.ends)
        continue;
      each.added = backward.valid() ? backward : InstId{i};
      made.set(at->second);
    }
    for (uint32_t r = 0; r < inst.result_count && made.any(); ++r)
      sums[inst.result(r).index] |= made;
  }
  return found;
}

// The outputs whose gradients these findings say are wrong: of all parameters, where a gradient
// comes back to another place than it belongs to, or micro-batches are not added up as they have
// to be.
llvm::SmallVector<ValueId> wrong_outputs(const ir::Program &program,
                                         llvm::ArrayRef<Finding> findings) {
  bool all = false;
  llvm::DenseSet<uint32_t> wrong;
  for (const Finding &finding : findings) {
    const rules::Violation &what = finding.violation;
    if (const auto *tied = what.as<rules::TiedCopiesDrift>())
      wrong.insert(tied->value.index);
    else if (const auto *added = what.as<rules::UnclearedGradient>())
      wrong.insert(added->value.index);
    else if (const auto *again = what.as<rules::RepeatedGradient>())
      wrong.insert(again->value.index);
    all |= what.is<rules::CrossedGradient>() || what.is<rules::UnusedGradient>() ||
           what.is<rules::UnreturnedGradient>() || what.is<rules::OverwrittenMessage>() ||
           what.is<rules::AccumulatedMeans>() || what.is<rules::DroppedGradients>();
  }
  llvm::SmallVector<ValueId> found;
  for (const ir::Output &output : program.outputs)
    if (output.of.valid() && (all || wrong.contains(output.of.index)))
      found.push_back(output.value);
  return found;
}

void Returned::run() {
  const size_t first = result_.findings.size();
  bool messages = false;
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    const llvm::SmallVector<ValueId, 4> operands = tensors_of(program_, InstId{i});
    for (ValueId value : operands)
      used_.set(value.index);
    if (messages_.is_message(InstId{i})) {
      messages = true;
      sent_.insert(messages_.root(operands[0]).index);
    }
  }
  if (messages)
    own_gradients_ = messages_.own_gradients();
  for (uint32_t i = program_.main.first.index; messages && i < program_.main.last.index; ++i)
    if (messages_.is_message(InstId{i}))
      judge(InstId{i});
    else if (program_.insts[InstId{i}].phase == ir::Phase::Backward)
      find_overwritten(InstId{i});
  if (messages)
    find_unreturned();
  const std::vector<InstId> added = uncleared();
  for (uint32_t i = 0; i < program_.params.size(); ++i) {
    const ir::Param &param = program_.params[i];
    if (added[i].valid())
      result_.findings.push_back(
          {rules::UnclearedGradient{program_.values[param.value].grad_of}, Place::inst(added[i])});
    // Along an axis of one rank lie the stages, of which each has a copy.
    const ir::MeshId mesh = program_.types[result_.types[param.value.index]].mesh();
    if (param.drifted.valid() && rules::axes_of(program_, param.drifted, mesh).empty())
      result_.findings.push_back(
          {rules::TiedCopiesDrift{param.value}, Place{Place::Form::Param, i}});
  }
  for (ValueId value : wrong_outputs(program_, llvm::ArrayRef(result_.findings).drop_front(first)))
    result_.proved[value.index] = {};
}

} // namespace

void judge_received_gradients(ir::Program &program, CheckResult &result) {
  Returned(program, result).run();
}

// The operand that an instruction writes over, whatever it holds; none: there is none.
static ValueId written_over(const ir::Program &program, InstId id) {
  const ir::Inst &inst = program.insts[id];
  const rules::OpDef *row = op_of(program, id).row;
  const llvm::SmallVector<ValueId, 4> operands = tensors_of(program, id);
  if (!row || row->mut.empty() || inst.result_count != 1 || operands.empty() ||
      program.values[inst.first_result].alias_of != operands[0])
    return {};
  const rules::Equation &equation = row->equation.equation;
  if (equation.reads(equation.find_operand(row->mut)))
    return {};
  return operands[0];
}

// What is made of it is known where all that it is made of is, every gradient that comes back is
// that of what was sent, none is written over before anything has read it, and no finding says
// otherwise.
llvm::BitVector proved_in_stages(const ir::Program &program, const CheckResult &result) {
  const Messages messages(program);
  if (!messages.any())
    return {};
  llvm::BitVector known(program.values.size(), true);
  std::vector<unsigned> uses(program.values.size());
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    for (ValueId value : tensors_of(program, InstId{i}))
      ++uses[value.index];
  const llvm::DenseMap<uint32_t, InstId> own = messages.own_gradients();
  llvm::DenseSet<uint32_t> owed; // roots of what was sent, and has a gradient on the other stage
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i)
    if (const ir::Inst &inst = program.insts[InstId{i}];
        messages.is_message(InstId{i}) && own.count(inst.first_result.index))
      owed.insert(messages.root(tensors_of(program, InstId{i})[0]).index);
  for (uint32_t i = program.main.first.index; i < program.main.last.index; ++i) {
    const InstId id{i};
    const ir::Inst &inst = program.insts[id];
    const llvm::SmallVector<ValueId, 4> operands = tensors_of(program, id);
    bool all = !messages.is_unknown(id) &&
               llvm::all_of(operands, [&](ValueId value) { return known.test(value.index); });
    if (messages.is_message(id)) {
      const ValueId there = messages.gradient_target(operands[0]);
      const ValueId taken = program.values[inst.first_result].grad_of;
      const ValueId sent = there.valid() ? messages.sent_as(there) : ValueId();
      if (inst.phase == ir::Phase::Backward || there.valid())
        all &= sent.valid() && taken.valid() && messages.root(taken) == messages.root(sent);
      if (taken.valid())
        owed.erase(messages.root(taken).index);
    }
    if (const ValueId over = written_over(program, id); over.valid() && uses[over.index] == 1)
      all &= !messages.gradient_target(over).valid();
    for (uint32_t r = 0; r < inst.result_count && !owed.empty(); ++r)
      if (const ValueId of = program.values[inst.result(r)].grad_of; of.valid())
        all &= !owed.contains(messages.root(of).index);
    for (uint32_t r = 0; r < inst.result_count && !all; ++r)
      known.reset(inst.result(r).index);
  }
  for (ValueId value : wrong_outputs(program, result.findings))
    known.reset(value.index);
  return known;
}

} // namespace spmd::checker
