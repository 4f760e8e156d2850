// Extents as sums of products of symbols: equal where the difference cancels, different where its
// bounds or its residue leave out 0.
#include "rules/shapes/extent_facts.h"

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

// A product of atoms: symbols, and quotients and rests that are not known to be whole, which are
// taken as they stand.
struct Term {
  int64_t factor = 0;
  llvm::SmallVector<uint32_t, 2> atoms; // ids of expressions, ascending
};
// All terms together, divided by one number.
struct Sum {
  llvm::SmallVector<Term, 4> terms;
  int64_t over = 1;
};

class Sums {
public:
  explicit Sums(const ir::Program &program) : program_(program) {}

  // None if it has too many terms or leaves the numbers.
  std::optional<Sum> of(Extent extent) const {
    if (extent.is_number())
      return Sum{{{extent.number(), {}}}};
    const Expr &expr = program_.exprs[extent.expr()];
    if (expr.form == Expr::Form::Divide && divides(expr.left, expr.right))
      return quotient(expr);
    if (expr.form == Expr::Form::Symbol || expr.form == Expr::Form::Divide ||
        expr.form == Expr::Form::Modulo)
      return Sum{{{1, {extent.expr().index}}}};
    std::optional<Sum> left = of(expr.left), right = of(expr.right);
    if (!left || !right)
      return std::nullopt;
    if (expr.form == Expr::Form::Multiply)
      return product(*left, *right);
    return added(std::move(*left), expr.form == Expr::Form::Subtract ? -1 : 1, *right);
  }

