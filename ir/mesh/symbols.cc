// Primes for symbols. Relies on unique factorisation, and on no size in numbers having such a
// prime.
#include "ir/mesh/symbols.h"

#include "ir/support/limits.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {
namespace {

constexpr int64_t kFirstPrime = 53; // sizes of real meshes have smaller factors

bool is_prime(int64_t n) {
  for (int64_t d = 2; d * d <= n; ++d)
    if (n % d == 0)
      return false;
  return true;
}

// Of nothing, which every prime divides, none is a factor: else no prime would be free.
bool has_factor(int64_t ranks, int64_t prime) { return ranks != 0 && ranks % prime == 0; }

bool has_factor(llvm::ArrayRef<Atom> atoms, int64_t prime) {
  return llvm::any_of(atoms, [&](Atom atom) {
    return has_factor(atom.size, prime) || has_factor(atom.stride, prime);
  });
}

bool is_taken(const Program &program, const Mesh &mesh, int64_t prime) {
  auto in_axes = [&](const Mesh &each) {
    return llvm::any_of(each.axes,
                        [&](const Axis &axis) { return has_factor(axis.layout, prime); });
  };
  return llvm::any_of(program.symbol_primes,
                      [&](SymbolPrime each) { return each.prime == prime; }) ||
         in_axes(mesh) || llvm::any_of(program.meshes, in_axes) ||
         llvm::any_of(program.groups, [&](const Group &group) {
           return has_factor(group.layout, prime) ||
                  has_factor(static_cast<int64_t>(group.ranks.size()), prime);
         });
}

int64_t prime_for(Program &program, const Mesh &mesh, ExprId atom) {
  for (SymbolPrime each : program.symbol_primes)
    if (each.atom == atom)
      return each.prime;
  int64_t prime = kFirstPrime;
  while (!is_prime(prime) || is_taken(program, mesh, prime))
    prime += 2;
  program.symbol_primes.push_back({atom, prime});
  return prime;
}

// The declaration of an atom that is a symbol; null if it is an expression.
const SymbolInfo *symbol_of(const Program &program, ExprId atom) {
  const Expr &expr = program.exprs[atom];
  return expr.form == Expr::Form::Symbol ? program.symbols.find(expr.symbol) : nullptr;
}

// Empty, or why no axis can have such a size.
std::string never(const Program &program, ExprId atom) {
  const SymbolInfo *symbol = symbol_of(program, atom);
  if (symbol && symbol->max.value_or(1) < 1)
    return fmt::format("symbol `{}` is at most {}, and an axis has one rank at least",
                       std::string_view(program.strings[symbol->name]), *symbol->max);
  return "";
}

} // namespace

std::optional<int64_t> symbol_prime(Program &program, const Mesh &mesh, Extent size,
                                    std::string &error) {
  if (size.is_number()) {
    const auto *same = llvm::find_if(llvm::ArrayRef(program.symbol_primes), [&](SymbolPrime each) {
      return has_factor(size.number(), each.prime);
    });
    if (same == llvm::ArrayRef(program.symbol_primes).end())
      return size.number();
    error = fmt::format("multiples of {} cannot be determined from sizes that are symbols",
                        same->prime);
    return std::nullopt;
  }
  const Expr expr = program.exprs[size.expr()];
  if (expr.form != Expr::Form::Multiply) {
    error = never(program, size.expr());
    return error.empty() ? std::optional(prime_for(program, mesh, size.expr())) : std::nullopt;
  }
  std::optional<int64_t> left = symbol_prime(program, mesh, expr.left, error);
  std::optional<int64_t> right =
      left ? symbol_prime(program, mesh, expr.right, error) : std::nullopt;
  int64_t both = 0;
  if (!left || !right)
    return std::nullopt;
  if (!__builtin_mul_overflow(*left, *right, &both) && both <= kMaxInteger)
    return both;
  error = "a size has too many symbols";
  return std::nullopt;
}

bool is_symbolic(const Program &program, int64_t ranks) {
  return ranks != 0 && llvm::any_of(program.symbol_primes,
                                    [&](SymbolPrime each) { return ranks % each.prime == 0; });
}

bool is_symbolic(const Program &program, const Mesh &mesh) {
  return !program.symbol_primes.empty() && llvm::any_of(mesh.axes, [&](const Axis &axis) {
    return llvm::any_of(axis.layout, [&](Atom atom) {
      return is_symbolic(program, atom.size) || is_symbolic(program, atom.stride);
    });
  });
}

