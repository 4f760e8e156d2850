// Extents and shapes: folding, parsing and printing of extent expressions, element and byte counts.
// Relies on combine() for every bound, so that no expression is too deep to walk by recursion.
#include "ir/shape.h"

#include "ir/support/limits.h"

#include "llvm/ADT/StringExtras.h"

namespace spmd::ir {

namespace {

constexpr char kOperators[] = {0, '+', '-', '*', '/', '%'}; // by Expr::Form
constexpr int64_t kMaxCounted = int64_t(1) << 62;

int precedence(Expr::Form form) {
  return form == Expr::Form::Symbol                                ? 3
         : form == Expr::Form::Add || form == Expr::Form::Subtract ? 1
                                                                   : 2;
}

std::optional<int64_t> fold(Expr::Form form, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflow = false;
  switch (form) {
  case Expr::Form::Add:
    overflow = __builtin_add_overflow(a, b, &result);
    break;
  case Expr::Form::Subtract:
    result = a - b;
    break;
  case Expr::Form::Multiply:
    overflow = __builtin_mul_overflow(a, b, &result);
    break;
  case Expr::Form::Divide:
    result = a / b;
    break;
  case Expr::Form::Modulo:
    result = a % b;
    break;
  case Expr::Form::Symbol:
    return std::nullopt;
  }
  if (overflow || result < 0 || result > kMaxInteger)
    return std::nullopt;
  return result;
}

uint32_t node_count(const ExprTable &table, Extent extent) {
  return extent.is_number() ? 1 : table[extent.expr()].nodes;
}

// Recursive descent; `depth` bounds parentheses that combine() never sees.
class ExtentParser {
public:
  ExtentParser(llvm::StringRef text, ExprTable &table, StringTable &names)
      : rest_(text), table_(table), names_(names) {}

  std::optional<Extent> parse() {
    std::optional<Extent> extent = chain("+-", 0);
    return peek() == 0 && rest_.empty() ? extent : std::nullopt;
  }

private:
  char peek() {
    rest_ = rest_.ltrim(" \t\r\n");
    return rest_.empty() ? 0 : rest_.front();
  }

  // Operands joined by operators of one precedence, from the left.
  std::optional<Extent> chain(llvm::StringRef operators, unsigned depth) {
    bool sums = operators == "+-";
    auto operand = [&] { return sums ? chain("*/%", depth) : atom(depth); };
    std::optional<Extent> left = operand();
    while (left && peek() != 0 && operators.contains(peek())) {
      char sign = rest_.front();
      rest_ = rest_.drop_front();
      std::optional<Extent> right = operand();
      if (!right)
        return std::nullopt;
      left = combine(table_, form_of(sign), *left, *right);
    }
    return left;
  }

  std::optional<Extent> atom(unsigned depth) {
    char next = peek();
    if (llvm::isDigit(next))
      return number();
    if (llvm::isAlpha(next) || next == '_')
      return symbol();
    if (next != '(' || depth == kMaxExprNodes)
      return std::nullopt;
    rest_ = rest_.drop_front();
    std::optional<Extent> inside = chain("+-", depth + 1);
    if (peek() != ')')
      return std::nullopt;
    rest_ = rest_.drop_front();
    return inside;
  }

  std::optional<Extent> number() {
    llvm::StringRef digits = rest_.take_while(llvm::isDigit);
    rest_ = rest_.drop_front(digits.size());
    int64_t value = 0;
    if (digits.getAsInteger(10, value) || value > kMaxInteger)
      return std::nullopt;
    return Extent(value);
  }

  Extent symbol() {
    llvm::StringRef name = rest_.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
    rest_ = rest_.drop_front(name.size());
    Expr expr;
    expr.symbol = names_.add(name);
    return Extent::symbolic(table_.add(expr));
  }

  static Expr::Form form_of(char sign) {
    return static_cast<Expr::Form>(llvm::find(kOperators, sign) - kOperators);
  }

