// Reads the attributes of a transition: axes, words, combiner, marks.
#include "rules/transitions/call.h"

#include "rules/violations/transitions.h"

#include "llvm/ADT/STLExtras.h"

namespace spmd::rules {
namespace {

using ir::AttrForm;
using ir::AttrValue;
using ir::WrittenKind;

// `R|I` and `?` state nothing of a transition.
std::optional<WrittenKind> word_of(const AttrValue &value) {
  if (value.form != AttrForm::Kind)
    return std::nullopt;
  WrittenKind word = value.as_kind();
  if (word.form == WrittenKind::Form::Either || word.form == WrittenKind::Form::Unknown)
    return std::nullopt;
  if (word.combiner == ir::Combiner::Avg)
    word.combiner = ir::Combiner::Sum;
  return word;
}

// One word for all axes, or one per axis; false if the attribute has another form.
bool read_words(const Application &app, llvm::StringRef key, size_t axis_count,
                llvm::SmallVectorImpl<std::optional<WrittenKind>> &words) {
  words.assign(axis_count, std::nullopt);
  const AttrValue *attr = app.attr(key);
  if (!attr)
    return true;
  if (attr->form == AttrForm::Kind) {
    words.assign(axis_count, word_of(*attr));
    return true;
  }
  if (attr->form != AttrForm::List)
    return false;
  const ir::AttrList &list = app.program.lists[attr->as<ir::AttrListId>()];
  if (list.items.size() != axis_count)
    return false;
  for (size_t i = 0; i < axis_count; ++i)
    words[i] = word_of(list.items[i]);
  return true;
}

std::optional<WrittenKind> plain(std::optional<ir::Kind> kind) {
  return kind ? std::optional(WrittenKind{.kind = *kind}) : std::nullopt;
}

// False, with a violation, if `op` is no combiner.
bool read_combiner(const Application &app, std::optional<ir::Combiner> &combiner, Outcome &out) {
  const AttrValue *attr = app.attr("op");
  if (!attr)
    return true;
  combiner = combiner_of(app.program, *attr);
  if (combiner)
    return true;
  out.violations.push_back(AttributeMismatch{"op", "sum, avg, max, min, prod, and, or or xor"});
  return false;
}

// What the operand is taken to be where an axis of the call has other ranks.
WrittenKind expected_source(const Application &app, const DefaultKinds &unstated) {
  const AttrValue *attr = app.attr("src");
  std::optional<WrittenKind> stated = attr ? word_of(*attr) : std::nullopt;
  return stated.value_or(WrittenKind{.kind = unstated.src.value_or(ir::Kind::Replicate)});
}

bool complain(Outcome &out, std::string attribute, std::string expected) {
  out.violations.push_back(AttributeMismatch{std::move(attribute), std::move(expected)});
  return false;
}

bool read_all_words(const Application &app, const SpellingKinds *spelled, TransitionCall &call,
                    Outcome &out) {
  llvm::SmallVector<std::optional<WrittenKind>, 2> src, dst;
  size_t count = call.axes.written.size();
  if (!read_words(app, "src", count, src))
    return complain(out, "src", "a kind, or one per axis");
  if (!read_words(app, "dst", count, dst))
    return complain(out, "dst", "a kind, or one per axis");
  for (size_t i = 0; i < count; ++i) {
    StatedKinds words{src[i], dst[i]};
    if (spelled && !words.src)
      words.src = plain(spelled->src);
    if (spelled && !words.dst)
      words.dst = plain(spelled->dst);
    if (!words.dst && !call.unstated->dst)
      return complain(out, "dst", "a kind, or one per axis");
    call.words.push_back(words);
  }
  return true;
}

} // namespace

std::optional<ir::Combiner> combiner_of(const ir::Program &program, const AttrValue &op) {
  if (op.form != AttrForm::String)
    return std::nullopt;
  llvm::StringRef text = program.strings[op.as<ir::StringId>()];
  const auto *found = llvm::find(ir::kCombinerWords, std::string_view(text.data(), text.size()));
  return found == ir::kCombinerWords.end()
             ? std::nullopt
             : std::optional(static_cast<ir::Combiner>(found - ir::kCombinerWords.begin()));
}

// The words of a spelling, of which some have several meanings, chosen by attribute `to`.
static bool read_spelling(const Application &app, const SpellingKinds *&spelled, Outcome &out) {
  std::string_view spelling = app.op.alias->spelling, to;
  const AttrValue *attr = app.attr("to");
  if (attr && attr->form == AttrForm::String)
    to = app.program.strings[attr->as<ir::StringId>()];
  spelled = spelled_words(spelling, to);
  bool named = llvm::any_of(all_spelled_words(),
                            [&](const SpellingKinds &row) { return row.spelling == spelling; });
  return spelled || !named || complain(out, "to", "varying, reduced or unreduced");
}

llvm::SmallVector<uint32_t, 2> operands_of(const Application &app) {
  llvm::SmallVector<uint32_t, 2> operands;
  for (size_t i = 0; i < app.slots.size(); ++i) {
    const Slot &slot = app.slots[i];
    bool ignored = i < app.op.order.size() && app.op.order[i] == ResolvedOp::kIgnored;
    if (slot.name.valid() || ignored)
      continue;
    for (unsigned k = 0; k < slot.count; ++k)
      operands.push_back(static_cast<uint32_t>(slot.first + k));
  }
  return operands;
}

std::optional<TransitionCall> read_call(const Application &app, Outcome &out) {
  TransitionCall call;
  call.op = app.op.transition;
  call.unstated = &unstated_words(call.op);
  const SpellingKinds *spelled = nullptr;
  if (app.op.alias && !read_spelling(app, spelled, out))
    return std::nullopt;
  if (spelled) {
    call.combiner = spelled->combiner;
    call.op = spelled->op;
    call.unstated = &unstated_words(call.op);
  }
  if (!read_combiner(app, call.combiner, out))
    return std::nullopt;
  std::optional<CallAxes> axes = resolve_axes(app, expected_source(app, *call.unstated), out);
  if (!axes)
    return std::nullopt;
  call.axes = std::move(*axes);
  if (!read_all_words(app, spelled, call, out))
    return std::nullopt;
  const AttrValue *expert = app.attr("expert");
  call.marked =
      (expert && expert->form == AttrForm::Bool && expert->as_bool()) || (spelled && spelled->dst);
  return call;
}

} // namespace spmd::rules
