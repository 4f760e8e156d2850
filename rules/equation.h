// The equation language: what an op means, as sums of products of operands whose dimensions are
// named factors, with f(...) around whatever enters nonlinearly. Parsed at compile time for our
// rows, at run time for rules of a trace. Grammar: rules/README.md.
//
//   row      = equation { ";" equation }
//   equation = [ sum ] "->" result { "," result }
//   sum      = [ "-" ] term { ("+" | "-") term } { "," operand }    after a comma: in no term
//   term     = atom { "*" atom } { "/|" factor "|" }
//   atom     = operand | "f(" operand { "," operand } ")" | integer
//   operand  = [ "@" | "#" ] [ "+" | "*" ] ( name [ "?" ] | "~" )
//              [ "[" { dim } [ ":" [ "!" ] factor ] "]" ]
//   dim      = [ "!" ] ( factor | "..." | "(" { [ "!" ] factor } ")" ) | "1" | "?" factor
//   result   = "[" { dim } "]" | name [ "*" ]
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace spmd::rules {

inline constexpr uint8_t kNoFactor = 0xFF;
inline constexpr uint8_t kRestFactor =
    31; // `...`: any number of dimensions, aligned from the right

// A mask over the factors of an equation; bit kRestFactor stands for `...`.
using FactorSet = uint32_t;

// One written dimension of an operand or a result.
struct Dim {
  enum class Form : uint8_t { Factor, Rest, Merged, One, Counted };
  Form form = Form::Factor;
  uint8_t first = 0; // Factor, Counted: the factor; Merged: index into Equation::merged
  uint8_t count = 1; // Merged: number of factors, outermost first
};

enum class RefRole : uint8_t { Value, Condition, ShapeOnly }; // plain, `@`, `#`
enum class ListForm : uint8_t { Single, Summed, Multiplied }; // plain, `+x`, `*x`

inline constexpr uint8_t kGenerator = 0xFE; // Ref::operand of `~`

// One mention of an operand.
struct Ref {
  uint8_t operand = 0;
  RefRole role = RefRole::Value;
  bool has_dims = false; // false: dimensions come from the row's `.factors`
  uint8_t first_dim = 0, dim_count = 0;
  uint8_t index = kNoFactor; // `:d`: entries are positions in d
  bool index_whole = false;  // `:!d`: d must be whole
};

struct Atom {
  enum class Form : uint8_t { Ref, Function, Integer };
  Form form = Form::Ref;
  uint8_t first = 0; // first ref; Integer: the number
  uint8_t count = 1; // refs inside f
};

struct Term {
  bool negative = false;
  uint8_t first_atom = 0, atom_count = 0;
  FactorSet divisors = 0; // `/|d|`: divided by the extent of d
};

struct Result {
  bool has_dims = false; // false: named, dimensions come from `.factors`
  bool list = false;     // `r*`
  uint8_t first_dim = 0, dim_count = 0;
};

// One sum and the results that it defines.
struct Sum {
  uint8_t first_term = 0, term_count = 0;
  uint8_t first_extra = 0, extra_count = 0; // refs after a comma
  uint8_t first_result = 0, result_count = 0;
};

struct OperandDecl {
  std::string_view name;
  bool optional = false;
  ListForm list = ListForm::Single;
};

struct Equation {
  std::string_view text;
  uint8_t operand_count = 0, factor_count = 0, dim_count = 0, merged_count = 0;
  uint8_t ref_count = 0, atom_count = 0, term_count = 0, sum_count = 0, result_count = 0;
  bool has_function = false, has_generator = false;
  FactorSet whole = 0;                    // factors marked `!` anywhere in the row
  std::array<OperandDecl, 12> operands{}; // in order of first appearance
  std::array<std::string_view, 20> factors{};
  std::array<Dim, 112> dims{};
  std::array<uint8_t, 48> merged{};
  std::array<Ref, 32> refs{};
  std::array<Atom, 24> atoms{};
  std::array<Term, 12> terms{};
  std::array<Sum, 6> sums{};
  std::array<Result, 8> results{};

  // The operand of that name, or operand_count.
  constexpr unsigned find_operand(std::string_view name) const {
    unsigned i = 0;
    while (i < operand_count && operands[i].name != name)
      ++i;
    return i;
  }
  // Whether more of an operand is read than its extents.
  constexpr bool reads(unsigned operand) const {
    for (unsigned r = 0; r < ref_count; ++r)
      if (refs[r].operand == operand && refs[r].role != RefRole::ShapeOnly)
        return true;
    return false;
  }
  constexpr uint8_t find_factor(std::string_view name) const {
    for (uint8_t i = 0; i < factor_count; ++i)
      if (factors[i] == name)
        return i;
    return kNoFactor;
  }
};

// Where and why a text is no equation; `reason` is empty if it is one.
struct EquationError {
  std::string_view reason;
  unsigned position = 0; // byte offset in the text
};

// Views in `equation` point into `text`, which must outlive it.
constexpr EquationError parse_equation(std::string_view text, Equation &equation);

namespace detail {

class EquationParser {
public:
  constexpr EquationParser(std::string_view text, Equation &out) : text_(text), out_(out) {}

  constexpr EquationError run() {
    out_.text = text_;
    do
      equation();
    while (ok() && eat(';'));
    skip();
    if (ok() && at_ != text_.size())
      fail("text after the end of the equation");
    return error_;
  }

private:
  constexpr bool ok() const { return error_.reason.empty(); }
  constexpr void fail(std::string_view reason) {
    if (ok())
      error_ = {reason, static_cast<unsigned>(at_)};
  }
  constexpr void skip() {
    while (at_ < text_.size() && text_[at_] == ' ')
      ++at_;
  }
  constexpr char peek() {
    skip();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  constexpr bool eat(char c) {
    if (peek() != c)
      return false;
    ++at_;
    return true;
  }
  constexpr bool eat(std::string_view word) {
    skip();
    if (text_.substr(at_, word.size()) != word)
      return false;
    at_ += word.size();
    return true;
  }
  constexpr void expect(char c, std::string_view reason) {
    if (!eat(c))
      fail(reason);
  }
  static constexpr bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }
  static constexpr bool is_digit(char c) { return c >= '0' && c <= '9'; }

  constexpr std::string_view name() {
    skip();
    size_t first = at_;
    while (at_ < text_.size() && (is_letter(text_[at_]) || (at_ > first && is_digit(text_[at_]))))
      ++at_;
    if (at_ == first)
      fail("a name is missing");
    return text_.substr(first, at_ - first);
  }
  // The next free place of a table; the first place again, with an error, when the table is full.
  template <class Table> constexpr uint8_t place(const Table &table, uint8_t &count) {
    if (count == table.size()) {
      fail("the equation is too long");
      return 0;
    }
    return count++;
  }

  constexpr uint8_t factor() {
    std::string_view word = name();
    uint8_t known = out_.find_factor(word);
    if (known != kNoFactor || !ok())
      return known == kNoFactor ? 0 : known;
    uint8_t made = place(out_.factors, out_.factor_count);
    out_.factors[made] = word;
    return made;
  }
  constexpr uint8_t marked_factor() {
    bool whole = eat('!');
    uint8_t found = factor();
    if (whole)
      out_.whole |= FactorSet(1) << found;
    return found;
  }

  constexpr Dim dim() {
    if (eat('1'))
      return {Dim::Form::One, 0, 1};
    if (eat('?'))
      return {Dim::Form::Counted, factor(), 1};
    bool whole = eat('!');
    if (eat("...")) {
      if (whole)
        out_.whole |= FactorSet(1) << kRestFactor;
      return {Dim::Form::Rest, kRestFactor, 1};
    }
    if (eat('(')) {
      Dim merged{Dim::Form::Merged, out_.merged_count, 0};
      while (ok() && !eat(')')) {
        uint8_t found = marked_factor();
        out_.merged[place(out_.merged, out_.merged_count)] = found;
        ++merged.count;
      }
      return merged;
    }
    uint8_t found = factor();
    if (whole)
      out_.whole |= FactorSet(1) << found;
    return {Dim::Form::Factor, found, 1};
  }
  // After `[`, up to `]` or `:`.
  constexpr void dims(uint8_t &first, uint8_t &count) {
    first = out_.dim_count;
    count = 0;
    while (ok() && peek() != ']' && peek() != ':') {
      Dim made = dim();
      out_.dims[place(out_.dims, out_.dim_count)] = made;
      ++count;
    }
  }

  constexpr uint8_t operand_named(ListForm list) {
    std::string_view word = name();
    bool optional = eat('?');
    unsigned known = out_.find_operand(word);
    if (known < out_.operand_count || !ok())
      return static_cast<uint8_t>(known);
    uint8_t made = place(out_.operands, out_.operand_count);
    out_.operands[made] = {word, optional, list};
    return made;
  }
  constexpr Ref ref() {
    Ref made;
    if (eat('@'))
      made.role = RefRole::Condition;
    else if (eat('#'))
      made.role = RefRole::ShapeOnly;
    ListForm list = ListForm::Single;
    if (eat('+'))
      list = ListForm::Summed;
    else if (eat('*'))
      list = ListForm::Multiplied;
    if (eat('~')) {
      made.operand = kGenerator;
      out_.has_generator = true;
    } else {
      made.operand = operand_named(list);
    }
    if (ok() && eat('[')) {
      made.has_dims = true;
      dims(made.first_dim, made.dim_count);
      if (eat(':')) {
        made.index_whole = peek() == '!';
        made.index = marked_factor();
      }
      expect(']', "`]` is missing");
    }
    return made;
  }
  constexpr uint8_t add_ref() {
    Ref made = ref();
    uint8_t at = place(out_.refs, out_.ref_count);
    out_.refs[at] = made;
    return at;
  }

  constexpr void atom() {
    Atom made;
    if (is_digit(peek())) {
      made = {Atom::Form::Integer, static_cast<uint8_t>(text_[at_] - '0'), 0};
      ++at_;
    } else if (eat("f(")) {
      made = {Atom::Form::Function, out_.ref_count, 0};
      out_.has_function = true;
      do {
        add_ref();
        ++made.count;
      } while (ok() && eat(','));
      expect(')', "`)` is missing");
    } else {
      made = {Atom::Form::Ref, add_ref(), 1};
    }
    out_.atoms[place(out_.atoms, out_.atom_count)] = made;
  }
  constexpr void term(bool negative) {
    Term made;
    made.negative = negative;
    made.first_atom = out_.atom_count;
    do
      atom();
    while (ok() && eat('*'));
    made.atom_count = static_cast<uint8_t>(out_.atom_count - made.first_atom);
    while (ok() && eat("/|")) {
      uint8_t divisor = eat("...") ? kRestFactor : factor();
      made.divisors |= FactorSet(1) << divisor;
      expect('|', "`|` is missing");
    }
    out_.terms[place(out_.terms, out_.term_count)] = made;
  }

  constexpr void result() {
    Result made;
    if (eat('[')) {
      made.has_dims = true;
      dims(made.first_dim, made.dim_count);
      expect(']', "`]` is missing");
    } else {
      name();
      made.list = eat('*');
    }
    out_.results[place(out_.results, out_.result_count)] = made;
  }
  constexpr void equation() {
    Sum made;
    made.first_term = out_.term_count;
    made.first_result = out_.result_count;
    // A generator that enters no term stands where the sum would: `~ -> [...]`.
    if (!(peek() == '-' && text_.substr(at_, 2) == "->") && peek() != '#') {
      bool negative = eat('-');
      do
        term(negative);
      while (ok() && ((negative = false, eat('+')) ||
                      (text_.substr(at_, 2) != "->" && (negative = eat('-')))));
    }
    made.term_count = static_cast<uint8_t>(out_.term_count - made.first_term);
    made.first_extra = out_.ref_count;
    if (peek() == '#')
      add_ref(), ++made.extra_count;
    while (ok() && eat(',')) {
      add_ref();
      ++made.extra_count;
    }
    if (!eat("->"))
      fail("`->` is missing");
    do
      result();
    while (ok() && eat(','));
    made.result_count = static_cast<uint8_t>(out_.result_count - made.first_result);
    out_.sums[place(out_.sums, out_.sum_count)] = made;
  }

  std::string_view text_;
  Equation &out_;
  size_t at_ = 0;
  EquationError error_;
};

// Deliberately not constexpr: reaching it makes a malformed row a compile error.
inline void malformed_equation() {}

} // namespace detail

constexpr EquationError parse_equation(std::string_view text, Equation &equation) {
  equation = Equation{};
  return detail::EquationParser(text, equation).run();
}

// An equation written in a row: `{"matmul", "a[... m k] * b[... k n] -> [... m n]"}`.
struct EquationText {
  Equation equation;
  // A rule of a trace, parsed at run time.
  explicit EquationText(const Equation &parsed) : equation(parsed) {}
  consteval EquationText(const char *text) {
    if (!parse_equation(text, equation).reason.empty())
      detail::malformed_equation();
  }
};

} // namespace spmd::rules
