// Arithmetic on scales, their parser and their canonical text.
// Relies on every scale being canonical: lowest terms, no exponent 0, factors sorted by name.
#include "ir/mesh/scale.h"

#include "ir/support/limits.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <numeric>

namespace spmd::ir {

namespace {

std::optional<int64_t> bounded_product(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result) || result > kMaxInteger)
    return std::nullopt;
  return result;
}

// Multiplies the fraction by numerator / denominator; false beyond the bounds.
bool multiply_fraction(Scale &scale, int64_t numerator, int64_t denominator) {
  int64_t across = std::gcd(scale.numerator, denominator);
  int64_t back = std::gcd(numerator, scale.denominator);
  auto top = bounded_product(scale.numerator / across, numerator / back);
  auto bottom = bounded_product(scale.denominator / back, denominator / across);
  if (!top || !bottom)
    return false;
  scale.numerator = *top;
  scale.denominator = *bottom;
  return true;
}

// Sorts factors, adds exponents of equal bases; false beyond the bounds.
bool canonicalize(llvm::SmallVectorImpl<ScaleFactor> &factors, const StringTable &names) {
  llvm::sort(factors, [&](const ScaleFactor &a, const ScaleFactor &b) {
    return names[a.base] < names[b.base];
  });
  size_t kept = 0;
  for (size_t i = 0, next; i < factors.size(); i = next) {
    int64_t sum = 0;
    for (next = i; next < factors.size() && factors[next].base == factors[i].base; ++next)
      sum += factors[next].exponent;
    if (sum < -kMaxExponent || sum > kMaxExponent)
      return false;
    if (sum != 0)
      factors[kept++] = {factors[i].base, static_cast<int32_t>(sum)};
  }
  factors.truncate(kept);
  return true;
}

// Product of quotients, from the left; `sign` is -1 below a division.
class ScaleParser {
public:
  ScaleParser(llvm::StringRef text, StringTable &names) : rest_(text), names_(names) {}

  std::optional<Scale> parse() {
    if (!product(1, 0) || peek() != 0 || !rest_.empty() || !canonicalize(scale_.factors, names_))
      return std::nullopt;
    return scale_;
  }

private:
  char peek() {
    rest_ = rest_.ltrim(" \t\r\n");
    return rest_.empty() ? 0 : rest_.front();
  }

  bool product(int sign, unsigned depth) {
    if (!atom(sign, depth))
      return false;
    for (char next = peek(); next == '*' || next == '/'; next = peek()) {
      rest_ = rest_.drop_front();
      if (!atom(next == '*' ? sign : -sign, depth))
        return false;
    }
    return true;
  }

  bool atom(int sign, unsigned depth) {
    char next = peek();
    if (llvm::isDigit(next))
      return number(sign);
    if (llvm::isAlpha(next) || next == '_')
      return base(sign);
    if (next != '(' || depth == kMaxNesting)
      return false;
    rest_ = rest_.drop_front();
    if (!product(sign, depth + 1) || peek() != ')')
      return false;
    rest_ = rest_.drop_front();
    return true;
  }

  bool number(int sign) {
    llvm::StringRef digits = rest_.take_while(llvm::isDigit);
    rest_ = rest_.drop_front(digits.size());
    int64_t value = 0;
    if (digits.getAsInteger(10, value) || value == 0 || value > kMaxInteger)
      return false;
    return sign > 0 ? multiply_fraction(scale_, value, 1) : multiply_fraction(scale_, 1, value);
  }

  bool base(int sign) {
    llvm::StringRef name =
        rest_.take_while([](char c) { return llvm::isAlnum(c) || c == '_' || c == '.'; });
    rest_ = rest_.drop_front(name.size());
    scale_.factors.push_back({names_.add(name), sign});
    return true;
  }

  llvm::StringRef rest_;
  StringTable &names_;
  Scale scale_;
};

// `2*dp*dp` over the factors whose exponents have that sign; and how many parts it has.
std::pair<std::string, unsigned> print_part(const Scale &scale, int sign,
                                            const StringTable &names) {
  int64_t number = sign > 0 ? scale.numerator : scale.denominator;
  std::string text;
  unsigned parts = 0;
  auto add = [&](llvm::StringRef part) {
    text += parts++ ? "*" : "";
    text += part;
  };
  if (number != 1)
    add(std::to_string(number));
  for (const ScaleFactor &factor : scale.factors)
    for (int32_t i = 0; i < factor.exponent * sign; ++i)
      add(names[factor.base]);
  return {text, parts};
}

} // namespace

uint64_t hash_of(const Scale &scale) {
  uint64_t hash = mix(static_cast<uint64_t>(scale.numerator), scale.denominator);
  for (const ScaleFactor &factor : scale.factors)
    hash = mix(mix(hash, factor.base.index), static_cast<uint32_t>(factor.exponent));
  return hash;
}

std::optional<Scale> multiply(const Scale &a, const Scale &b, const StringTable &names) {
  Scale result = a;
  if (!multiply_fraction(result, b.numerator, b.denominator))
    return std::nullopt;
  result.factors.append(b.factors.begin(), b.factors.end());
  if (!canonicalize(result.factors, names))
    return std::nullopt;
  return result;
}

std::optional<Scale> inverse(const Scale &a) {
  if (a.numerator == 0)
    return std::nullopt;
  Scale result = a;
  std::swap(result.numerator, result.denominator);
  for (ScaleFactor &factor : result.factors)
    factor.exponent = -factor.exponent;
  return result;
}

std::optional<Scale> parse_scale(llvm::StringRef text, StringTable &names) {
  return ScaleParser(text, names).parse();
}

std::string print(const Scale &scale, const StringTable &names) {
  auto [top, top_parts] = print_part(scale, 1, names);
  auto [bottom, bottom_parts] = print_part(scale, -1, names);
  if (top_parts == 0)
    top = "1";
  if (bottom_parts == 0)
    return top;
  return top + "/" + (bottom_parts == 1 ? bottom : "(" + bottom + ")");
}

} // namespace spmd::ir
