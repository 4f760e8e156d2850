// The first signature that takes the arguments as they are, else the one that has to convert the
// fewest.
#include "ir/calls/bind.h"

#include "ir/calls/signatures.h"
#include "ir/input/read_operands.h"
#include "ir/shape.h"
#include "ir/support/format.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <fmt/format.h>

namespace spmd::ir {
namespace {

using llvm::StringRef;

// What NumPy calls a parameter, which torch takes as well.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"axis", "dim"}, {"keepdims", "keepdim"}, {"input", "self"}, {"x", "self"}};

// How well an argument suits a parameter.
enum class Fit : uint8_t { Exact, Converted, None };

class Binder {
public:
  Binder(Builder &builder, const Call &call, const Signature &signature)
      : builder_(builder), program_(builder.program), call_(call), signature_(signature),
        given_(signature.parameters.size()) {}

  // False: it does not take them, and `problem` says why.
  bool fits() { return by_position() && by_name() && complete(); }
  unsigned converted() const { return converted_; }
  const std::string &problem() const { return problem_; }

  BoundCall take(std::string name) {
    BoundCall made;
    made.name = std::move(name);
    for (size_t i = 0; i < given_.size(); ++i)
      place(made, signature_.parameters[i], given_[i]);
    llvm::SmallVectorImpl<Operand> &operands = made.operands;
    while (!operands.empty() && is_null(operands.back()))
      operands.pop_back();
    for (const auto &[word, operand] : named_)
      operands.append({Operand::name(word), operand});
    return made;
  }

private:
  bool fail(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  const AttrValue *literal(Operand operand) const {
    return operand.form == Operand::Form::Literal ? &program_.literals[operand.index] : nullptr;
  }
  bool is_null(Operand operand) const {
    const AttrValue *value = literal(operand);
    return value && value->form == AttrForm::Null;
  }
  bool is_list(Operand operand) const { return operand.form == Operand::Form::List; }
  // An integer, a symbol or a value that may be one.
  bool may_be_integer(Operand operand) const {
    const AttrValue *value = literal(operand);
    return operand.is_value() ||
           (value && (value->form == AttrForm::Integer || value->form == AttrForm::Expr));
  }

  bool by_position() {
    size_t place = 0;
    for (size_t i = 0; i < call_.args.size(); ++i, ++place) {
      bool left = place < given_.size() && !signature_.parameters[place].named_only;
      if (!left)
        return fail(
            fmt::format("it takes {} by position, and {} are given", place, call_.args.size()));
      if (takes_rest(place, i)) {
        llvm::ArrayRef<Operand> rest = llvm::ArrayRef<Operand>(call_.args).drop_front(i);
        given_[place] = Operand::list(program_.operand_lists.add(rest));
        return true;
      }
      given_[place] = call_.args[i];
    }
    return true;
  }

  // `x.reshape(2, 3)`: the last parameter that has a position takes all integers that are left.
  bool takes_rest(size_t place, size_t i) const {
    const Parameter &parameter = signature_.parameters[place];
    llvm::ArrayRef<Operand> rest = llvm::ArrayRef<Operand>(call_.args).drop_front(i);
    if (parameter.takes_rest)
      return rest.size() > 1 || !is_list(rest.front());
    bool is_last = place + 1 == given_.size() || signature_.parameters[place + 1].named_only;
    return parameter.type == ParameterType::Integer && parameter.is_list && is_last &&
           rest.size() > 1 && llvm::all_of(rest, [&](Operand one) { return may_be_integer(one); });
  }

  bool by_name() {
    for (const auto &[name, operand] : call_.kwargs) {
      StringRef word = program_.strings[name];
      size_t place = find(word);
      if (place == given_.size() && word == "out") {
        named_.push_back({name, operand});
        continue;
      }
      if (place == given_.size())
        return fail(fmt::format("it has no parameter `{}`", word.take_front(60)));
      if (given_[place])
        return fail(fmt::format("`{}` is given twice", word));
      given_[place] = operand;
    }
    return true;
  }
  size_t find(StringRef word) const {
    for (size_t i = 0; i < given_.size(); ++i)
      if (signature_.parameters[i].name == word)
        return i;
    for (const auto &[other, ours] : kOtherWords)
      for (size_t i = 0; word == StringRef(other) && i < given_.size(); ++i)
        if (signature_.parameters[i].name == StringRef(ours))
          return i;
    return given_.size();
  }

  bool complete() {
    for (size_t i = 0; i < given_.size(); ++i) {
      const Parameter &parameter = signature_.parameters[i];
      if (!given_[i] && parameter.standard.empty() && !parameter.takes_rest)
        return fail(fmt::format("`{}` is missing", parameter.name));
      Fit fit = given_[i] ? fit_of(parameter, *given_[i]) : Fit::Exact;
      if (fit == Fit::None)
        return fail(fmt::format("`{}` is not of type {}{}", parameter.name, word_of(parameter.type),
                                parameter.is_list ? "[]" : ""));
      converted_ += fit == Fit::Converted;
    }
    return true;
  }

  Fit fit_of(const Parameter &parameter, Operand operand) const {
    const bool takes_all = parameter.type == ParameterType::Any;
    if (is_null(operand))
      return parameter.is_optional || takes_all || parameter.type == ParameterType::Ignored
                 ? Fit::Exact
                 : Fit::None;
    if (takes_all)
      return Fit::Exact;
    if (!parameter.is_list)
      return is_list(operand) ? Fit::None : fit_of_one(parameter.type, operand);
    if (!is_list(operand)) // `sum(x, 1)`
      return parameter.type != ParameterType::Tensor &&
                     fit_of_one(parameter.type, operand) != Fit::None
                 ? Fit::Converted
                 : Fit::None;
    Fit worst = Fit::Exact;
    for (Operand item : program_.operand_lists[operand.as_list()])
      worst = std::max(worst, is_null(item) ? Fit::Exact : fit_of_one(parameter.type, item));
    return worst;
  }

  Fit fit_of_one(ParameterType type, Operand operand) const {
    using enum ParameterType;
    const auto fit = [&](std::initializer_list<ParameterType> exact,
                         std::initializer_list<ParameterType> converted) {
      return llvm::find(exact, type) != exact.end()           ? Fit::Exact
             : llvm::find(converted, type) != converted.end() ? Fit::Converted
                                                              : Fit::None;
    };
    if (operand.is_value()) // one without dimensions may stand for a number
      return fit({Tensor}, {Number, Scalar, Integer, Float, Bool});
    const AttrValue *value = literal(operand);
    if (!value)
      return Fit::None;
    switch (value->form) {
    case AttrForm::Integer:
    case AttrForm::Expr:
      return fit({Integer, Float, Scalar, Number}, {Tensor, Ignored});
    case AttrForm::Float:
      return fit({Float, Scalar, Number}, {Tensor});
    case AttrForm::Bool:
      return fit({Bool, Ignored}, {Scalar, Number, Tensor});
    case AttrForm::String:
      return dtype_of(*value).empty() ? fit({String, Ignored}, {}) : fit({String, DType}, {});
    default:
      return Fit::None;
    }
  }

  // `torch.float32`, `float32` and `f32` are f32.
  StringRef dtype_of(const AttrValue &value) const {
    StringRef word = program_.strings[value.as<StringId>()];
    if (parse_dtype(word) != DType::Unknown)
      return word;
    word.consume_front("torch.");
    return dtype_word(word);
  }

  void place(BoundCall &made, const Parameter &parameter, std::optional<Operand> given) {
    if (parameter.type == ParameterType::Ignored)
      return;
    bool as_operand = parameter.is_operand() || (parameter.type == ParameterType::Any && given &&
                                                 holds_value(program_, *given));
    if (as_operand) {
      Operand operand = given ? *given : Operand::literal(builder_.literal(AttrValue::null()));
      operand.mut = parameter.is_written && holds_value(program_, operand);
      made.operands.push_back(operand);
      return;
    }
    if (!given || is_null(*given))
      return;
    StringId name = builder_.string(parameter.name);
    if (holds_value(program_, *given)) {
      named_.push_back({name, *given});
      return;
    }
    AttrValue value = as_attr(program_, *given);
    if (parameter.type == ParameterType::Integer && parameter.is_list && !is_list(*given))
      value = AttrValue::list(program_.lists.add(AttrList{{value}}));
    if (parameter.type == ParameterType::DType)
      value = AttrValue::string(builder_.string(dtype_of(value)));
    if (!is_standard(value, parameter.standard))
      made.attrs.attrs.push_back({name, value});
  }

  // Whether an attribute says what holds without it.
  bool is_standard(const AttrValue &value, StringRef standard) const {
    double number = 0;
    bool is_number = !standard.empty() && !standard.getAsDouble(number);
    switch (value.form) {
    case AttrForm::Integer:
      return is_number && double(value.as_integer()) == number;
    case AttrForm::Float:
      return is_number && value.as_number() == number;
    case AttrForm::Bool:
      return standard == (value.as_bool() ? "True" : "False");
    case AttrForm::String:
      return standard.trim('"') == program_.strings[value.as<StringId>()] &&
             ir::starts_with(standard, "\"");
    case AttrForm::List:
      return is_standard_list(program_.lists[value.as<AttrListId>()], standard);
    default:
      return false;
    }
  }
  bool is_standard_list(const AttrList &list, StringRef standard) const {
    llvm::SmallVector<StringRef, 4> words;
    if (!standard.consume_front("[") || !standard.consume_back("]"))
      return false;
    standard.split(words, ',', -1, false);
    return words.size() == list.items.size() &&
           llvm::all_of(llvm::zip(list.items, words), [&](auto pair) {
             return is_standard(std::get<0>(pair), std::get<1>(pair));
           });
  }

  Builder &builder_;
  Program &program_;
  const Call &call_;
  const Signature &signature_;
  llvm::SmallVector<std::optional<Operand>, 8> given_; // by parameter
  llvm::SmallVector<NamedOperand, 2> named_;
  unsigned converted_ = 0;
  std::string problem_;
};

// As `in` and `kw` are read: no signature is known.
BoundCall in_order(Program &program, const Call &call) {
  BoundCall made;
  made.name = call.name.str();
  made.operands.assign(call.args.begin(), call.args.end());
  for (const auto &[name, operand] : call.kwargs)
    if (holds_value(program, operand))
      made.operands.append({Operand::name(name), operand});
    else
      made.attrs.attrs.push_back({name, as_attr(program, operand)});
  return made;
}

} // namespace

BoundCall bind_call(Builder &builder, const Call &call) {
  StringRef name = call.name, overload;
  name.consume_front("torch.ops.");
  llvm::ArrayRef<Signature> known = signatures_of(name);
  bool is_chosen = known.empty();
  if (is_chosen) {
    std::tie(name, overload) = name.rsplit('.');
    known = signatures_of(name);
    overload = overload == "default" ? StringRef() : overload;
  }
  BoundCall made;
  std::optional<unsigned> fewest;
  bool asked = false;
  for (const Signature &signature : known) {
    if (is_chosen && signature.overload != overload)
      continue;
    asked = true;
    Binder binder(builder, call, signature);
    if (!binder.fits()) {
      if (!llvm::StringRef(made.problem).contains(binder.problem()))
        made.problem += (made.problem.empty() ? "" : "; or ") + binder.problem();
      continue;
    }
    if (fewest && *fewest <= binder.converted())
      continue;
    fewest = binder.converted();
    bool add = !is_chosen && !signature.overload.empty();
    made = binder.take(call.name.str() + (add ? "." + signature.overload.str() : ""));
  }
  if (!asked)
    return in_order(builder.program, call);
  if (fewest)
    made.problem.clear();
  return made;
}

} // namespace spmd::ir
