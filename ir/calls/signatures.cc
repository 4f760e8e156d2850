// Reads the table of signatures, once, when the first call is read.
#include "ir/calls/signatures.h"

#include "ir/support/check.h"
#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

#include <torch_signatures.h> // made by embed.py
#include <vector>

namespace spmd::ir {
namespace {

using llvm::StringRef;

// By enumerator.
constexpr std::string_view kTypeWords[] = {"Tensor", "number",  "Scalar", "int",
                                           "float",  "complex", "bool",   "str",
                                           "dtype",  "Storage", "any",    "_"};

ParameterType type_of(StringRef word) {
  const auto *at = llvm::find(kTypeWords, std::string_view(word.data(), word.size()));
  SPMD_CHECK(at != std::end(kTypeWords), "a parameter of a signature is of an unknown type");
  return static_cast<ParameterType>(at - std::begin(kTypeWords));
}

// `Tensor?[] indices`, `int[2] stride=[1,1]`, `*Tensor tensors`.
Parameter read_parameter(StringRef text) {
  Parameter made;
  auto [type, rest] = text.split(' ');
  std::tie(made.name, made.standard) = rest.split('=');
  made.takes_rest = type.consume_front("*");
  StringRef word = type.take_while([](char c) { return llvm::isAlnum(c) || c == '_'; });
  StringRef marks = type.drop_front(word.size());
  made.is_list = marks.contains('[') || made.takes_rest;
  made.is_optional = ir::ends_with(marks, "?") || made.standard == "None";
  made.is_written = marks.contains('!');
  SPMD_CHECK(!word.empty() && !made.name.empty(), "a parameter of a signature has no type or name");
  made.type = type_of(word);
  return made;
}

Signature read_signature(StringRef line) {
  Signature made;
  auto [overload, rest] = line.split(' ');
  made.overload = overload == "-" ? StringRef() : overload;
  bool named_only = false;
  while (!rest.empty()) {
    StringRef text;
    std::tie(text, rest) = rest.split(", ");
    if (text == "*") {
      named_only = true;
      continue;
    }
    made.parameters.push_back(read_parameter(text));
    made.parameters.back().named_only = named_only;
    named_only |= made.parameters.back().takes_rest;
  }
  return made;
}

struct Table {
  llvm::StringMap<unsigned> groups;
  std::vector<std::vector<Signature>> signatures;
  llvm::StringMap<StringRef> dtypes;

  explicit Table(StringRef text) {
    while (!text.empty()) {
      StringRef line;
      std::tie(line, text) = text.split('\n');
      if (line.consume_front("! ")) {
        auto [name, word] = line.split(' ');
        dtypes[name] = word;
      } else if (line.consume_front("= ")) {
        signatures.emplace_back();
        for (StringRef name; !line.empty();) {
          std::tie(name, line) = line.split(' ');
          groups[name] = static_cast<unsigned>(signatures.size() - 1);
        }
      } else if (!line.empty() && !ir::starts_with(line, "#")) {
        SPMD_CHECK(!signatures.empty(), "a signature stands before the first name");
        signatures.back().push_back(read_signature(line));
      }
    }
  }
};

const Table &table() {
  static const Table made(StringRef(kTorchSignatures.data(), kTorchSignatures.size()));
  return made;
}

} // namespace

llvm::ArrayRef<Signature> signatures_of(StringRef name) {
  auto at = table().groups.find(name);
  if (at == table().groups.end())
    return {};
  return table().signatures[at->second];
}

std::string_view word_of(ParameterType type) { return kTypeWords[static_cast<size_t>(type)]; }

StringRef dtype_word(StringRef framework_word) { return table().dtypes.lookup(framework_word); }

} // namespace spmd::ir
