// Instructions without findings are typed once per distinct operands and statements, and so
// are declarations, outputs and gradients of values. What depends on the place in the program is asked
// each time: what is stale, what was gathered, the root of the gradients. Words that an instruction
// leaves out are told for each place.
#include "checker/walk/walk.h"

#include "rules/ops/registry.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::ValueId;

namespace {

// Marks in a key what is no number of a value: above all of these.
enum Mark : uint32_t { kLiteral = 0xFFFF'FFF0, kList, kGap, kEnd, kName, kWritten };

uint64_t two_words(const uint32_t *at) {
  uint64_t both;
  std::memcpy(&both, at, sizeof both);
  return both;
}

// Keys are compared at every instruction: two words at a time. `size` is even.
bool equal_keys(const uint32_t *a, const uint32_t *b, size_t size) {
  uint64_t differ = 0;
  for (const uint32_t *end = a + size; a != end; a += 2, b += 2)
    differ |= two_words(a) ^ two_words(b);
  return differ == 0;
}

} // namespace

bool InstructionCache::has_key(const Entry &entry) const {
  return entry.key_size == key_.size() &&
         equal_keys(key_.data(), keys_.data() + entry.key, key_.size());
}

uint32_t &InstructionCache::slot() {
  return table_.find(ir::hash_bytes(key_.data(), key_.size() * sizeof(uint32_t)),
                     [&](uint32_t i) { return has_key(entries_[i]); });
}

InstructionCache::Entry *InstructionCache::find() {
  uint32_t at = order_.likely();
  if (at == ir::Successors::kNone || !has_key(entries_[at]))
    at = slot();
  if (at == ir::IndexTable::kEmpty)
    return nullptr;
  order_.meet(at);
  return &entries_[at];
}

void InstructionCache::add(Entry entry, llvm::ArrayRef<uint32_t> results) {
  const auto index = static_cast<uint32_t>(entries_.size());
  slot() = index;
  table_.inserted();
  entry.key = static_cast<uint32_t>(keys_.size());
  entry.key_size = static_cast<uint32_t>(key_.size());
  keys_.insert(keys_.end(), key_.begin(), key_.end());
  entry.results = static_cast<uint32_t>(results_.size());
  results_.insert(results_.end(), results.begin(), results.end());
  entries_.push_back(entry);
  order_.meet(index);
}

uint32_t InstructionCache::number_of(ValueId value, const rules::Arg &known) {
  uint64_t hash = ir::mix(ir::mix(known.type.index, known.shape.index), known.sizes.index);
  uint32_t &at = numbers_.find(hash, [&](uint32_t i) { return known_[i] == known; });
  if (at == ir::IndexTable::kEmpty) {
    at = static_cast<uint32_t>(known_.size());
    numbers_.inserted();
    known_.push_back(known);
  }
  return known_as_[value.index] = at;
}

// All that typing an instruction depends on, its place in the program apart. Notes what it writes.
Walk::Surroundings Walk::make_key(const ir::Inst &inst) {
  Surroundings found;
  auto &key = state_.cache.key();
  const size_t most = 4 + 4 * size_t(inst.result_count);
  llvm::ArrayRef<ir::Operand> operands = program_.blocks[inst.operands];
  key.resize_for_overwrite(most + 4 * operands.size());
  uint32_t *at = key.data();
  targets_.clear();
  const bool open = undecided_.any();
  bool matters = inst.result_count >= 1u << 16; // which has no place in the key
  auto add_value = [&](ValueId value, bool written) __attribute__((always_inline)) {
    matters |= state_.storage.is_stale(value) || (open && undecided_.row(value) != 0);
    *at++ = state_.number(value);
    if (written) {
      targets_.push_back(value);
      *at++ = kWritten;
    }
  };
  *at++ = inst.op.index;
  *at++ = inst.attrs.index;
  *at++ = inst.context.index | inst.result_count << 16;
  if (inst.result_count) {
    llvm::ArrayRef<ir::Value> values =
        program_.values.all().slice(inst.first_result.index, inst.result_count);
    for (const ir::Value &value : values) {
      found.gradients |= value.grad_of.valid();
      bool claims = value.declared.valid() || value.global_shape.valid();
      *at++ = value.shape.index;
      *at++ = static_cast<uint32_t>(value.requires_grad) << 1 | claims;
      if (claims) {
        *at++ = value.declared.index;
        *at++ = value.global_shape.index;
      }
    }
  }
  bool out = false;
  for (const ir::Operand &operand : operands) {
    switch (operand.form) {
    case ir::Operand::Form::Value:
      add_value(operand.as_value(), operand.mut || out);
      break;
    case ir::Operand::Form::Literal: {
      const ir::AttrValue &literal = program_.literals[operand.index];
      *at++ = kLiteral;
      *at++ = static_cast<uint32_t>(literal.form);
      *at++ = static_cast<uint32_t>(literal.bits);
      *at++ = static_cast<uint32_t>(literal.bits >> 32);
      break;
    }
    case ir::Operand::Form::Name:
      *at++ = kName;
      *at++ = operand.index;
      out = program_.strings[operand.as_name()] == "out";
      continue;
    case ir::Operand::Form::List: {
      llvm::ArrayRef<ir::Operand> members = program_.blocks[operand.as_list()];
      auto done = static_cast<size_t>(at - key.data());
      key.resize_for_overwrite(key.size() + 2 * members.size());
      at = key.data() + done;
      *at++ = kList;
      for (const ir::Operand &member : members) {
        if (member.is_value())
          add_value(member.as_value(), operand.mut || out);
        else
          *at++ = kGap;
      }
      *at++ = kEnd;
      break;
    }
    }
    out = false;
  }
  if ((at - key.data()) % 2)
    *at++ = kEnd;
  key.truncate(static_cast<size_t>(at - key.data()));
  found.matters = matters;
  return found;
}

// True if an instruction like this one is in the cache.
bool Walk::settle(InstId id) {
  before_.reset();
  if (!state_.caches || !conditions_.empty())
    return false;
  const ir::Inst &inst = program_.insts[id];
  const Surroundings around = make_key(inst);
  if (around.matters)
    return false;
  InstructionCache::Entry *entry = state_.cache.find();
  if (!entry) {
    before_ = counted();
    return false;
  }
  ++state_.trail->stats.ops;
  undecided_.set_result_rows({});
  if (entry->infers)
    for (const rules::InferredWord &word : entry->outcome->inferred)
      state_.trail->inferred.push_back({id, word});
  if (targets_.empty() || overwrite(id, inst, *entry)) {
    state_.trail->stats.silent += entry->silent;
    ValueId result = inst.first_result;
    for (uint32_t number : state_.cache.results(*entry, inst.result_count)) {
      const rules::Arg &known = state_.cache.known(number);
      result_.types[result.index] = known.type;
      result_.shapes[result.index] = known.shape;
      result_.sizes[result.index] = known.sizes;
      state_.cache.set_number(result, number);
      state_.storage.define(result);
      ++result.index;
    }
  }
  if (around.gradients || entry->transition)
    gradients_.meet(id, inst, entry->transition);
  return true;
}

// What an instruction of the cache writes. False if that is left with another type; its results are typed
// then.
bool Walk::overwrite(InstId id, const ir::Inst &inst, InstructionCache::Entry &entry) {
  using Writes = InstructionCache::Entry::Writes;
  if (inst.result_count == 1 && !undecided_.any()) {
    if (entry.writes == Writes::Unasked)
      entry.writes = keeps_types(inst, *entry.outcome) ? Writes::Keep : Writes::Change;
    if (entry.writes == Writes::Keep) {
      for (ValueId target : targets_)
        state_.storage.write(target, id);
      return true;
    }
  }
  llvm::SmallVector<AxisSet, 4> unknown_axes(inst.result_count);
  effects_.write(id, inst, *entry.outcome, unknown_axes);
  if (llvm::all_of(unknown_axes, [](AxisSet axes) { return axes.empty(); }))
    return true;
  type_results(id, inst, *entry.outcome, unknown_axes);
  return false;
}

// True if the one result is of the type that each operand has that is written.
bool Walk::keeps_types(const ir::Inst &inst, const rules::Outcome &outcome) {
  return llvm::all_of(targets_, [&](ValueId target) {
    return effects_.left_with(target, inst.context, program_.types[outcome.types[0]]).empty();
  });
}

// After typing: the instruction is kept if it has no finding, and if neither its place nor
// which values its operands are had a part in it.
void Walk::note_cached(const ir::Inst &inst, const rules::ResolvedOp &op,
                       const rules::Outcome &outcome) {
  Counts now = counted();
  uint64_t silent = now.silent - before_->silent;
  before_->silent = now.silent;
  before_->words += outcome.inferred.size(); // they are told again
  bool bound = op.form == rules::OpForm::Unknown || op.boundary == rules::Boundary::Grad ||
               op.boundary == rules::Boundary::Backward || op.boundary == rules::Boundary::Step ||
               op.boundary == rules::Boundary::Store;
  if (bound || *before_ != now)
    return;
  llvm::SmallVector<uint32_t, 4> results;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ValueId result = inst.result(i);
    if (undecided_.row(result) != 0)
      return;
    results.push_back(state_.number(result));
  }
  state_.cache.add({.outcome = &outcome,
                    .silent = silent,
                    .transition = !op.transition.empty(),
                    .infers = !outcome.inferred.empty()},
                   results);
}