Extent rank_extent(Program &program, int64_t ranks) {
  if (program.symbol_primes.empty() || ranks == 0)
    return ranks;
  llvm::SmallVector<Extent, 4> factors;
  for (SymbolPrime each : program.symbol_primes)
    for (; ranks % each.prime == 0; ranks /= each.prime)
      factors.push_back(Extent::symbolic(each.atom));
  Extent all = ranks;
  for (Extent factor : factors)
    all = all == Extent(1)
              ? factor
              : combine(program.exprs, Expr::Form::Multiply, all, factor).value_or(all);
  return all;
}

std::string print_ranks(const Program &program, int64_t ranks) {
  if (ranks == 0 || !is_symbolic(program, ranks))
    return std::to_string(ranks);
  std::string text;
  for (SymbolPrime each : program.symbol_primes)
    for (; ranks % each.prime == 0; ranks /= each.prime) {
      Extent atom = Extent::symbolic(each.atom);
      bool plain = program.exprs[each.atom].form == Expr::Form::Symbol;
      std::string factor = print(atom, program.exprs, program.strings);
      text += (text.empty() ? "" : " * ") + (plain ? factor : "(" + factor + ")");
    }
  return ranks == 1 ? text : fmt::format("{} * {}", ranks, text);
}

std::optional<int64_t> most_ranks(const Program &program, int64_t ranks) {
  int64_t most = 1;
  for (SymbolPrime each : program.symbol_primes)
    for (; ranks % each.prime == 0; ranks /= each.prime) {
      const SymbolInfo *symbol = symbol_of(program, each.atom);
      if (!symbol || !symbol->max || __builtin_mul_overflow(most, *symbol->max, &most))
        return std::nullopt;
    }
  return __builtin_mul_overflow(most, ranks, &most) ? std::nullopt : std::optional(most);
}

namespace {

int64_t assumed_value(const Program &program, ExprId atom) {
  constexpr int64_t kLeast = 2;
  const SymbolInfo *symbol = symbol_of(program, atom);
  if (!symbol)
    return kLeast;
  if (symbol->hint.value_or(0) > 0)
    return *symbol->hint;
  int64_t step = symbol->multiple_of.value_or(1);
  int64_t least = std::max(symbol->min.value_or(1), std::min(kLeast, symbol->max.value_or(kLeast)));
  return std::max<int64_t>(1, (least + step - 1) / step * step);
}

} // namespace

int64_t assumed_ranks(const Program &program, int64_t ranks) {
  int64_t values = 1;
  for (SymbolPrime each : program.symbol_primes)
    for (; ranks != 0 && ranks % each.prime == 0; ranks /= each.prime)
      values *= assumed_value(program, each.atom);
  return ranks * values;
}

Extent assumed(Program &program, Extent extent) {
  if (extent.is_number() || program.symbol_primes.empty())
    return extent;
  for (SymbolPrime each : program.symbol_primes)
    if (each.atom == extent.expr())
      return assumed_value(program, each.atom);
  const Expr expr = program.exprs[extent.expr()];
  if (expr.form == Expr::Form::Symbol)
    return extent;
  return combine(program.exprs, expr.form, assumed(program, expr.left),
                 assumed(program, expr.right))
      .value_or(extent);
}

std::string print_assumed(const Program &program) {
  std::string text;
  for (SymbolPrime each : program.symbol_primes)
    text += fmt::format("{}{} = {}", text.empty() ? "" : ", ",
                        print(Extent::symbolic(each.atom), program.exprs, program.strings),
                        assumed_value(program, each.atom));
  return text;
}

std::string finish_mesh(const Program &program, Mesh &mesh) {
  bool symbolic = is_symbolic(program, mesh); // before strides are made
  auto number = [&](int64_t ranks) { return print_ranks(program, ranks); };
  if (std::string wrong = finish(mesh, program.strings, number); !wrong.empty() || !symbolic)
    return wrong;
  llvm::SmallVector<Atom, 8> atoms;
  for (const Axis &axis : mesh.axes)
    if (!axis.flattened)
      for (Atom atom : canonical(axis.layout))
        atoms.push_back(atom);
  llvm::sort(atoms, [](Atom a, Atom b) { return a.stride < b.stride; });
  for (size_t i = 0; i + 1 < atoms.size(); ++i)
    if (atoms[i + 1].stride % (atoms[i].size * atoms[i].stride) != 0)
      return fmt::format("mesh `{}`: the stride {} is no multiple of {}, so whether axes overlap "
                         "depends on symbols",
                         std::string_view(program.strings[mesh.name]), number(atoms[i + 1].stride),
                         number(atoms[i].size * atoms[i].stride));
  return {};
}

} // namespace spmd::ir
