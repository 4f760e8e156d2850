// Looks at one collective and what makes and takes its operand and its result. Steps are compared
// by the types at their ends: two that lead back to the same type, by steps that keep what a value
// means, lead back to the same data.
#include "checker/report/savings.h"

#include "checker/program_queries.h"
#include "checker/report/communication.h"

#include "rules/ops/registry.h"
#include "rules/violations/commands/costs.h"

#include "ir/dialect/print_type.h"
#include "ir/text/text.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <map>

namespace spmd::checker {
namespace {

using ir::AxisSet;
using ir::InstId;
using ir::Kind;
using ir::ValueId;
using ir::WrittenKind;
using rules::Collective;
using rules::TransitionOp;

// A transition of one tensor.
struct Step {
  InstId inst;
  TransitionOp op = TransitionOp::None;
  ValueId from, to;
  AxisSet axes; // on which the type changes
  Collective collective = Collective::None;
  int64_t ranks = 1;
  std::optional<int64_t> bytes = 0;     // that a rank sends
  std::optional<ir::Combiner> combiner; // that the call states
  bool in_place = false;                // it writes what it makes over its operand
};

class Search {
public:
  Search(ir::Program &program, const CheckResult &result);
  std::vector<Saving> run();

private:
  std::optional<Step> step(InstId id) const;
  // The step that makes the operand, if nothing else takes what it makes.
  std::optional<Step> step_before(const Step &step) const;
  bool only_used_by(ValueId value, InstId user) const;
  bool states(const Step &step, llvm::StringRef key) const {
    return program_.find(program_.insts[step.inst].attrs, key) != nullptr;
  }
  // Something that a statement of another op would have to say as well.
  bool says_more(const Step &step) const;
  // What the storage of a value was before anything gave it other names.
  bool is_declared(ValueId value) const;
  bool keeps_meaning(const Step &step) const;
  bool same_type(ValueId a, ValueId b) const;
  std::string new_step(const Step &first, const Step &second, TransitionOp op) const;
  // What the axis is at an end of a step: as the call says, where only kinds are judged and types
  // have no blocks; else by the type.
  WrittenKind source(const Step &step, ir::AxisId axis) const;
  WrittenKind target(const Step &step, ir::AxisId axis) const;
  WrittenKind word(const Step &step, llvm::StringRef key, ValueId value, ir::AxisId axis) const;
  std::string name_of(const Step &step) const { return program_.op_name(op(step)).str(); }
  ir::OpNameId op(const Step &step) const { return program_.insts[step.inst].op; }
  unsigned products_between(InstId first, InstId last) const;

  void pair(const Step &second);
  void slice(const Step &first, const Step &second);
  void fuse(const Step &first, const Step &second);
  InstId copy_before(const Step &step) const;
  void repeated(const Step &step);
  void overlap(const Step &step);
  // `step`: what takes the place of what goes; of no op where a value does.
  void add(const Step &at, rules::Violation violation, std::string text, Rewrite rewrite,
           FixStep step);
  FixStep fix_step(ValueId from, TransitionOp op, AxisSet axes, WrittenKind src, WrittenKind dst);

