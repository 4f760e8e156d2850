// Instructions of which nothing is said are typed once per distinct operands and statements. What
// depends on the place in the program is asked each time: storage, and gradients in the program.
#include "checker/walk.h"

#include "rules/registry.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <bit>

namespace spmd::checker {

using ir::AxisSet;
using ir::InstId;
using ir::ValueId;

namespace {

// Marks in a key what is no number of a value: above all of these.
enum Mark : uint32_t { kLiteral = 0xFFFF'FFF0, kList, kGap, kEnd, kName };

// A key is hashed at every instruction: one multiplication per two words. `size` is even.
uint64_t hash_key(const uint32_t *key, size_t size) {
  uint64_t hash = size;
  for (size_t i = 0; i < size; i += 2)
    hash = (std::rotl(hash, 23) ^ (uint64_t(key[i + 1]) << 32 | key[i])) * 0x9E37'79B9'7F4A'7C15;
  return hash ^ hash >> 32;
}

} // namespace

uint32_t &Settled::slot() {
  const uint32_t *words = key_.data();
  const size_t size = key_.size();
  return table_.find(hash_key(words, size), [&](uint32_t i) {
    const Entry &entry = entries_[i];
    return entry.key_size == size && std::equal(words, words + size, keys_.data() + entry.key);
  });
}

const Settled::Entry *Settled::find() {
  uint32_t at = slot();
  return at == ir::IndexTable::kEmpty ? nullptr : &entries_[at];
}

void Settled::add(Entry entry, llvm::ArrayRef<uint32_t> results) {
  slot() = static_cast<uint32_t>(entries_.size());
  table_.inserted();
  entry.key = static_cast<uint32_t>(keys_.size());
  entry.key_size = static_cast<uint32_t>(key_.size());
  keys_.insert(keys_.end(), key_.begin(), key_.end());
  entry.results = static_cast<uint32_t>(results_.size());
  results_.insert(results_.end(), results.begin(), results.end());
  entries_.push_back(entry);
}

uint32_t Settled::number_of(const rules::Arg &known) {
  uint64_t hash = ir::mix(ir::mix(known.type.index, known.shape.index), known.sizes.index);
  uint32_t &at = numbers_.find(hash, [&](uint32_t i) { return known_[i] == known; });
  if (at == ir::IndexTable::kEmpty) {
    at = static_cast<uint32_t>(known_.size());
    numbers_.inserted();
    known_.push_back(known);
  }
  return at;
}

// All that typing an instruction depends on, its place in the program apart.
Walk::Surroundings Walk::make_key(const ir::Inst &inst) {
  Surroundings found;
  auto &key = settled_.key();
  const size_t most = 4 + 4 * size_t(inst.result_count);
  llvm::ArrayRef<ir::Operand> operands = program_.blocks[inst.operands];
  key.resize_for_overwrite(most + 4 * operands.size());
  uint32_t *at = key.data();
  auto number = [&](ValueId value) {
    found.matters |= storage_.overtaken_by(value).valid() || open_.row(value) != 0;
    return settled_.number(value, known(value));
  };
  *at++ = inst.op.index;
  *at++ = inst.attrs.index;
  *at++ = inst.context.index | inst.result_count << 16;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    const ir::Value &value = program_.values[inst.result(i)];
    found.gradients |= value.grad_of.valid();
    bool claims = value.declared.valid() || value.global_shape.valid();
    *at++ = value.shape.index;
    *at++ = static_cast<uint32_t>(value.requires_grad) << 1 | claims;
    if (claims) {
      *at++ = value.declared.index;
      *at++ = value.global_shape.index;
    }
  }
  for (const ir::Operand &operand : operands) {
    found.writes |= operand.mut;
    switch (operand.form) {
    case ir::Operand::Form::Value:
      *at++ = number(operand.as_value());
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
      found.writes |= program_.strings[operand.as_name()] == "out";
      *at++ = kName;
      *at++ = operand.index;
      break;
    case ir::Operand::Form::List: {
      llvm::ArrayRef<ir::Operand> members = program_.blocks[operand.as_list()];
      auto done = static_cast<size_t>(at - key.data());
      key.resize_for_overwrite(key.size() + members.size());
      at = key.data() + done;
      *at++ = kList;
      for (const ir::Operand &member : members) {
        found.writes |= member.mut;
        *at++ = member.is_value() ? number(member.as_value()) : uint32_t(kGap);
      }
      *at++ = kEnd;
      break;
    }
    }
  }
  if ((at - key.data()) % 2)
    *at++ = kEnd;
  key.truncate(static_cast<size_t>(at - key.data()));
  found.matters |= inst.result_count >= 1u << 16; // which has no place in the key
  return found;
}

// True if an instruction like this one was settled before; then this one is, too.
bool Walk::settle(InstId id) {
  before_.reset();
  if (edit_ || !recording_ || mover || unites_ || !conditions_.empty() || !options_.memoise)
    return false;
  const ir::Inst &inst = program_.insts[id];
  const Surroundings around = make_key(inst);
  if (around.matters)
    return false;
  const Settled::Entry *entry = settled_.find();
  if (!entry) {
    before_ = said();
    return false;
  }
  ++trail_->stats.ops;
  rows_.clear();
  bool spoils = false;
  if (around.writes) {
    llvm::SmallVector<AxisSet, 4> spoilt(inst.result_count);
    mutation(id, inst, *entry->outcome, spoilt);
    spoils = llvm::any_of(spoilt, [](AxisSet axes) { return !axes.empty(); });
    if (spoils)
      type_results(id, inst, *entry->outcome, spoilt);
  }
  if (!spoils) {
    trail_->stats.silent += entry->silent;
    ValueId result = inst.first_result;
    for (uint32_t number : settled_.results(*entry, inst.result_count)) {
      learn(result, settled_.known(number));
      settled_.set_number(result, number);
      storage_.define(result);
      ++result.index;
    }
  }
  if (around.gradients || entry->transition)
    gradients_and_moves(id, inst, entry->transition);
  return true;
}

// After typing: the instruction is settled if nothing was said of it, and if neither its place nor
// which values its operands are had a part in it.
void Walk::note_settled(const ir::Inst &inst, const rules::ResolvedOp &op,
                        const rules::Outcome &outcome) {
  Said now = said();
  uint64_t silent = now.silent - before_->silent;
  before_->silent = now.silent;
  bool bound = op.form == rules::OpForm::Unknown || op.boundary == "grad" ||
               op.boundary == "backward" || op.boundary == "step" || op.boundary == "store";
  if (bound || *before_ != now || !outcome.inferred.empty())
    return;
  llvm::SmallVector<uint32_t, 4> results;
  for (uint32_t i = 0; i < inst.result_count; ++i) {
    ValueId result = inst.result(i);
    if (open_.row(result) != 0)
      return;
    results.push_back(settled_.number(result, known(result)));
  }
  settled_.add({.outcome = &outcome, .silent = silent, .transition = !op.transition.empty()},
               results);
}

} // namespace spmd::checker