// A declaration like one without findings.
void Walk::declare(uint32_t index) {
  const ir::Param &param = program_.params[index];
  const ir::Value &value = program_.values[param.value];
  PlaceCache &places = place_cache_;
  places.kinds.resize(program_.params.size(), InstructionCache::kNone);
  if (!state_.caches || !param.grad.sync.empty() || value.alias_of.valid())
    return judge_declaration(index);
  uint32_t kind = places.params.number(
      {static_cast<uint32_t>(param.role), value.declared.index, value.shape.index,
       value.global_shape.index, value.mesh.index, static_cast<uint32_t>(value.requires_grad),
       param.grad.stated, param.grad.grad.index, param.grad.step.index});
  places.kinds[index] = kind;
  if (kind == places.declared.size()) {
    state_.quiet = true;
    judge_declaration(index);
    places.declared.push_back({index, state_.number(param.value), state_.quiet});
    return;
  }
  const PlaceCache::Declared &like = places.declared[kind];
  if (!like.quiet)
    return judge_declaration(index);
  state_.learn(param.value, state_.cache.known(like.known));
  state_.cache.set_number(param.value, like.known);
  state_.storage.define(param.value);
  state_.kept[param.value.index] = state_.kept[program_.params[like.index].value.index];
  contracts_.declare_like(index, like.index);
}

