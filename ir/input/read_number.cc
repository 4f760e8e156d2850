// Numbers of JSON: whole ones stay exact, up to 2^53; all others are the nearest double.
// Relies on the cursor for where a number begins and for what may follow it.
#include "ir/input/json_cursor.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

namespace spmd::ir {

namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// The first character of a text from `at`; the null character at its end.
struct Reader {
  const char *at, *end;
  char peek() const { return at == end ? '\0' : *at; }
  bool take(char a, char b) {
    bool found = peek() == a || peek() == b;
    at += found;
    return found;
  }
  // False if there are none.
  bool digits() {
    const char *first = at;
    while (is_digit(peek()))
      ++at;
    return at != first;
  }
};

// One number of the grammar of JSON; `end` is null if the text is none.
struct Scan {
  const char *end = nullptr;
  bool whole = true;
};

Scan scan(const char *begin, const char *end) {
  Reader reader{begin, end};
  reader.take('-', '-');
  const char *first = reader.at;
  if (!reader.digits() || (*first == '0' && reader.at > first + 1))
    return {};
  bool whole = true;
  if (reader.take('.', '.')) {
    whole = false;
    if (!reader.digits())
      return {};
  }
  if (reader.take('e', 'E')) {
    whole = false;
    reader.take('+', '-');
    if (!reader.digits())
      return {};
  }
  return {reader.at, whole};
}

// The nearest double; none where it is infinite.
std::optional<double> to_double(const char *begin, const char *end) {
  double value = 0;
  auto [stopped, code] = std::from_chars(begin, end, value);
  if (code == std::errc())
    return value;
  // Too large or too small, which only strtod tells apart.
  value = std::strtod(std::string(begin, end).c_str(), nullptr);
  return std::isfinite(value) ? std::optional<double>(value) : std::nullopt;
}

} // namespace

// What most numbers are: whole, not negative, of at most fifteen digits.
std::optional<int64_t> JsonCursor::small_number(const char *begin) const {
  const char *at = begin;
  int64_t number = 0;
  for (; at != end_ && is_digit(*at) && at - begin < 15; ++at)
    number = number * 10 + (*at - '0');
  const bool plain = at != begin && (*begin != '0' || at == begin + 1) && ends_scalar(at);
  return plain ? std::optional<int64_t>(number) : std::nullopt;
}

std::optional<JsonCursor::Number> JsonCursor::number() {
  char c = peek();
  if (c != '-' && !is_digit(c)) {
    mismatch("a number");
    return std::nullopt;
  }
  const char *begin = text_ + index_[at_];
  auto [end, whole] = scan(begin, end_);
  if (!end || !ends_scalar(end)) {
    fail(offset(at_), "trace-syntax", "a malformed number stands here", path_of(at_));
    return std::nullopt;
  }
  Token token = at_++;
  Number number{.whole = whole};
  if (whole) {
    auto [stopped, code] = std::from_chars(begin, end, number.integer);
    if (code == std::errc() && number.integer >= -kMaxInteger && number.integer <= kMaxInteger)
      return number;
    error(token, "trace-limit", "an integer is beyond 2^53");
    return std::nullopt;
  }
  if (std::optional<double> real = to_double(begin, end)) {
    number.real = *real;
    return number;
  }
  error(token, "trace-limit", "a number is beyond the range of a double");
  return std::nullopt;
}

std::optional<int64_t> JsonCursor::integer(int64_t least, int64_t most, std::string_view name) {
  Token token = at_;
  char c = peek();
  if (c != '-' && !is_digit(c)) {
    mismatch("an integer");
    return std::nullopt;
  }
  if (std::optional<int64_t> small = small_number(text_ + index_[at_]);
      small && *small >= least && *small <= most) {
    ++at_;
    return small;
  }
  std::optional<Number> found = number();
  if (!found)
    return std::nullopt;
  if (!found->whole)
    error(token, "trace-key", "a number with a fraction stands where an integer is needed");
  else if (found->integer < least || found->integer > most)
    error(token, name, fmt::format("{} is outside {} to {}", found->integer, least, most));
  else
    return found->integer;
  return std::nullopt;
}

} // namespace spmd::ir
