// Positions and names of operands against the operands of a row. A spelling's order comes first,
// then names; what is left over is a random state, a number that says nothing about kinds, or a
// mismatch.
#include "rules/bind.h"

#include "rules/ops/table.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/SmallVector.h"

#include <cmath>
#include <limits>

namespace spmd::rules {

namespace {

// The keyword of a state of random numbers, as frameworks call it.
constexpr llvm::StringLiteral kGeneratorNames[] = {"rng", "generator", "state"};

using Form = Slot::Form;

// What frameworks call an operand, and the names that our rows give it, the likeliest first.
struct OperandWord {
  llvm::StringRef word;
  llvm::StringRef ours;
};
constexpr OperandWord kOperandWords[] = {
    {"weight", "w t"},     {"bias", "b k c"},    {"mask", "m"},        {"attn_mask", "m"},
    {"index", "i"},        {"indices", "i"},     {"target", "t b"},    {"query", "q"},
    {"key", "k"},          {"value", "v s"},     {"exponent", "b"},    {"other", "b y"},
    {"running_mean", "u"}, {"running_var", "v"}, {"grad_output", "g"}, {"condition", "c"},
    {"src", "s"},          {"source", "s"},      {"offs", "o"},        {"end", "b j"},
    {"mat2", "b"},         {"vec", "b"},         {"min", "lo"},        {"max", "hi"},
    {"start", "i"},
};

Slot literal(ir::AttrValue value) {
  Slot slot;
  slot.form = Form::Literal;
  slot.literal = value;
  return slot;
}

class Binder {
public:
  Binder(const Application &app, const Equation &equation, OperandMismatch &problem)
      : app_(app), equation_(equation), row_(row_of(app, equation)), problem_(problem) {
    read_order();
  }

  std::optional<Binding> run() {
    unsigned position = 0;
    for (const Slot &slot : app_.slots)
      if (!slot.name.valid() && !put_positional(slot, position++))
        return std::nullopt;
    for (const Slot &slot : app_.slots)
      if (slot.name.valid())
        put_named(slot);
    put_attribute();
    if (!complete())
      return std::nullopt;
    return binding_;
  }

private:
  // The order of the spelling is written for its own row; for a row chosen instead it is read by
  // name.
  void read_order() {
    if (!app_.op.row || &app_.op.row->equation.equation == &equation_) {
      order_.assign(app_.op.order.begin(), app_.op.order.end());
      return;
    }
    if (!app_.op.alias)
      return;
    order_ = rules::read_order(app_.op.alias->order, equation_);
  }

  bool put_positional(const Slot &slot, unsigned position) {
    if (slot.form == Form::Missing)
      return true;
    if (!order_.empty() && position < order_.size())
      return put_ordered(slot, order_[position]);
    if (order_.empty() && position < equation_.operand_count && !is_attribute(slot, position))
      return put(slot, position);
    return put_extra(slot);
  }
  // A number where tensors may be listed is an attribute by position (the `dim` of a slice).
  bool is_attribute(const Slot &slot, unsigned operand) const {
    const OperandDecl &decl = equation_.operands[operand];
    return slot.form == Form::Literal && decl.optional && decl.list != ListForm::Single;
  }
  bool put_ordered(const Slot &slot, uint8_t place) {
    if (place == ResolvedOp::kState)
      binding_.generator = &slot;
    if (place == ResolvedOp::kIgnored)
      binding_.ignored.push_back(&slot);
    return place == ResolvedOp::kIgnored || place == ResolvedOp::kState || put(slot, place);
  }
  bool put(const Slot &slot, unsigned operand) {
    const OperandDecl &decl = equation_.operands[operand];
    if (slot.form == Form::List && decl.list == ListForm::Single && slot.count != 1)
      return mismatch("one tensor as operand " + std::string(decl.name), "a list is given");
    binding_.slots[operand] = &slot;
    return true;
  }
  // No operand of the row is left for it.
  bool put_extra(const Slot &slot) {
    bool of_framework = app_.op.alias || (app_.op.row && row_ != app_.op.row);
    bool is_tensor = slot.form == Form::Tensor || (slot.form == Form::List && slot.count);
    if (!is_tensor && (of_framework || slot.form == Form::List))
      return true;
    if (slot.form == Form::Tensor && equation_.has_generator && !binding_.generator) {
      binding_.generator = &slot;
      return true;
    }
    return mismatch(expected(),
                    std::to_string(given()) + (given() == 1 ? " is given" : " are given"));
  }

  void put_named(const Slot &slot) {
    llvm::StringRef name = app_.program.strings[slot.name];
    if (slot.form == Form::Missing)
      return;
    if (equation_.has_generator && llvm::is_contained(kGeneratorNames, name)) {
      binding_.generator = &slot;
      return;
    }
    if (name == "input" || name == "self") {
      put_if_free(slot, 0);
      return;
    }
    if (put_if_free(slot, equation_.find_operand({name.data(), name.size()})))
      return;
    for (const OperandWord &row : kOperandWords)
      if (row.word == name)
        put_first_free(slot, row.ours);
  }
  void put_first_free(const Slot &slot, llvm::StringRef names) {
    llvm::SmallVector<llvm::StringRef, 3> words;
    names.split(words, ' ');
    for (llvm::StringRef word : words)
      if (put_if_free(slot, equation_.find_operand({word.data(), word.size()})))
        return;
  }
  bool put_if_free(const Slot &slot, unsigned operand) {
    if (operand >= equation_.operand_count || binding_.slots[operand])
      return false;
    binding_.slots[operand] = &slot;
    return true;
  }