// An output like one without findings. What a loss says of scales, and what no contract
// states, depends on more.
void Walk::output(uint32_t index) {
  const ir::Output &out = program_.outputs[index];
  if (!state_.caches || undecided_.any())
    return judge_output(index);
  PlaceCache &places = place_cache_;
  uint32_t kind = InstructionCache::kNone;
  bool grad = out.role == ir::OutputRole::Grad, alike = out.role != ir::OutputRole::Loss;
  if (std::optional<uint32_t> param = grad ? contracts_.boundary().param_of(out.of) : std::nullopt)
    kind = places.kinds[*param];
  if (grad)
    alike = kind != InstructionCache::kNone &&
            (program_.params[places.declared[kind].index].grad.stated || out.declared.valid());
  if (!alike)
    return judge_output(index);
  uint32_t at = places.outputs.number(
      {static_cast<uint32_t>(out.role), state_.number(out.value), out.declared.index,
       out.of.valid() ? state_.number(out.of) : uint32_t(InstructionCache::kNone), kind});
  if (at < places.quiet_outputs.size()) {
    if (!places.quiet_outputs[at])
      judge_output(index);
    return;
  }
  state_.quiet = true;
  judge_output(index);
  places.quiet_outputs.push_back(state_.quiet);
}

} // namespace spmd::checker
