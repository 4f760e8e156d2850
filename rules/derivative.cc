// Writes the equation of a derived row as text and reads it as any other equation is read.
#include "rules/derivative.h"

#include "rules/bind.h"
#include "rules/ops/registry.h"
#include "rules/shapes/attrs.h"
#include "rules/shapes/shape_rule.h"
#include "rules/violations/operands.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace spmd::rules {

namespace {

constexpr llvm::StringLiteral kPrefix = "vjp.";

std::string_view view(llvm::StringRef text) { return {text.data(), text.size()}; }

class Writer {
public:
  Writer(const OpDef &row, unsigned operand, uint32_t results)
      : row_(row), equation_(row.equation.equation), operand_(operand), results_(results) {}

  // Empty if the operand has no gradient.
  std::string write() {
    std::string sum;
    for (unsigned s = 0; s < equation_.sum_count; ++s)
      for (unsigned r = 0; r < equation_.sums[s].result_count; ++r)
        if (unsigned result = equation_.sums[s].first_result + r; results_ >> result & 1)
          terms(equation_.sums[s], result, sum);
    if (sum.empty())
      return sum;
    for (unsigned i = 0; i < equation_.operand_count; ++i)
      if (!mentioned_[i])
        sum += fmt::format(", {}", shape_only(i));
    const Ref *own = first_ref(operand_);
    return fmt::format("{} -> {}", sum, own->has_dims ? dims(*own) : "r");
  }

private:
  static bool is_value(const Ref &ref) {
    return ref.role == RefRole::Value && ref.index == kNoFactor && ref.operand != kGenerator;
  }
  const Ref *first_ref(unsigned operand) const {
    for (unsigned r = 0; r < equation_.ref_count; ++r)
      if (equation_.refs[r].operand == operand)
        return &equation_.refs[r];
    return nullptr;
  }

