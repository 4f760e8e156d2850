// Writes the equation of a derived row as text and reads it as any other equation is read.
#include "rules/derivative.h"

#include "rules/bind.h"
#include "rules/factors/shape_rule.h"
#include "rules/ops/table.h"
#include "rules/shapes/attrs.h"
#include "rules/violations/operands.h"

#include "ir/support/format.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <fmt/format.h>

#include <map>
#include <mutex>

namespace spmd::rules {

namespace {

constexpr llvm::StringLiteral kPrefix = "vjp.";

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

bool takes_rest(const OpDef &derived) {
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
  return fmt::format("{}{}.{}", kPrefix, op, operand);
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
        const TensorInfo &gradient = app.args[app.slots[i].first + k];
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
