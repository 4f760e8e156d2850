// Extents as sums of products of symbols: equal where the difference cancels, different where its bounds or
// its residue leave out 0.
#include "rules/extent_facts.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"

#include <limits>
#include <numeric>

namespace spmd::rules {

namespace {

using ir::Expr;
using ir::Extent;

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();
// Products of sums are multiplied out to so many terms.
constexpr size_t kMostTerms = 64;

// The numbers that a value may be: no more than `last`, multiples of `step`.
struct Range {
  int64_t first = 0, last = kNoBound, step = 1;
};

// A product of atoms: symbols, and quotients and rests, which are taken as they stand.
struct Term {
  int64_t factor = 0;
  llvm::SmallVector<uint32_t, 2> atoms; // ids of expressions, ascending
};
using Terms = llvm::SmallVector<Term, 4>;

class Sums {
public:
  explicit Sums(const ir::Program &program) : program_(program) {}

  // None if it has too many terms or leaves the numbers.
  std::optional<Terms> of(Extent extent) const {
    if (extent.is_number())
      return Terms{{extent.number(), {}}};
    const Expr &expr = program_.exprs[extent.expr()];
    if (expr.form == Expr::Form::Symbol || expr.form == Expr::Form::Divide ||
        expr.form == Expr::Form::Modulo)
      return Terms{{1, {extent.expr().index}}};
    std::optional<Terms> left = of(expr.left), right = of(expr.right);
    if (!left || !right)
      return std::nullopt;
    if (expr.form == Expr::Form::Multiply)
      return product(*left, *right);
    for (Term &term : *right)
      if (!add(*left, expr.form == Expr::Form::Subtract ? -term.factor : term.factor, term.atoms))
        return std::nullopt;
    return left;
  }

  static bool add(Terms &terms, int64_t factor, const llvm::SmallVector<uint32_t, 2> &atoms) {
    Term *known = llvm::find_if(terms, [&](const Term &term) { return term.atoms == atoms; });
    if (known == terms.end()) {
      terms.push_back({factor, atoms});
      return terms.size() <= kMostTerms;
    }
    return !__builtin_add_overflow(known->factor, factor, &known->factor);
  }

  Range range(const Term &term) const {
    Range all{term.factor, term.factor, std::abs(term.factor)};
    for (uint32_t atom : term.atoms) {
      Range one = range(program_.exprs[ir::ExprId{atom}]);
      int64_t low = term.factor < 0 ? bounded(all.first, one.last) : bounded(all.first, one.first);
      int64_t high = term.factor < 0 ? bounded(all.last, one.first) : bounded(all.last, one.last);
      all = {low, high, bounded(all.step, one.step)};
    }
    return all;
  }

private:
  static std::optional<Terms> product(const Terms &left, const Terms &right) {
    Terms all;
    for (const Term &a : left)
      for (const Term &b : right) {
        Term made{0, a.atoms};
        made.atoms.append(b.atoms.begin(), b.atoms.end());
        llvm::sort(made.atoms);
        if (__builtin_mul_overflow(a.factor, b.factor, &made.factor) ||
            !add(all, made.factor, made.atoms))
          return std::nullopt;
      }
    return all;
  }
  // A product with a number that is not negative, within the numbers.
  static int64_t bounded(int64_t a, int64_t b) {
    int64_t result = 0;
    if (a == 0 || b == 0)
      return 0;
    if (a == kNoBound || b == kNoBound || __builtin_mul_overflow(a, b, &result))
      return a < 0 ? -kNoBound : kNoBound;
    return result;
  }
  Range range(const Expr &atom) const {
    if (atom.form == Expr::Form::Modulo)
      return {0, atom.right.is_number() ? atom.right.number() - 1 : kNoBound, 1};
    Range range;
    if (atom.form != Expr::Form::Symbol)
      return range;
    for (const ir::SymbolInfo &symbol : program_.symbols)
      if (symbol.name == atom.symbol)
        range = {symbol.min.value_or(0), symbol.max.value_or(kNoBound),
                 symbol.multiple_of.value_or(1)};
    return range;
  }

  const ir::Program &program_;
};

} // namespace

Equality compare(const ir::Program &program, Extent a, Extent b) {
  if (a == b)
    return Equality::Equal;
  if (a.is_number() && b.is_number())
    return Equality::Different;
  Sums sums(program);
  std::optional<Terms> left = sums.of(a), right = sums.of(b);
  if (!left || !right)
    return Equality::Undecided;
  for (const Term &term : *right)
    if (term.factor == std::numeric_limits<int64_t>::min() ||
        !Sums::add(*left, -term.factor, term.atoms))
      return Equality::Undecided;
  llvm::erase_if(*left, [](const Term &term) { return term.factor == 0; });
  if (left->empty())
    return Equality::Equal;
  __int128 first = 0, last = 0;
  bool below = true, above = true;
  int64_t constant = 0, step = 0;
  for (const Term &term : *left) {
    Range range = sums.range(term);
    below &= range.first > -kNoBound;
    above &= range.last < kNoBound;
    first += range.first;
    last += range.last;
    if (term.atoms.empty())
      constant = term.factor;
    else
      step = std::gcd(step, range.step);
  }
  bool apart = (below && first > 0) || (above && last < 0) || (step && constant % step != 0);
  return apart ? Equality::Different : Equality::Undecided;
}

ir::ShapeId stated_shape(const ir::Program &program, ir::ShapeId stated, ir::ShapeId known) {
  bool says = stated.valid() && (program.shapes[stated].ranked || !known.valid());
  return says ? stated : known;
}

} // namespace spmd::rules