  // A product is differentiated by each of its mentions of the operand.
  void terms(const Sum &sum, unsigned result, std::string &out) {
    for (unsigned t = sum.first_term; t < unsigned(sum.first_term) + sum.term_count; ++t) {
      const Term &term = equation_.terms[t];
      for (unsigned a = 0; a < term.atom_count; ++a) {
        const Atom &atom = equation_.atoms[term.first_atom + a];
        for (unsigned r = 0; atom.form != Atom::Form::Integer && r < atom.count; ++r) {
          const Ref &ref = equation_.refs[atom.first + r];
          if (ref.operand == operand_ && is_value(ref))
            out += product(term, a, result, out.empty());
        }
      }
    }
  }
  std::string product(const Term &term, unsigned at, unsigned result, bool first) {
    std::string text = term.negative ? (first ? "- " : " - ") : (first ? "" : " + ");
    text += gradient(result);
    for (unsigned a = 0; a < term.atom_count; ++a) {
      const Atom &atom = equation_.atoms[term.first_atom + a];
      bool is_own = a == at;
      if (atom.form == Atom::Form::Integer)
        text += fmt::format(" * {}", atom.first);
      else if (atom.form == Atom::Form::Function)
        // The derivative of a reciprocal has two of its scale.
        for (int twice = is_own && row_.function_scale == OpDef::FunctionScale::Inverse; twice >= 0;
             --twice)
          text += fmt::format(" * {}", function(atom));
      else if (!is_own)
        text += fmt::format(" * {}", print(equation_.refs[atom.first], true));
      else if (equation_.operands[operand_].list == ListForm::Multiplied)
        text += " * *before? * *after?";
    }
    for (unsigned f = 0; f < equation_.factor_count; ++f)
      if (term.divisors >> f & 1)
        text += fmt::format(" /|{}|", equation_.factors[f]);
    if (term.divisors >> kRestFactor & 1)
      text += " /|...|";
    return text;
  }
  std::string function(const Atom &atom) {
    std::string text = "f(";
    for (unsigned r = 0; r < atom.count; ++r)
      text += (r ? ", " : "") + print(equation_.refs[atom.first + r], true);
    return text + ")";
  }
  std::string gradient(unsigned result) const {
    const Result &made = equation_.results[result];
    bool several = gradient_count(row_) > 1;
    std::string text = several ? fmt::format("dr{}", result) : made.list ? "+dr" : "dr";
    return made.has_dims ? text + dims(made.first_dim, made.dim_count) : text;
  }
  // A value, or, not as one, what gives extents.
  std::string print(const Ref &ref, bool as_value) {
    std::string text = !as_value                        ? "#"
                       : ref.role == RefRole::Condition ? "@"
                       : ref.role == RefRole::ShapeOnly ? "#"
                                                        : "";
    if (ref.operand == kGenerator) {
      text += "~";
    } else {
      const OperandDecl &decl = equation_.operands[ref.operand];
      mentioned_[ref.operand] = true;
      text += decl.list == ListForm::Summed ? "+" : decl.list == ListForm::Multiplied ? "*" : "";
      text += std::string(decl.name) + (decl.optional ? "?" : "");
    }
    if (!ref.has_dims)
      return text;
    std::string inside = dims(ref.first_dim, ref.dim_count);
    if (as_value && ref.index != kNoFactor) {
      inside.pop_back();
      inside += fmt::format("{}:{}{}]", inside.size() > 1 ? " " : "", ref.index_whole ? "!" : "",
                            equation_.factors[ref.index]);
    }
    return text + inside;
  }
  // Its dimensions are those of the operand's first mention. A shape_only may stand where a value
  // that is summed over a list did.
  std::string shape_only(unsigned operand) {
    const Ref *ref = first_ref(operand);
    return print(*ref, false);
  }
  std::string dims(const Ref &ref) const { return dims(ref.first_dim, ref.dim_count); }
  std::string dims(unsigned first, unsigned count) const {
    std::string text = "[";
    for (unsigned d = first; d < first + count; ++d) {
      text += d > first ? " " : "";
      text += dim(equation_.dims[d]);
    }
    return text + "]";
  }
  std::string dim(const Dim &dim) const {
    switch (dim.form) {
    case Dim::Form::One:
      return "1";
    case Dim::Form::Rest:
      return equation_.whole >> kRestFactor & 1 ? "!..." : "...";
    case Dim::Form::Counted:
      return "?" + factor(dim.first);
    case Dim::Form::Factor:
      return factor(dim.first);
    case Dim::Form::Merged:
      break;
    }
    std::string text = "(";
    for (unsigned m = dim.first; m < unsigned(dim.first) + dim.count; ++m)
      text += (text.size() > 1 ? " " : "") + factor(equation_.merged[m]);
    return text + ")";
  }
  std::string factor(uint8_t factor) const {
    return (equation_.whole >> factor & 1 ? "!" : "") + std::string(equation_.factors[factor]);
  }

  const OpDef &row_;
  const Equation &equation_;
  unsigned operand_;
  uint32_t results_;
  std::array<bool, 12> mentioned_{};
};

// A derived row and the texts that it points into.
struct Derived {
  std::string name, text;
  std::optional<OpDef> row; // none: no gradient
};

Derived make(const OpDef &row, unsigned operand, uint32_t results) {
  const Equation &equation = row.equation.equation;
  Derived made;
  made.name =
      derivative_name({row.name.data(), row.name.size()}, {equation.operands[operand].name.data(),
                                                           equation.operands[operand].name.size()});
  made.text = row.gradient && !row.derivative_of ? Writer(row, operand, results).write() : "";
  return made;
}

// Of what follows from a table that never changes there is one for all threads.
struct Cache {
  std::mutex mutex;
  llvm::StringMap<std::unique_ptr<Derived>> rows;
};

} // namespace

// Of a list whose members are multiplied, those before and after the one that is meant.
static bool takes_rest(const OpDef &derived) {
  return derived.derivative_of->equation.equation.operands[derived.derivative_at].list ==
         ListForm::Multiplied;
}

unsigned gradient_count(const OpDef &row) { return row.equation.equation.result_count; }

