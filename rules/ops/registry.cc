// What a spelling means is worked out here and nowhere else.
#include "rules/ops/registry.h"

#include "rules/bind.h"
#include "rules/derivative.h"

#include "ir/support/arrays.h"
#include "ir/support/misspelling.h"
#include "ir/support/strings.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

#include <tuple>

namespace spmd::rules {

namespace {

llvm::StringRef ref(std::string_view text) { return {text.data(), text.size()}; }

// What stands in front of the names of frameworks, longest first.
struct Prefix {
  llvm::StringRef text;
  llvm::StringRef instead = {};
};
constexpr Prefix kPrefixes[] = {
    {"torch.nn.functional."},
    {"torch.ops.aten."},
    {"torch.ops.higher_order."},
    {"higher_order."},
    {"torch.ops.prims."},
    {"torch.Tensor."},
    {"torch._C._nn."},
    {"torch.special."},
    {"torch.fft.", "fft_"},
    {"torch.linalg.", "linalg_"},
    {"torch."},
    {"aten."},
    {"prims."},
    {"_operator."},
    {"operator."},
    {"jax.lax."},
    {"jax.nn."},
    {"jax.numpy."},
    {"jax."},
    {"lax."},
};

class Resolver {
public:
  Resolver(llvm::StringRef spelling, llvm::StringRef dialect)
      : framework_(!dialect.empty() && dialect != ref(ir::kOwnDialect)),
        is_operator_(dialect == "operator"),
        is_jax_(dialect == ref(ir::kDialectWords[static_cast<unsigned>(ir::Dialect::Jax)])) {
    name_ = spelling.str();
    llvm::StringRef own = spelling;
    if (own.consume_front("spmd.")) {
      name_ = own.str();
      framework_ = false;
    }
    for (const Prefix &prefix : kPrefixes)
      if (llvm::StringRef rest = spelling; rest.consume_front(prefix.text)) {
        is_operator_ = ir::ends_with(prefix.text, "operator.");
        is_jax_ = ir::starts_with(prefix.text, "jax") || prefix.text == "lax.";
        framework_ = true;
        name_ = prefix.instead.str() + rest.str();
        break;
      }
    if (name_ != spelling && !try_exactly(spelling) && !try_exactly(without_overload(spelling)))
      resolve(name_);
    else if (name_ == spelling)
      resolve(name_);
  }

  ResolvedOp take() { return std::move(out_); }
  // The name that messages should be near to.
  llvm::StringRef stem() const {
    llvm::StringRef name = without_overload(name_);
    return name.size() > 1 && ir::ends_with(name, "_") ? name.drop_back() : name;
  }

private:
  static llvm::StringRef without_overload(llvm::StringRef name) {
    return name.substr(0, std::min(name.rfind('.'), name.size()));
  }

  bool resolve(llvm::StringRef name) {
    llvm::StringRef base = without_overload(name);
    return try_exactly(name) || try_exactly(base) || try_in_place(name) || try_in_place(base) ||
           try_derived(base);
  }

  // The name as it stands: a spelling, a row, a transition, a boundary op.
  bool try_exactly(llvm::StringRef name) {
    if (framework_ && try_alias((is_jax_ ? "jax." : "aten.") + name.str()))
      return true;
    // Our own names come first where nobody else's are meant.
    if ((!framework_ && try_own(name)) || try_alias(name))
      return true;
    if (const OpDef *row = find_op(name))
      return take_row(*row);
    return try_own(name);
  }
  bool try_own(llvm::StringRef name) {
    return try_transition(name) || try_boundary(name);
  }
  bool try_alias(llvm::StringRef name) {
    const Alias *alias = find_alias(name);
    if (!alias)
      return false;
    out_.alias = alias;
    out_.each |= alias->each;
    if (const OpDef *row = find_op(ref(alias->op))) {
      take_row(*row);
      out_.order = read_order(alias->order, row->equation.equation);
      out_.lists_rest = ir::ends_with(ref(alias->order), "...");
      out_.in_place |= ir::ends_with(name, "_") && !row->mut.empty();
      return true;
    }
    return try_transition(ref(alias->op)) || try_boundary(ref(alias->op));
  }
  bool take_row(const OpDef &row) {
    out_.form = OpForm::Equation;
    out_.row = &row;
    return true;
  }
  bool try_transition(llvm::StringRef name) {
    out_.transition = find_transition_op(name);
    if (out_.transition == TransitionOp::None)
      return false;
    out_.form = OpForm::Transition;
    return true;
  }
  bool try_boundary(llvm::StringRef name) {
    out_.boundary = ir::find_boundary(name);
    if (out_.boundary == Boundary::None)
      return false;
    out_.form = out_.boundary < Boundary::Call ? OpForm::Boundary : OpForm::Call;
    return true;
  }