  static std::optional<Sum> added(Sum left, int64_t sign, const Sum &right) {
    int64_t common = std::gcd(left.over, right.over);
    int64_t up = right.over / common, sideways = left.over / common * sign;
    if (__builtin_mul_overflow(left.over, up, &left.over))
      return std::nullopt;
    for (Term &term : left.terms)
      if (__builtin_mul_overflow(term.factor, up, &term.factor))
        return std::nullopt;
    for (const Term &term : right.terms) {
      int64_t factor = 0;
      if (__builtin_mul_overflow(term.factor, sideways, &factor) || !add(left, factor, term.atoms))
        return std::nullopt;
    }
    return left;
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
  bool divides(Extent left, Extent right) const {
    return right.is_number() && right.number() > 0 &&
           known_divisor(program_, left) % right.number() == 0;
  }
  std::optional<Sum> quotient(const Expr &expr) const {
    std::optional<Sum> left = of(expr.left);
    if (left && __builtin_mul_overflow(left->over, expr.right.number(), &left->over))
      return std::nullopt;
    return left;
  }
  static bool add(Sum &sum, int64_t factor, const llvm::SmallVector<uint32_t, 2> &atoms) {
    Term *known = llvm::find_if(sum.terms, [&](const Term &term) { return term.atoms == atoms; });
    if (known == sum.terms.end()) {
      sum.terms.push_back({factor, atoms});
      return sum.terms.size() <= kMostTerms;
    }
    return !__builtin_add_overflow(known->factor, factor, &known->factor);
  }
  static std::optional<Sum> product(const Sum &left, const Sum &right) {
    Sum all;
    if (__builtin_mul_overflow(left.over, right.over, &all.over))
      return std::nullopt;
    for (const Term &a : left.terms)
      for (const Term &b : right.terms) {
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
    if (atom.form != Expr::Form::Symbol)
      return {};
    const ir::SymbolInfo *symbol = program_.symbols.find(atom.symbol);
    if (!symbol)
      return {};
    return {symbol->min.value_or(0), symbol->max.value_or(kNoBound),
            symbol->multiple_of.value_or(1)};
  }

  const ir::Program &program_;
};

// The terms of a difference that is 0 where the extents are equal, without what divides all of
// them; in one order, the first one positive. None where it cannot be written.
std::optional<llvm::SmallVector<Term, 4>> difference(const ir::Program &program, Extent a,
                                                     Extent b) {
  Sums sums(program);
  std::optional<Sum> left = sums.of(a), right = sums.of(b);
  left = left && right ? Sums::added(std::move(*left), -1, *right) : std::nullopt;
  if (!left)
    return std::nullopt;
  llvm::SmallVector<Term, 4> terms = std::move(left->terms);
  llvm::erase_if(terms, [](const Term &term) { return term.factor == 0; });
  llvm::sort(terms, [](const Term &x, const Term &y) {
    return std::lexicographical_compare(y.atoms.begin(), y.atoms.end(), x.atoms.begin(),
                                        x.atoms.end());
  });
  int64_t common = 0;
  for (const Term &term : terms) {
    if (term.factor == std::numeric_limits<int64_t>::min())
      return std::nullopt;
    common = std::gcd(common, term.factor);
  }
  if (!terms.empty() && terms.front().factor < 0)
    common = -common;
  for (Term &term : terms)
    term.factor /= common;
  return terms;
}

} // namespace

Equality compare(const ir::Program &program, Extent a, Extent b) {
  if (a == b)
    return Equality::Equal;
  if (a.is_number() && b.is_number())
    return Equality::Different;
  std::optional<llvm::SmallVector<Term, 4>> terms = difference(program, a, b);
  if (!terms)
    return Equality::Undecided;
  if (terms->empty())
    return Equality::Equal;
  Sums sums(program);
  __int128 first = 0, last = 0;
  bool below = true, above = true;
  int64_t constant = 0, step = 0;
  for (const Term &term : *terms) {
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
  if (below && above && first == 0 && last == 0)
    return Equality::Equal;
  bool apart = (below && first > 0) || (above && last < 0) || (step && constant % step != 0);
  return apart ? Equality::Different : Equality::Undecided;
}

uint64_t equality_key(const ir::Program &program, Extent a, Extent b) {
  uint64_t hash = 0;
  std::optional<llvm::SmallVector<Term, 4>> terms = difference(program, a, b);
  if (!terms)
    return ir::mix(ir::hash_bytes(&a, sizeof a), ir::hash_bytes(&b, sizeof b));
  for (const Term &term : *terms) {
    hash = ir::mix(hash, static_cast<uint64_t>(term.factor));
    hash = ir::mix(hash, ir::hash_bytes(term.atoms.data(), term.atoms.size() * sizeof(uint32_t)));
  }
  return hash;
}

UndecidedExtents undecided(const ir::Program &program, std::string what, Extent a, Extent b) {
  auto text = [&](Extent extent) { return ir::print(extent, program.exprs, program.strings); };
  return {std::move(what), text(a), text(b), a, b};
}

bool may_be_equal(const ir::Program &program, Extent a, Extent b,
                  llvm::SmallVectorImpl<UndecidedExtents> &out,
                  llvm::function_ref<std::string()> what) {
  Equality equality = compare(program, a, b);
  if (equality == Equality::Undecided)
    out.push_back(undecided(program, what(), a, b));
  return equality != Equality::Different;
}

bool may_divide(ir::Program &program, Extent extent, Extent n,
                llvm::SmallVectorImpl<UndecidedExtents> &out,
                llvm::function_ref<std::string()> what) {
  if (exact_quotient(program, extent, n))
    return true;
  std::optional<Extent> rest = ir::combine(program.exprs, Expr::Form::Modulo, extent, n);
  return !rest || may_be_equal(program, *rest, Extent(0), out, what);
}

int64_t known_divisor(const ir::Program &program, Extent extent) {
  if (extent.is_number())
    return extent.number();
  const Expr &expr = program.exprs[extent.expr()];
  if (expr.form == Expr::Form::Symbol) {
    const ir::SymbolInfo *symbol = program.symbols.find(expr.symbol);
    return symbol ? symbol->multiple_of.value_or(1) : 1;
  }
  int64_t left = known_divisor(program, expr.left), right = known_divisor(program, expr.right);
  int64_t both = 0;
  switch (expr.form) {
  case Expr::Form::Symbol:
    break;
  case Expr::Form::Add:
  case Expr::Form::Subtract:
  case Expr::Form::Modulo:
    return std::gcd(left, right);
  case Expr::Form::Multiply:
    return __builtin_mul_overflow(left, right, &both) ? std::max(left, right) : both;
  case Expr::Form::Divide:
    return expr.right.is_number() && right > 0 && left % right == 0 ? left / right : 1;
  }
  return 1;
}

namespace {

// Moves what it can of the factor n out of a product: none unless all of it.
std::optional<Extent> without_factor(ir::Program &program, Extent extent, int64_t n) {
  if (n == 1)
    return extent;
  if (n <= 0 || known_divisor(program, extent) % n != 0)
    return std::nullopt;
  if (extent.is_number())
    return Extent(extent.number() / n);
  const Expr expr = program.exprs[extent.expr()];
  int64_t divisor = 0;
  if (expr.form == Expr::Form::Divide && expr.right.is_number() &&
      !__builtin_mul_overflow(expr.right.number(), n, &divisor) &&
      known_divisor(program, expr.left) % divisor == 0)
    return ir::combine(program.exprs, Expr::Form::Divide, expr.left, divisor);
  if (expr.form != Expr::Form::Multiply)
    return ir::combine(program.exprs, Expr::Form::Divide, extent, n);
  // Numbers lose their factors first: what is left of n must be found on the other side.
  Extent first = expr.right.is_number() ? expr.right : expr.left;
  Extent second = expr.right.is_number() ? expr.left : expr.right;
  int64_t taken = std::gcd(known_divisor(program, first), n);
  std::optional<Extent> a = without_factor(program, first, taken),
                        b = without_factor(program, second, n / taken);
  if (!a || !b)
    return ir::combine(program.exprs, Expr::Form::Divide, extent, n);
  if (*a == Extent(1) || *b == Extent(1))
    return *a == Extent(1) ? b : a;
  bool swapped = first == expr.right;
  return ir::combine(program.exprs, Expr::Form::Multiply, swapped ? *b : *a, swapped ? *a : *b);
}

// The other factor, where a symbol, or what is taken as one, is a factor of an extent.
std::optional<Extent> without_atom(ir::Program &program, Extent extent, Extent atom) {
  if (extent == atom)
    return Extent(1);
  if (extent.is_number())
    return extent == Extent(0) ? std::optional(extent) : std::nullopt;
  const Expr expr = program.exprs[extent.expr()];
  if (expr.form == Expr::Form::Symbol || expr.form == Expr::Form::Modulo)
    return std::nullopt;
  std::optional<Extent> left = without_atom(program, expr.left, atom);
  if (expr.form == Expr::Form::Divide)
    return left ? exact_quotient(program, *left, expr.right) : std::nullopt;
  if (expr.form == Expr::Form::Multiply && left)
    return product(program, *left, expr.right);
  std::optional<Extent> right = without_atom(program, expr.right, atom);
  if (expr.form == Expr::Form::Multiply)
    return right ? product(program, expr.left, *right) : std::nullopt;
  return left && right ? ir::combine(program.exprs, expr.form, *left, *right) : std::nullopt;
}

} // namespace

std::optional<Extent> exact_quotient(ir::Program &program, Extent extent, Extent n) {
  if (n.is_number())
    return without_factor(program, extent, n.number());
  const Expr expr = program.exprs[n.expr()];
  if (extent == n || expr.form != Expr::Form::Multiply)
    return without_atom(program, extent, n);
  std::optional<Extent> part = exact_quotient(program, extent, expr.left);
  return part ? exact_quotient(program, *part, expr.right) : std::nullopt;
}

std::optional<Extent> quotient(ir::Program &program, Extent extent, Extent n) {
  std::optional<Extent> exact = exact_quotient(program, extent, n);
  return exact ? exact : ir::combine(program.exprs, Expr::Form::Divide, extent, n);
}

std::optional<Extent> product(ir::Program &program, Extent extent, Extent n) {
  if (n == Extent(1) || extent == Extent(1))
    return n == Extent(1) ? extent : n;
  if (!extent.is_number()) {
    const Expr expr = program.exprs[extent.expr()];
    bool exact = expr.form == Expr::Form::Divide &&
                 exact_quotient(program, expr.left, expr.right).has_value();
    std::optional<Extent> rest =
        exact ? exact_quotient(program, expr.right, n) : std::optional<Extent>();
    if (rest && *rest == Extent(1))
      return expr.left;
    if (rest)
      return ir::combine(program.exprs, Expr::Form::Divide, expr.left, *rest);
  }
  return ir::combine(program.exprs, Expr::Form::Multiply, extent, n);
}

ir::ShapeId stated_shape(const ir::Program &program, ir::ShapeId stated, ir::ShapeId known) {
  bool says = stated.valid() && (program.shapes[stated].ranked || !known.valid());
  return says ? stated : known;
}

} // namespace spmd::rules