const OpDef *derivative(const OpDef &row, unsigned operand, uint32_t results) {
  // A row that a trace teaches lives no longer than its program.
  if (find_op({row.name.data(), row.name.size()}) != &row)
    return nullptr;
  static Cache cache;
  std::lock_guard<std::mutex> lock(cache.mutex);
  Derived fresh = make(row, operand, results);
  std::unique_ptr<Derived> &slot = cache.rows[fresh.name + " " + fresh.text];
  if (!slot) {
    slot = std::make_unique<Derived>(std::move(fresh));
    Equation equation;
    if (!slot->text.empty() && parse_equation(slot->text, equation).reason.empty())
      slot->row = OpDef{.name = slot->name,
                        .equation = EquationText(equation),
                        .placed = row.placed,
                        .default_dim = row.default_dim,
                        .spans = row.spans,
                        .from_attr = row.from_attr,
                        .reduces = row.reduces,
                        .function_scale = row.function_scale,
                        .derivative_of = &row,
                        .derivative_at = static_cast<uint8_t>(operand)};
  }
  return slot->row ? &*slot->row : nullptr;
}

std::optional<DerivativeName> read_derivative_name(llvm::StringRef spelling) {
  if (!spelling.consume_front(kPrefix))
    return std::nullopt;
  auto [op, operand] = spelling.rsplit('.');
  if (op.empty() || operand.empty())
    return std::nullopt;
  return DerivativeName{op, operand};
}

std::string derivative_name(llvm::StringRef op, llvm::StringRef operand) {
  return fmt::format("{}{}.{}", view(kPrefix), view(op), view(operand));
}

namespace {

// Gradients as the instruction has them, one per result of the forward instruction: tensors, or
// nothing.
llvm::SmallVector<Slot, 4> gradients_of(const Application &app) {
  llvm::SmallVector<Slot, 4> gradients;
  if (app.slots.empty())
    return gradients;
  const Slot &given = app.slots.front();
  if (given.form != Slot::Form::List) {
    gradients.push_back(given);
    return gradients;
  }
  auto present = given.literal.form == ir::AttrForm::Integer
                     ? static_cast<uint64_t>(given.literal.as_integer())
                     : (uint64_t(1) << given.count) - 1;
  uint32_t next = given.first;
  for (unsigned i = 0; i < 64 && present >> i; ++i) {
    Slot one;
    if (present >> i & 1)
      one = {.form = Slot::Form::Tensor, .first = next++, .count = 1};
    gradients.push_back(one);
  }
  return gradients;
}

llvm::SmallVector<ResultClaim, 4> claims_of(const Application &app,
                                            llvm::ArrayRef<Slot> gradients) {
  llvm::SmallVector<ResultClaim, 4> claims;
  for (const Slot &slot : gradients) {
    claims.emplace_back();
    if (slot.count)
      claims.back().shape = app.args[slot.first].shape;
  }
  return claims;
}

} // namespace

// The operand of a derived row per position: gradients, then the operands of the row that it is of.
static llvm::SmallVector<uint8_t, 6> order_of(const OpDef &derived) {
  const Equation &own = derived.equation.equation,
                 &forward = derived.derivative_of->equation.equation;
  llvm::SmallVector<uint8_t, 6> order;
  auto place = [&](std::string_view name) {
    unsigned operand = own.find_operand(name);
    order.push_back(operand < own.operand_count ? static_cast<uint8_t>(operand)
                                                : ResolvedOp::kIgnored);
  };
  unsigned gradients = gradient_count(*derived.derivative_of);
  for (unsigned r = 0; r < gradients; ++r)
    place(gradients > 1 ? fmt::format("dr{}", r) : "dr");
  if (takes_rest(derived)) {
    place("before");
    place("after");
  }
  for (unsigned i = 0; i < forward.operand_count; ++i)
    place(forward.operands[i].name);
  return order;
}

// Members [first, last) of a list.
static Slot part_of(const Slot &list, unsigned first, unsigned last) {
  Slot part;
  if (first >= last)
    return part;
  part.form = Slot::Form::List;
  part.first = static_cast<uint32_t>(list.first + first);
  part.count = static_cast<uint32_t>(last - first);
  return part;
}