  bool try_in_place(llvm::StringRef name) {
    if (!ir::ends_with(name, "_") || ir::ends_with(name, "__") || !resolve(name.drop_back()))
      return false;
    // `operator.and_` is a word that Python reserves, not a write.
    out_.in_place |= !is_operator_;
    return true;
  }

  // Spellings that follow by rule (rules/README.md).
  bool try_derived(llvm::StringRef name) {
    llvm::StringRef rest = name;
    if (rest.consume_front("_foreach_") && resolve_part(rest)) {
      out_.each = true;
      return true;
    }
    if (rest = name; rest.consume_front("special_") && resolve_part(rest))
      return true;
    if (rest = name;
        (rest.consume_back("_copy") || rest.consume_back("_out")) && resolve_part(rest))
      return true;
    rest = name;
    if (rest.consume_front("__") && rest.consume_back("__"))
      return resolve_part(rest) || try_reflected(rest);
    return is_operator_ && try_reflected(name);
  }
  bool resolve_part(llvm::StringRef name) { return !name.empty() && resolve(name); }
  bool try_reflected(llvm::StringRef name) {
    llvm::StringRef rest = name;
    if (rest.consume_front("i") && resolve_part(rest)) {
      out_.in_place = true;
      return true;
    }
    rest = name;
    if (!rest.consume_front("r") || !resolve_part(rest))
      return false;
    if (out_.order.empty() && out_.row && out_.row->equation.equation.operand_count == 2)
      out_.order = {1, 0};
    return true;
  }

  std::string name_;
  bool framework_, is_operator_, is_jax_;
  ResolvedOp out_;
};

llvm::SmallVector<llvm::StringRef, 0> all_names() {
  llvm::SmallVector<llvm::StringRef, 0> names;
  for (llvm::ArrayRef<OpDef> family : op_families())
    for (const OpDef &row : family)
      names.push_back(ref(row.name));
  for (std::string_view name : ir::as_array(kTransitionNames).drop_front())
    names.push_back(ref(name));
  for (const ir::BoundaryName &row : ir::as_array(ir::kBoundaryNames).drop_front())
    names.push_back(ref(row.name));
  for (const Alias &alias : aliases())
    names.push_back(ref(alias.spelling));
  return names;
}

} // namespace

// `vjp.OP.OPERAND`, where OP is an op with a row that has such an operand, or may mean one.
static std::optional<ResolvedOp> resolve_derivative(llvm::StringRef spelling,
                                                    llvm::StringRef dialect) {
  std::optional<DerivativeName> name = read_derivative_name(spelling);
  if (!name)
    return std::nullopt;
  ResolvedOp forward = resolve_spelling(name->op, dialect);
  if (forward.form != OpForm::Equation || forward.forward)
    return std::nullopt;
  ResolvedOp made;
  made.form = OpForm::Equation;
  made.differentiated = name->operand.str();
  const Equation &equation = forward.row->equation.equation;
  unsigned operand = equation.find_operand(made.differentiated);
  made.row = operand < equation.operand_count ? derivative(*forward.row, operand) : nullptr;
  // The row that its arguments choose is known with the arguments only.
  for (unsigned i = 0; !made.row && i < equation.operand_count; ++i)
    made.row = derivative(*forward.row, i);
  if (!made.row)
    return std::nullopt;
  made.forward = std::make_shared<const ResolvedOp>(std::move(forward));
  return made;
}

ResolvedOp resolve_spelling(llvm::StringRef spelling, llvm::StringRef dialect) {
  if (std::optional<ResolvedOp> derived = resolve_derivative(spelling, dialect))
    return std::move(*derived);
  Resolver resolver(spelling, dialect);
  ResolvedOp resolved = resolver.take();
  if (resolved.form == OpForm::Unknown)
    resolved.nearest = ir::nearest_name(resolver.stem(), all_names()).str();
  return resolved;
}

ResolvedOp resolve_op(const ir::Program &program, ir::OpNameId op) {
  return resolve_spelling(program.op_name(op), program.dialect_name());
}

} // namespace spmd::rules