  ir::Program &program_;
  const CheckResult &result_;
  std::map<uint32_t, CommCall> messages_; // of instructions that send once
  std::vector<unsigned> uses_;            // per value, outputs and gradients included
  std::vector<InstId> writer_;            // per value: what writes over it; none if nothing does
  llvm::DenseMap<uint32_t, llvm::SmallVector<InstId, 2>> users_;
  std::map<std::array<uint32_t, 5>, Step> seen_;
  std::vector<Saving> found_;
};

WrittenKind addend(const Step &step) {
  return {.kind = Kind::Partial, .combiner = step.combiner.value_or(ir::Combiner::Sum)};
}

FixStep kept_as(ValueId value) {
  return {.value = value, .op = TransitionOp::None, .attrs = {}, .before = {}, .after = {}};
}

std::string bytes_text(std::optional<int64_t> bytes) {
  return bytes && *bytes > 0 ? std::to_string(*bytes) : "";
}

bool is_plain(WrittenKind word, Kind kind) {
  return word.form == WrittenKind::Form::Plain && word.kind == kind;
}
bool is_shard(WrittenKind word) { return word.form == WrittenKind::Form::Shard; }
bool is_unknown(WrittenKind word) { return word.form == WrittenKind::Form::Unknown; }

std::optional<int64_t> sum(std::optional<int64_t> a, std::optional<int64_t> b) {
  return a && b ? std::optional(*a + *b) : std::nullopt;
}

Search::Search(ir::Program &program, const CheckResult &result)
    : program_(program), result_(result), uses_(program.values.size()),
      writer_(program.values.size()) {
  std::map<uint32_t, unsigned> sends;
  for (const CommCall &message : comm_calls(program, result)) {
    messages_[message.inst.index] = message;
    ++sends[message.inst.index];
  }
  for (auto [inst, count] : sends)
    if (count != 1)
      messages_.erase(inst);
  for (uint32_t i = 0; i < program.insts.size(); ++i) {
    const ir::Inst &inst = program.insts[InstId{i}];
    for (ValueId value : tensors_of(program, InstId{i})) {
      ++uses_[value.index];
      users_[value.index].push_back(InstId{i});
    }
    for (const ir::Operand &operand : program.operand_lists[inst.operands])
      if (operand.is_value() && operand.mut)
        writer_[operand.index] = InstId{i};
  }
  for (const ir::Output &output : program.outputs)
    uses_[output.value.index] += 2; // it cannot go
  for (uint32_t i = 0; i < program.values.size(); ++i) {
    const ir::Value &value = program.values[ValueId{i}];
    // After a write the storage has this name, and the old one is read no more.
    InstId writer = value.alias_of.valid() ? writer_[value.alias_of.index] : InstId();
    const bool renamed = writer.valid() && defining_inst(program, ValueId{i}) == writer;
    for (ValueId other : {renamed ? ValueId() : value.alias_of, value.grad_of})
      if (other.valid())
        uses_[other.index] += 2;
    if ((value.alias_of.valid() && !renamed) || value.grad_of.valid() || value.declared.valid())
      uses_[i] += 2;
  }
}

std::optional<Step> Search::step(InstId id) const {
  const ir::Inst &inst = program_.insts[id];
  rules::ResolvedOp op = rules::resolve_op(program_, inst.op);
  llvm::SmallVector<ValueId, 4> tensors = tensors_of(program_, id);
  if (op.form != rules::OpForm::Transition || tensors.size() != 1 || inst.result_count != 1)
    return std::nullopt;
  Step step{.inst = id, .op = op.transition, .from = tensors.front(), .to = inst.result(0)};
  ir::TypeId before = result_.types[step.from.index], after = result_.types[step.to.index];
  const InstId writer = writer_[step.from.index];
  step.in_place = writer == id;
  if (!before.valid() || !after.valid() || (writer.valid() && !step.in_place))
    return std::nullopt;
  const ir::Type &a = program_.types[before], &b = program_.types[after];
  if (a.mesh() != b.mesh() || a.unknown || b.unknown)
    return std::nullopt;
  for (ir::AxisId axis : a.claimed() | b.claimed())
    if (a.kind(axis) != b.kind(axis) || a.dim(axis) != b.dim(axis))
      step.axes |= axis;
  if (auto message = messages_.find(id.index); message != messages_.end()) {
    step.collective = message->second.collective;
    step.ranks = message->second.ranks;
    step.bytes = message->second.bytes;
    step.combiner = message->second.combiner;
    step.axes |= message->second.axes;
  }
  return step;
}

bool Search::only_used_by(ValueId value, InstId user) const {
  auto users = users_.find(value.index);
  return uses_[value.index] == 1 && users != users_.end() && users->second.front() == user;
}

std::optional<Step> Search::step_before(const Step &step) const {
  InstId made = defining_inst(program_, step.from);
  const ir::Body &main = program_.main;
  if (!made.valid() || made.index < main.first.index || !only_used_by(step.from, step.inst) ||
      program_.insts[made].context != program_.insts[step.inst].context ||
      program_.insts[made].phase != program_.insts[step.inst].phase)
    return std::nullopt;
  return this->step(made);
}

// What is the same on all ranks, or a block, is determined by what the tensor means; addends and
// what merely differs are not.
bool Search::keeps_meaning(const Step &step) const {
  const ir::AttrValue *expert = program_.find(program_.insts[step.inst].attrs, "expert");
  return rules::redistributes(step.op) && !expert && step.axes;
}

bool Search::same_type(ValueId a, ValueId b) const {
  return result_.types[a.index] == result_.types[b.index] &&
         result_.shapes[a.index] == result_.shapes[b.index] &&
         result_.sizes[a.index] == result_.sizes[b.index];
}

WrittenKind Search::word(const Step &step, llvm::StringRef key, ValueId value,
                         ir::AxisId axis) const {
  const ir::AttrValue *stated = program_.find(program_.insts[step.inst].attrs, key);
  if (stated && stated->form == ir::AttrForm::Kind)
    return stated->as_kind();
  const ir::Type &type = program_.types[result_.types[value.index]];
  if (std::optional<unsigned> dim = type.dim(axis))
    return {
        .form = WrittenKind::Form::Shard, .kind = Kind::Varying, .dim = static_cast<int8_t>(*dim)};
  std::optional<Kind> kind = type.kind(axis);
  return kind ? WrittenKind{.kind = *kind} : WrittenKind{.form = WrittenKind::Form::Unknown};
}
WrittenKind Search::source(const Step &step, ir::AxisId axis) const {
  return word(step, "src", step.from, axis);
}
WrittenKind Search::target(const Step &step, ir::AxisId axis) const {
  return word(step, "dst", step.to, axis);
}

bool Search::is_declared(ValueId value) const {
  while (program_.values[value].alias_of.valid())
    value = program_.values[value].alias_of;
  return program_.find_param(value) != nullptr;
}

bool Search::says_more(const Step &step) const {
  constexpr std::string_view kSaid[] = {"axis", "group", "src", "dst", "op"};
  return llvm::any_of(program_.attrs[program_.insts[step.inst].attrs].attrs,
                      [&](const ir::Attr &attr) {
                        llvm::StringRef key = program_.strings[attr.key];
                        return !llvm::is_contained(kSaid, std::string_view(key.data(), key.size()));
                      });
}

// The statement of one op in our dialect that takes the operand of the first step and makes the
// result of the second. Kinds that neither states are left to the rules: a recording says none.
std::string Search::new_step(const Step &first, const Step &second, TransitionOp op) const {
  AxisSet axes = first.axes | second.axes;
  ir::MeshId mesh = program_.types[result_.types[first.from.index]].mesh();
  std::string names = ir::print_axes(program_, mesh, axes);
  if (axes.size() > 1)
    names = "(" + names + ")";
  const WrittenKind src = source(first, axes.first()), dst = target(second, axes.first());
  std::string attributes = "axis = " + names;
  if (states(first, "src") || !(is_plain(src, Kind::Varying) || is_unknown(src)))
    attributes += ", src = " + ir::print(src);
  if (!is_unknown(dst))
    attributes += ", dst = " + ir::print(dst);
  if (first.combiner)
    attributes +=
        fmt::format(", op = {}", ir::kCombinerWords[static_cast<size_t>(*first.combiner)]);
  if (ir::Phase phase = program_.insts[second.inst].phase; phase != ir::Phase::Unstated)
    attributes += fmt::format(", phase = {}", ir::kPhaseWords[static_cast<size_t>(phase)]);
  const bool over = first.in_place && second.in_place;
  std::string from = ir::print_value(program_, first.from);
  return fmt::format("{}{} = {}{}{} {}{} {{ {} }}", ir::print_value(program_, second.to),
                     over ? " aliases " + from : "", program_.is_own_dialect() ? "" : "spmd.",
                     rules::name_of(op), over ? "_" : "", over ? "mut " : "", from, attributes);
}

FixStep Search::fix_step(ValueId from, TransitionOp op, AxisSet axes, WrittenKind src,
                         WrittenKind dst) {
  const ir::Mesh &mesh = program_.meshes[program_.types[result_.types[from.index]].mesh()];
  ir::AxisRefs refs;
  for (ir::AxisId axis : axes)
    refs.refs.push_back({{}, mesh[axis].name});
  ir::AttrDict dict;
  dict.attrs = {{program_.strings.add("axis"), ir::AttrValue::axes(program_.axis_refs.add(refs))},
                {program_.strings.add("src"), ir::AttrValue::kind(src)},
                {program_.strings.add("dst"), ir::AttrValue::kind(dst)}};
  return {from, op, program_.attrs.add(std::move(dict)), {}, {}};
}

void Search::add(const Step &at, rules::Violation violation, std::string text, Rewrite rewrite,
                 FixStep step) {
  Fix fix{.form = Fix::Form::Drop, .text = std::move(text), .inst = at.inst};
  fix.steps.push_back(step);
  for (const auto &[inst, statement] : rewrite.statements)
    fix.replacement += statement;
  found_.push_back(
      {{.violation = std::move(violation), .place = Place::inst(at.inst), .reason = {}},
       std::move(fix),
       std::move(rewrite)});
}

// --- what two steps come to

void Search::pair(const Step &second) {
  std::optional<Step> first = step_before(second);
  if (!first || !keeps_meaning(*first) || !keeps_meaning(second))
    return;
  const bool in_place = first->in_place || second.in_place;
  AxisSet axes = first->axes | second.axes;
  bool placed = true, back = true; // no addends; each axis is at the end what it was
  for (ir::AxisId axis : axes) {
    const WrittenKind from = source(*first, axis);
    placed &= !is_plain(from, Kind::Partial) && !is_unknown(from);
    back &= from == target(second, axis);
  }
  bool sends = first->collective != Collective::None || second.collective != Collective::None;
  if (!in_place && same_type(first->from, second.to) && placed && back && sends) {
    add(second,
        rules::CancellingPair{name_of(*first), axes, bytes_text(sum(first->bytes, second.bytes))},
        fmt::format("drop both: {} is {}", ir::print_value(program_, second.to),
                    ir::print_value(program_, first->from)),
        {.statements = {{first->inst, ""}, {second.inst, ""}},
         .renamed = std::pair(second.to, first->from),
         .moved = {}},
        kept_as(first->from));
  } else if (first->axes == second.axes && axes.size() == 1) {
    slice(*first, second);
  } else {
    fuse(*first, second);
  }
}

void Search::slice(const Step &first, const Step &second) {
  if (second.op != TransitionOp::Convert || second.collective != Collective::None ||
      !is_shard(target(second, second.axes.first())) || says_more(first) || says_more(second) ||
      (first.in_place && is_declared(first.from)))
    return;
  auto put = [&](rules::Violation violation, TransitionOp op, WrittenKind src) {
    std::string made = new_step(first, second, op);
    add(second, std::move(violation), fmt::format("put `{}` in the place of both", made),
        {.statements = {{first.inst, ""}, {second.inst, made}}, .renamed = {}, .moved = {}},
        fix_step(first.from, op, first.axes, src, target(second, second.axes.first())));
  };
  std::optional<int64_t> bytes = first.bytes;
  const WrittenKind from = source(first, first.axes.first());
  const bool addends = from == WrittenKind{.kind = Kind::Partial} ||
                       (is_plain(from, Kind::Varying) && !states(first, "src"));
  if (first.op == TransitionOp::AllReduce && addends) {
    if (bytes) // what reduce_scatter sends is half of it
      bytes = *bytes - *bytes / 2;
    put(rules::ReduceThenSlice{name_of(first), first.axes, bytes_text(bytes)},
        TransitionOp::ReduceScatter, addend(first));
  } else if (first.op == TransitionOp::AllGather && is_shard(from) && !first.in_place) {
    if (bytes) // all_to_all sends as much of one block
      bytes = *bytes - *bytes / first.ranks;
    put(rules::GatherThenSlice{name_of(first), first.axes, bytes_text(bytes)},
        TransitionOp::AllToAll, from);
  }
}

void Search::fuse(const Step &first, const Step &second) {
  const bool sums = first.op == TransitionOp::AllReduce && second.op == TransitionOp::AllReduce;
  if (!sums || (first.axes & second.axes) || first.ranks < 2 || second.ranks < 2 ||
      first.in_place != second.in_place || first.combiner != second.combiner || says_more(first) ||
      says_more(second))
    return;
  auto same_ends = [&](const Step &step) {
    return std::pair(source(step, step.axes.first()), target(step, step.axes.first()));
  };
  const ir::Type &type = program_.types[result_.types[first.from.index]];
  if (same_ends(first) != same_ends(second) ||
      type.combiner(first.axes.first()) != type.combiner(second.axes.first()))
    return;
  std::optional<int64_t> bytes = sum(first.bytes, second.bytes);
  if (bytes) {
    int64_t whole = *second.bytes * second.ranks / (2 * (second.ranks - 1));
    bytes = *bytes - rules::ring_bytes(Collective::AllReduce, whole, first.ranks * second.ranks);
  }
  std::string made = new_step(first, second, TransitionOp::AllReduce);
  add(second, rules::FusableCollectives{name_of(first), first.axes, second.axes, bytes_text(bytes)},
      fmt::format("put `{}` in the place of both", made),
      {.statements = {{first.inst, ""}, {second.inst, made}}, .renamed = {}, .moved = {}},
      fix_step(first.from, TransitionOp::AllReduce, first.axes | second.axes, addend(first),
               target(second, second.axes.first())));
}

// --- a step by itself

// What a call in place works on is often a copy, made for that alone.
InstId Search::copy_before(const Step &step) const {
  InstId made = defining_inst(program_, step.from);
  if (!made.valid() || made.index < program_.main.first.index ||
      !only_used_by(step.from, step.inst))
    return {};
  const rules::OpDef *row = rules::resolve_op(program_, program_.insts[made].op).row;
  const bool copies = row && row->computes == rules::Computes::Identity &&
                      !program_.values[step.from].alias_of.valid() &&
                      program_.insts[made].result_count == 1 &&
                      tensors_of(program_, made).size() == 1 &&
                      !writer_[tensors_of(program_, made).front().index].valid();
  return copies ? made : InstId();
}

void Search::repeated(const Step &step) {
  const ir::Inst &inst = program_.insts[step.inst];
  InstId copy;
  ValueId from = step.from;
  if (step.in_place) {
    copy = copy_before(step);
    if (!copy.valid() || writer_[step.to.index].valid())
      return;
    from = tensors_of(program_, copy).front();
  }
  std::array<uint32_t, 5> key{inst.op.index, inst.attrs.index, from.index, inst.context.index,
                              static_cast<uint32_t>(inst.phase)};
  auto [first, fresh] = seen_.try_emplace(key, step);
  if (fresh || !same_type(first->second.to, step.to) || uses_[step.to.index] >= 2)
    return;
  ValueId kept = first->second.to;
  Rewrite rewrite{
      .statements = {{step.inst, ""}}, .renamed = std::pair(step.to, kept), .moved = {}};
  if (copy.valid())
    rewrite.statements.insert(rewrite.statements.begin(), {copy, ""});
  add(step, rules::RepeatedCollective{from, step.axes, bytes_text(step.bytes)},
      fmt::format("drop it: {} is {}", ir::print_value(program_, step.to),
                  ir::print_value(program_, kept)),
      std::move(rewrite), kept_as(kept));
}

// Whether an equation multiplies operands and sums over a dimension of them.
bool contracts(const rules::Equation &equation) {
  auto factors = [&](uint8_t first, uint8_t count) {
    rules::FactorSet found = 0;
    for (uint8_t i = first; i < first + count; ++i)
      if (equation.dims[i].form == rules::Dim::Form::Factor)
        found |= rules::FactorSet(1) << equation.dims[i].first;
    return found;
  };
  for (uint8_t s = 0; s < equation.sum_count; ++s) {
    const rules::Sum &sum = equation.sums[s];
    rules::FactorSet kept = 0, taken = 0;
    for (uint8_t r = 0; r < sum.result_count; ++r)
      kept |= factors(equation.results[sum.first_result + r].first_dim,
                      equation.results[sum.first_result + r].dim_count);
    for (uint8_t t = 0; t < sum.term_count; ++t) {
      const rules::Term &term = equation.terms[sum.first_term + t];
      for (uint8_t a = 0; a < term.atom_count && term.atom_count > 1; ++a)
        if (const rules::Atom &atom = equation.atoms[term.first_atom + a];
            atom.form == rules::Atom::Form::Ref)
          taken |=
              factors(equation.refs[atom.first].first_dim, equation.refs[atom.first].dim_count);
    }
    if (taken & ~kept)
      return true;
  }
  return false;
}

// Instructions that multiply and sum, which is what takes time.
unsigned Search::products_between(InstId first, InstId last) const {
  unsigned count = 0;
  for (uint32_t i = first.index; i < last.index; ++i) {
    const ir::Inst &inst = program_.insts[InstId{i}];
    const rules::OpDef *row = rules::resolve_op(program_, inst.op).row;
    if (row && contracts(row->equation.equation))
      ++count;
  }
  return count;
}

void Search::overlap(const Step &step) {
  const ir::Body &main = program_.main;
  auto users = users_.find(step.to.index);
  bool at_once = users != users_.end() && users->second.front().index == step.inst.index + 1;
  InstId made = defining_inst(program_, step.from);
  if (!at_once || !made.valid() || made.index < main.first.index ||
      (step.in_place && !only_used_by(step.from, step.inst))) // others read what it writes over
    return;
  unsigned count = products_between(InstId{made.index + 1}, step.inst);
  if (count == 0)
    return;
  add(step, rules::Overlappable{step.from, step.axes, count, bytes_text(step.bytes)},
      fmt::format("start it behind what makes {}", ir::print_value(program_, step.from)),
      {.statements = {}, .renamed = {}, .moved = step.inst}, kept_as(step.from));
}

std::vector<Saving> Search::run() {
  for (uint32_t i = program_.main.first.index; i < program_.main.last.index; ++i) {
    std::optional<Step> at = step(InstId{i});
    if (!at || (writer_[at->to.index].valid() && !at->in_place))
      continue;
    size_t before = found_.size();
    pair(*at);
    if (at->collective == Collective::None || found_.size() > before)
      continue;
    repeated(*at);
    if (found_.size() == before)
      overlap(*at);
  }
  return std::move(found_);
}

} // namespace

std::vector<Saving> savings_of(ir::Program &program, const CheckResult &result) {
  return Search(program, result).run();
}

} // namespace spmd::checker