std::optional<RowUse> derivative_use(const Application &app) {
  llvm::SmallVector<Slot, 4> gradients = gradients_of(app);
  if (gradients.empty())
    return std::nullopt;
  llvm::SmallVector<ResultClaim, 4> claims = claims_of(app, gradients);
  Application forward{app.program, *app.op.forward, app.attrs, app.context, app.slots.drop_front(),
                      app.args,    claims};
  llvm::SmallVector<RowUse, 1> uses = row_uses(forward);
  // Of a zipped op the member tells which of its rows is meant.
  auto member = static_cast<uint64_t>(number_attr(app, {"member"}).value_or(0));
  size_t at = uses.size() > 1 ? std::min<uint64_t>(member, uses.size() - 1) : 0;
  if (uses.empty())
    return std::nullopt;
  RowUse &use = uses[at];
  const Equation &equation = use.row->equation.equation;
  unsigned operand = equation.find_operand(app.op.differentiated);
  Application bound = forward.bound_to(use);
  OperandMismatch ignored;
  std::optional<Binding> binding = bind_operands(bound, equation, ignored);
  if (!binding)
    return std::nullopt;
  bool list = equation.result_count == 1 && equation.results[0].list;
  llvm::SmallVector<Slot, 4> given(equation.result_count);
  uint32_t flowing = list ? 1 : 0;
  for (unsigned k = 0; k < use.results.size() && !list; ++k) {
    unsigned r = row_result(bound, k);
    if (r >= given.size() || use.results[k] >= gradients.size() ||
        gradients[use.results[k]].form == Slot::Form::Missing)
      continue;
    given[r] = gradients[use.results[k]];
    flowing |= 1u << r;
  }
  const OpDef *row =
      operand < equation.operand_count ? derivative(*use.row, operand, flowing) : nullptr;
  if (!row)
    return std::nullopt;
  RowUse made{use.op, row, {}, {}};
  if (!app.results.empty())
    made.results.push_back(0);
  made.op.spelling = app.op.spelling;
  made.op.row = row;
  made.op.order = order_of(*row);
  made.op.in_place = false;
  made.op.forward = std::make_shared<const ResolvedOp>(use.op);
  if (list)
    made.slots.push_back(app.slots.front());
  else
    made.slots.append(given.begin(), given.end());
  if (takes_rest(*row) && (*binding)[operand]) {
    const Slot &all = *(*binding)[operand];
    auto at = static_cast<uint32_t>(std::min<uint64_t>(member, all.count ? all.count - 1u : 0u));
    made.slots.push_back(part_of(all, 0, at));
    made.slots.push_back(part_of(all, at + 1, all.count));
  }
  for (unsigned i = 0; i < equation.operand_count; ++i) {
    made.slots.push_back(binding->missing(i) ? Slot() : *(*binding)[i]);
    made.slots.back().name = {};
  }
  if (binding->generator) {
    made.slots.push_back(*binding->generator);
    made.slots.back().name = app.program.strings.add("rng");
  }
  return made;
}

// A spelling that chose another row than its own, read in the order of that row.
static const Alias *chosen_alias(const Alias &alias, const OpDef &row) {
  static std::mutex mutex;
  static std::map<std::pair<const Alias *, const OpDef *>, Alias> known;
  std::lock_guard<std::mutex> lock(mutex);
  Alias &made = known.try_emplace({&alias, &row}, alias).first->second;
  made.op = row.name, made.order = {};
  made.choose = nullptr, made.factors = nullptr;
  return &made;
}

ForwardCall forward_call(const Application &app, const OpDef &derived) {
  ForwardCall call;
  const OpDef &row = *derived.derivative_of;
  unsigned gradients = gradient_count(row);
  if (app.op.forward)
    call.op = *app.op.forward;
  call.op.form = OpForm::Equation;
  // The slots stand in the order of the row, whatever the spelling has.
  if (call.op.row != &row && call.op.alias)
    call.op.alias = chosen_alias(*call.op.alias, row);
  call.op.row = &row;
  call.op.order.clear();
  call.op.lists_rest = false;
  for (unsigned i = 0; i < gradients && i < app.slots.size(); ++i)
    for (unsigned k = 0; k < std::max<unsigned>(app.slots[i].count, 1); ++k) {
      call.results.emplace_back();
      if (k < app.slots[i].count) {
        // The type of its result says where a view puts a shard; the gradient has the same shards.
        const Arg &gradient = app.args[app.slots[i].first + k];
        call.results.back().shape = gradient.shape;
        call.results.back().declared = gradient.type;
      }
    }
  size_t before = std::min<size_t>(gradients + (takes_rest(derived) ? 2 : 0), app.slots.size());
  for (const Slot &slot : app.slots.drop_front(before))
    call.slots.push_back(slot);
  return call;
}

} // namespace spmd::rules
