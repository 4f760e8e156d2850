// Words and names, and keys that are not known.
#include "ir/json/read/part.h"

#include "ir/support/misspelling.h"
#include "ir/support/strings.h"
#include "ir/text/lexer.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace spmd::ir {

static llvm::SmallVector<llvm::StringRef, 24> as_refs(llvm::ArrayRef<std::string_view> words) {
  return {words.begin(), words.end()};
}

void JsonPart::unknown(llvm::StringRef key, llvm::ArrayRef<std::string_view> known) {
  Token token = json_.at() - 2; // the key, before the colon
  bool slip =
      program_.minor_version <= kMinorVersion && llvm::any_of(known, [&](std::string_view name) {
        return is_misspelling(key, {name.data(), name.size()});
      });
  if (slip) {
    llvm::SmallVector<llvm::StringRef, 16> names(known.begin(), known.end());
    json_.error(token, "trace-key",
                fmt::format("the key `{}` is not known{}", key.take_front(60).str(),
                            nearest_suffix(key, names)));
  } else if (in_.options.strict_schema && !ir::starts_with(key, "x_")) {
    if (in_.result.warnings.size() < kMaxInputErrors)
      in_.result.warnings.push_back(
          {.name = "trace-key",
           .message =
               fmt::format("the key `{}` is not known, and is ignored", key.take_front(60).str()),
           .offset = json_.offset(token),
           .path = json_.path_of(token)});
  }
  json_.skip();
}

std::optional<llvm::StringRef> JsonPart::word(llvm::ArrayRef<std::string_view> words,
                                              std::string_view what, unsigned &index) {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return std::nullopt;
  const auto *found = llvm::find(words, std::string_view(*text));
  index = static_cast<unsigned>(found - words.begin());
  if (found != words.end())
    return text;
  json_.error(
      token, "trace-key",
      fmt::format("`{}` is no {}{}", cut(*text), what, nearest_suffix(*text, as_refs(words))));
  return std::nullopt;
}

StringId JsonPart::text() {
  std::optional<llvm::StringRef> text = json_.string();
  return text ? builder_.string(*text) : StringId();
}

bool JsonPart::is_identifier(llvm::StringRef text) { return is_name(text) && !is_reserved(text); }

StringId JsonPart::identifier(std::string_view what) {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return {};
  if (is_reserved(*text)) {
    json_.error(token, "trace-key",
                fmt::format("`{}` is a kind and names nothing else", text->str()));
    return {};
  }
  if (is_name(*text))
    return builder_.string(*text);
  json_.error(token, "trace-key",
              fmt::format("`{}` is no name of {}: letters, digits and `_`", cut(*text), what));
  return {};
}

StringId JsonPart::finding() {
  Token token = json_.at();
  std::optional<llvm::StringRef> text = json_.string();
  if (!text)
    return {};
  if (is_finding(*text))
    return builder_.string(*text);
  json_.error(token, "trace-key", fmt::format("`{}` is no name of a finding", cut(*text)));
  return {};
}

bool JsonPart::is_too_deep() {
  if (in_.values <= kMaxValueNesting)
    return false;
  json_.fail(json_.offset(json_.at()), "trace-limit",
             fmt::format("values are nested more than {} deep", kMaxValueNesting),
             json_.path_of(json_.at()));
  return true;
}

std::optional<uint32_t> JsonPart::index(size_t size, std::string_view table) {
  Token token = json_.at();
  std::optional<int64_t> at = json_.integer(0, kMaxInteger, "trace-reference");
  if (!at)
    return std::nullopt;
  if (static_cast<uint64_t>(*at) < size)
    return static_cast<uint32_t>(*at);
  json_.error(token, "trace-reference",
              fmt::format("entry {} of `{}` does not exist before this place, which has {}", *at,
                          table, size));
  return std::nullopt;
}

} // namespace spmd::ir