  // A number that the framework passes as an attribute. Only whether it is 0 matters to kinds, and
  // whether it is finite to scales.
  void put_attribute() {
    static const Slot zero = literal(ir::AttrValue::integer(0));
    static const Slot other = literal(ir::AttrValue::integer(1));
    static const Slot infinite =
        literal(ir::AttrValue::number(std::numeric_limits<double>::infinity()));
    if (!row_ || row_->from_attr.empty())
      return;
    auto [name, key] = llvm::StringRef(row_->from_attr.data(), row_->from_attr.size()).split(' ');
    unsigned operand = equation_.find_operand({name.data(), name.size()});
    if (binding_.slots[operand])
      return;
    const ir::AttrValue *value = app_.attr(key);
    if (value && is_infinite(literal(*value)))
      binding_.slots[operand] = &infinite;
    else
      binding_.slots[operand] = !value || is_zero(literal(*value)) ? &zero : &other;
  }

  bool complete() {
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      const OperandDecl &decl = equation_.operands[i];
      const Slot *slot = binding_.slots[i];
      if (slot && slot->form == Form::List && slot->count == 0 && !decl.optional)
        return mismatch("at least one tensor as operand " + std::string(decl.name),
                        "the list is empty");
      if (!slot && !decl.optional)
        return mismatch(expected(), "operand " + std::string(decl.name) + " is missing");
    }
    return true;
  }

  std::string expected() const {
    if (equation_.operand_count == 0)
      return "no operands";
    std::string text;
    for (unsigned i = 0; i < equation_.operand_count; ++i) {
      const OperandDecl &decl = equation_.operands[i];
      text += (i ? ", " : "") + std::string(decl.name) + (decl.optional ? " (optional)" : "") +
              (decl.list == ListForm::Single ? "" : " (a list, written `[%a, %b]`)");
    }
    return (equation_.operand_count == 1 ? "operand " : "operands ") + text;
  }
  unsigned given() const {
    unsigned count = 0;
    for (const Slot &slot : app_.slots)
      count += !slot.name.valid() && slot.form != Form::Missing;
    return count;
  }
  bool mismatch(std::string expected, std::string found) {
    problem_ = {std::move(expected), std::move(found)};
    return false;
  }

  const Application &app_;
  const Equation &equation_;
  const OpDef *row_;
  OperandMismatch &problem_;
  Binding binding_;
  llvm::SmallVector<uint8_t, 6> order_;
};

} // namespace

llvm::SmallVector<uint8_t, 6> read_order(std::string_view order, const Equation &equation) {
  llvm::SmallVector<llvm::StringRef, 8> words;
  llvm::StringRef(order).split(words, ' ', -1, false);
  llvm::SmallVector<uint8_t, 6> positions;
  for (llvm::StringRef word : words) {
    word.consume_back("...");
    unsigned operand = equation.find_operand({word.data(), word.size()});
    positions.push_back(operand < equation.operand_count ? static_cast<uint8_t>(operand)
                        : word == "~"                    ? ResolvedOp::kState
                                                         : ResolvedOp::kIgnored);
  }
  return positions;
}

const OpDef *row_of(const Application &app, const Equation &equation) {
  if (app.op.row && &app.op.row->equation.equation == &equation)
    return app.op.row;
  const auto *at = reinterpret_cast<const char *>(&equation);
  for (llvm::ArrayRef<OpDef> family : op_families())
    if (at >= reinterpret_cast<const char *>(family.begin()) &&
        at < reinterpret_cast<const char *>(family.end()))
      return &family[static_cast<size_t>(at - reinterpret_cast<const char *>(family.begin())) /
                     sizeof(OpDef)];
  return nullptr;
}

std::optional<Binding> bind_operands(const Application &app, const Equation &equation,
                                     OperandMismatch &problem) {
  return Binder(app, equation, problem).run();
}

bool is_infinite(const Slot &slot) {
  return slot.form == Form::Literal && slot.literal.form == ir::AttrForm::Float &&
         std::isinf(slot.literal.as_number());
}

bool is_zero(const Slot &slot) { return slot.form == Form::Literal && is_zero(slot.literal); }

bool is_zero(const ir::AttrValue &value) {
  switch (value.form) {
  case ir::AttrForm::Integer:
    return value.as_integer() == 0;
  case ir::AttrForm::Float:
    return value.as_number() == 0;
  case ir::AttrForm::Bool:
    return !value.as_bool();
  default:
    return false;
  }
}

} // namespace spmd::rules