  llvm::StringRef rest_;
  ExprTable &table_;
  StringTable &names_;
};

void print_into(std::string &out, Extent extent, const ExprTable &table, const StringTable &names) {
  if (extent.is_number()) {
    out += std::to_string(extent.number());
    return;
  }
  const Expr &expr = table[extent.expr()];
  if (expr.form == Expr::Form::Symbol) {
    out += names[expr.symbol];
    return;
  }
  auto print_side = [&](Extent side, bool left) {
    Expr::Form form = side.is_number() ? Expr::Form::Symbol : table[side.expr()].form;
    bool associative = form == Expr::Form::Add || form == Expr::Form::Multiply;
    bool bare =
        precedence(form) > precedence(expr.form) || (left && form == expr.form && associative);
    out += bare ? "" : "(";
    print_into(out, side, table, names);
    out += bare ? "" : ")";
  };
  print_side(expr.left, true);
  out += {' ', kOperators[static_cast<unsigned>(expr.form)], ' '};
  print_side(expr.right, false);
}

// a * b for counts; none beyond 2^62.
std::optional<int64_t> bounded_product(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > kMaxCounted)
    return std::nullopt;
  return result;
}

} // namespace

DType parse_dtype(std::string_view word) {
  for (const DTypeInfo &row : kDTypes)
    if (row.word == word)
      return row.dtype;
  return DType::Unknown;
}

uint64_t hash_of(const Expr &expr) {
  uint64_t hash = mix(static_cast<uint64_t>(expr.form), expr.symbol.index);
  return mix(mix(hash, hash_bytes(&expr.left, sizeof expr.left)),
             hash_bytes(&expr.right, sizeof expr.right));
}

std::optional<Extent> combine(ExprTable &table, Expr::Form form, Extent left, Extent right) {
  bool divides = form == Expr::Form::Divide || form == Expr::Form::Modulo;
  if (divides && right == Extent(0))
    return std::nullopt;
  if (left.is_number() && right.is_number()) {
    std::optional<int64_t> folded = fold(form, left.number(), right.number());
    return folded ? std::optional<Extent>(*folded) : std::nullopt;
  }
  uint32_t nodes = 1 + node_count(table, left) + node_count(table, right);
  if (nodes > kMaxExprNodes)
    return std::nullopt;
  return Extent::symbolic(table.add({form, {}, left, right, nodes}));
}

std::optional<Extent> parse_extent(llvm::StringRef text, ExprTable &table, StringTable &names) {
  return ExtentParser(text, table, names).parse();
}

std::string print(Extent extent, const ExprTable &table, const StringTable &names) {
  std::string out;
  print_into(out, extent, table, names);
  return out;
}

uint64_t hash_of(const Shape &shape) {
  uint64_t hash = mix(static_cast<uint64_t>(shape.dtype), shape.ranked);
  return mix(hash, hash_bytes(shape.dims.data(), shape.dims.size() * sizeof(Extent)));
}

uint64_t hash_of(const ShardSizes &sizes) {
  uint64_t hash = sizes.dims.size();
  for (const UnevenDim &each : sizes.dims) {
    Extent extents[] = {each.global, each.block};
    hash = mix(mix(hash, each.dim), hash_bytes(extents, sizeof extents));
    hash = mix(hash, each.sizes.index);
  }
  return hash;
}

std::optional<int64_t> element_count(const Shape &shape) {
  if (!shape.ranked || llvm::any_of(shape.dims, [](Extent dim) { return !dim.is_number(); }))
    return std::nullopt;
  if (llvm::is_contained(shape.dims, Extent(0)))
    return 0;
  std::optional<int64_t> count = 1;
  for (Extent dim : shape.dims)
    count = count ? bounded_product(*count, dim.number()) : count;
  return count;
}

std::optional<int64_t> byte_count(const Shape &shape) {
  std::optional<int64_t> count = element_count(shape);
  if (!count || shape.dtype == DType::Unknown)
    return std::nullopt;
  return bounded_product(*count, info(shape.dtype).bytes);
}

} // namespace spmd::ir
