// The grammar of JSON over simdjson's tokens. A token is a bracket, comma or colon, or where a
// scalar begins; after the last one stands a sentinel that points at the end of the text.
#include "ir/input/json_cursor.h"

#include "ir/support/strings.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cstring>

namespace spmd::ir {

struct JsonCursor::Tokens {
  std::unique_ptr<simdjson::internal::dom_parser_implementation> parser;
};

namespace {

constexpr std::array<int8_t, 256> make_nesting() {
  std::array<int8_t, 256> table{};
  table['{'] = table['['] = 1;
  table['}'] = table[']'] = -1;
  return table;
}
constexpr std::array<int8_t, 256> kNesting = make_nesting();

bool starts_value(char c) {
  return c == '{' || c == '[' || c == '"' || c == '-' || (c >= '0' && c <= '9') || c == 't' ||
         c == 'f' || c == 'n';
}

std::string_view form_of(char c) {
  switch (c) {
  case '{':
    return "an object";
  case '[':
    return "a list";
  case '"':
    return "a string";
  case 't':
  case 'f':
    return "a boolean";
  case 'n':
    return "null";
  default:
    return "a number";
  }
}

// True if one of the eight bytes is a backslash.
bool has_backslash(uint64_t word) {
  uint64_t x = word ^ 0x5C5C5C5C5C5C5C5Cull;
  return (x - 0x0101010101010101ull) & ~x & 0x8080808080808080ull;
}

// Four hexadecimal digits; negative if they are none.
int hex4(llvm::StringRef text) {
  unsigned value = 0;
  bool digits = text.size() >= 4 && llvm::all_of(text.take_front(4), llvm::isHexDigit);
  return digits && !text.take_front(4).getAsInteger(16, value) ? static_cast<int>(value) : -1;
}

// Byte offset of the first byte that is not part of well-formed UTF-8; the size if there is none.
size_t first_bad_byte(llvm::StringRef bytes) {
  const llvm::UTF8 *at = bytes.bytes_begin();
  llvm::isLegalUTF8String(&at, bytes.bytes_end());
  return static_cast<size_t>(at - bytes.bytes_begin());
}

struct StringFault {
  size_t offset = 0;
  bool unclosed = false;
};

// The first string that holds a raw control character or never ends.
StringFault find_string_fault(llvm::StringRef bytes) {
  size_t open = llvm::StringRef::npos;
  for (size_t i = 0; i < bytes.size(); ++i) {
    if (bytes[i] == '"')
      open = open == llvm::StringRef::npos ? i : llvm::StringRef::npos;
    else if (open == llvm::StringRef::npos)
      continue;
    else if (bytes[i] == '\\')
      ++i;
    else if (static_cast<unsigned char>(bytes[i]) < 0x20)
      return {i, false};
  }
  return {open == llvm::StringRef::npos ? bytes.size() : open, true};
}

} // namespace

JsonCursor::JsonCursor(llvm::StringRef bytes)
    : tokens_(std::make_unique<Tokens>()), all_(bytes), text_(bytes.begin()), end_(bytes.end()) {
  static constexpr uint32_t kNoTokens[2] = {0, 0};
  index_ = kNoTokens;
  load();
}

// The first stage takes whole blocks from the text and the rest from a copy, so that the padding
// which simdjson otherwise asks for is not needed. Its offsets have 32 bits.
void JsonCursor::load() {
  constexpr size_t kMaxBytes = simdjson::SIMDJSON_MAXSIZE_BYTES - simdjson::SIMDJSON_PADDING;
  llvm::StringRef bytes = all_.drop_front(base_);
  if (base_ == 0 && ir::starts_with(bytes, "\xEF\xBB\xBF"))
    return fail(0, "trace-encoding", "a byte order mark stands before the text");
  if (bytes.size() > kMaxBytes) {
    size_t line = bytes.take_front(kMaxBytes).rfind('\n');
    if (line == llvm::StringRef::npos)
      return fail(base_, "trace-limit", fmt::format("a line has more than {} bytes", kMaxBytes));
    bytes = bytes.take_front(line + 1);
  }
  window_end_ = base_ + bytes.size();
  if (index(bytes))
    return;
  InputError fault = diagnose();
  // The last line of a stream may be torn anywhere; what stands before it is whole.
  size_t last = all_.rfind('\n') + 1; // npos + 1 is 0
  bool in_last = window_end_ == all_.size() && last > base_ && fault.offset >= last;
  if (in_last && index(all_.slice(base_, last)))
    torn_ = std::move(fault);
  else
    fail(fault.offset, fault.name, std::move(fault.message));
}

// The first stage over a window; false if it refuses the text.
bool JsonCursor::index(llvm::StringRef bytes) {
  text_ = bytes.begin();
  end_ = bytes.end();
  at_ = count_ = root_ = 0;
  const simdjson::implementation *simd = simdjson::get_active_implementation();
  if (simd->create_dom_parser_implementation(bytes.size() + simdjson::SIMDJSON_PADDING, 1,
                                             tokens_->parser)) {
    fail(base_, "trace-limit", "the text is too large for the memory at hand");
    return true;
  }
  if (bytes.empty() ||
      tokens_->parser->stage1(bytes.bytes_begin(), bytes.size(), simdjson::stage1_mode::regular))
    return false;
  index_ = tokens_->parser->structural_indexes.get();
  count_ = tokens_->parser->n_structural_indexes;
  return true;
}

bool JsonCursor::next_window() {
  if (failed_ || torn_ || !has_next_window())
    return false;
  base_ = window_end_;
  load();
  return !failed_;
}

bool JsonCursor::is_truncated_record() const {
  if (has_next_window() || all_.drop_front(offset(at_)).contains('\n'))
    return false;
  int depth = 0;
  for (Token token = at_; token < count_; ++token) {
    depth += kNesting[static_cast<unsigned char>(byte(token))];
    if (depth <= 0)
      return false;
  }
  return true;
}

JsonCursor::~JsonCursor() = default;

InputError JsonCursor::diagnose() const {
  llvm::StringRef bytes = all_.slice(base_, window_end_);
  auto error = [&](size_t at, std::string_view name, std::string message) {
    return InputError{
        .name = name, .message = std::move(message), .offset = base_ + at, .path = {}};
  };
  if (size_t bad = first_bad_byte(bytes); bad < bytes.size())
    return error(bad, "trace-encoding",
                 fmt::format("byte 0x{:02X} is not UTF-8", static_cast<unsigned char>(bytes[bad])));
  StringFault fault = find_string_fault(bytes);
  if (fault.offset == bytes.size())
    return error(bytes.size(), "trace-syntax", "the text is empty");
  return error(
      fault.offset, "trace-syntax",
      fault.unclosed
          ? "a string is not closed"
          : fmt::format(
                "a string holds the control character 0x{:02X}, which must be written `\\u{:04x}`",
                bytes[fault.offset], bytes[fault.offset]));
}

void JsonCursor::fail(uint64_t offset, std::string_view name, std::string message,
                      std::string path) {
  if (!failed_)
    errors_.push_back(
        {.name = name, .message = std::move(message), .offset = offset, .path = std::move(path)});
  failed_ = true;
  at_ = count_;
}

void JsonCursor::error(Token token, std::string_view name, std::string message,
                       std::string_view key) {
  // What is read twice draws its errors once.
  bool known = llvm::any_of(errors_, [&](const InputError &earlier) {
    return earlier.offset == offset(token) && earlier.message == message;
  });
  if (failed_ || known)
    return;
  std::string path = path_of(token);
  if (!key.empty())
    path += fmt::format("{}{}", path.empty() ? "" : ".", key);
  error_at(offset(token), name, std::move(message), std::move(path));
}

void JsonCursor::error_at(uint64_t offset, std::string_view name, std::string message,
                          std::string path) {
  if (failed_)
    return;
  errors_.push_back(
      {.name = name, .message = std::move(message), .offset = offset, .path = std::move(path)});
  if (errors_.size() >= kMaxInputErrors) {
    failed_ = true;
    at_ = count_;
  }
}

void JsonCursor::syntax(std::string_view expected) {
  if (failed_)
    return;
  std::string found = at_end() ? "the text ends" : fmt::format("`{}` stands", peek());
  fail(offset(at_), "trace-syntax", fmt::format("{} where {} is needed", found, expected),
       path_of(at_));
}

void JsonCursor::mismatch(std::string_view wanted) {
  if (!starts_value(peek()))
    return syntax(wanted);
  error(at_, "trace-key", fmt::format("{} stands where {} is needed", form_of(peek()), wanted));
  skip();
}

void JsonCursor::repeated(Token token, llvm::StringRef key) {
  error(token, "trace-key", fmt::format("the key `{}` is repeated", key.take_front(60).str()));
}

std::string JsonCursor::path_of(Token target) const {
  struct Level {
    bool object;
    uint32_t index = 0;
    Token key = kAbsent;
  };
  llvm::SmallVector<Level, 16> levels;
  for (Token token = root_; token < count_ && token <= target; ++token) {
    char c = byte(token);
    bool in_object = !levels.empty() && levels.back().object;
    if (c == '"' && in_object && levels.back().key == kAbsent)
      levels.back().key = token;
    if (token == target)
      break;
    if (c == '{' || c == '[')
      levels.push_back({c == '{'});
    else if ((c == '}' || c == ']') && !levels.empty())
      levels.pop_back();
    else if (c == ',' && in_object)
      levels.back().key = kAbsent;
    else if (c == ',' && !levels.empty())
      ++levels.back().index;
  }
  std::string path;
  for (const Level &level : levels) {
    if (!level.object)
      path += fmt::format("[{}]", level.index);
    else if (level.key != kAbsent)
      path +=
          fmt::format("{}{}", path.empty() ? "" : ".", string_body(level.key).take_front(60).str());
  }
  return path;
}

bool JsonCursor::refuse(char open, std::string_view form) {
  if (peek() != open)
    mismatch(form);
  else
    fail(offset(at_), "trace-limit",
         fmt::format("values are nested more than {} deep", kMaxNesting), path_of(at_));
  return false;
}

std::optional<llvm::StringRef> JsonCursor::slow_key() {
  if (peek() != '"') {
    syntax("a key");
    return std::nullopt;
  }
  std::optional<llvm::StringRef> text = text_of(at_);
  if (failed_)
    return std::nullopt;
  ++at_;
  if (peek() != ':') {
    syntax("`:`");
    return std::nullopt;
  }
  ++at_;
  return text;
}

void JsonCursor::pass_nested() {
  if (!starts_value(peek()))
    return syntax("a value");
  // Most of a text is passed here, parts of it more than once. Depths are those below the value's
  // own.
  const char *text = text_;
  const uint32_t *index = index_;
  const Token count = count_;
  const unsigned most = kMaxNesting - depth_;
  int depth = 0;
  Token at = at_;
  do
    depth += kNesting[static_cast<unsigned char>(text[index[at++]])];
  while (static_cast<unsigned>(depth) - 1 < most && at < count);
  at_ = at;
  if (depth > static_cast<int>(most))
    fail(offset(at - 1), "trace-limit",
         fmt::format("values are nested more than {} deep", kMaxNesting), path_of(at - 1));
  else if (depth > 0)
    syntax("a closing bracket");
}

llvm::StringRef JsonCursor::raw() {
  Token begin = at_;
  pass();
  return failed_ ? llvm::StringRef() : raw(begin, at_);
}

void JsonCursor::skip() {
  switch (peek()) {
  case '{':
    object([&](llvm::StringRef) { skip(); });
    return;
  case '[':
    array([&](uint32_t) { skip(); });
    return;
  case '"':
    string();
    return;
  case 't':
  case 'f':
    boolean();
    return;
  case 'n':
    null();
    return;
  default:
    starts_value(peek()) ? void(number()) : syntax("a value");
  }
}

std::optional<llvm::StringRef> JsonCursor::text_of(Token token) {
  llvm::StringRef body = string_body(token);
  if (body.size() > kMaxString) {
    error(token, "trace-limit",
          fmt::format("a string has {} bytes, and may have {}", body.size(), kMaxString));
    return std::nullopt;
  }
  bool escapes = false;
  const char *at = body.begin();
  for (; at < body.end() && end_ - at >= 8; at += 8) {
    uint64_t word; // reaches beyond the body, not beyond the text
    std::memcpy(&word, at, 8);
    escapes |= has_backslash(word);
  }
  escapes |= at < body.end();
  return escapes && body.contains('\\') ? unescape(token, body) : body;
}

std::optional<llvm::StringRef> JsonCursor::unescape(Token token, llvm::StringRef body) {
  static constexpr llvm::StringLiteral kFrom = "\"\\/bfnrt", kTo = "\"\\/\b\f\n\r\t";
  llvm::SmallString<64> text;
  for (size_t i = 0; i < body.size(); ++i) {
    if (body[i] != '\\') {
      text.push_back(body[i]);
      continue;
    }
    uint64_t where = offset(token) + 1 + i;
    if (size_t which = kFrom.find(body[++i]); which != llvm::StringRef::npos) {
      text.push_back(kTo[which]);
      continue;
    }
    int unit = body[i] == 'u' ? hex4(body.substr(i + 1)) : -1;
    if (unit < 0) {
      fail(where, "trace-syntax", fmt::format("`\\{}` is no escape of a string", body[i]),
           path_of(token));
      return std::nullopt;
    }
    i += 4;
    unsigned code = static_cast<unsigned>(unit);
    if (int low = ir::starts_with(body.substr(i + 1), "\\u") ? hex4(body.substr(i + 3)) : -1;
        code >= 0xD800 && code < 0xDC00 && low >= 0xDC00 && low < 0xE000) {
      code = 0x10000 + ((code - 0xD800) << 10) + (static_cast<unsigned>(low) - 0xDC00);
      i += 6;
    }
    char buffer[4];
    char *end = buffer;
    if (!llvm::ConvertCodePointToUTF8(code, end)) {
      fail(where, "trace-encoding", fmt::format("`\\u{:04x}` is half of a surrogate pair", code),
           path_of(token));
      return std::nullopt;
    }
    text.append(buffer, end);
  }
  return text.str().copy(arena_);
}

std::optional<llvm::StringRef> JsonCursor::slow_string() {
  if (peek() != '"') {
    mismatch("a string");
    return std::nullopt;
  }
  std::optional<llvm::StringRef> text = text_of(at_);
  if (!failed_)
    ++at_;
  return text;
}

bool JsonCursor::ends_scalar(const char *end) const {
  if (end == end_)
    return true;
  switch (*end) {
  case ' ':
  case '\n':
  case '\r':
  case '\t':
  case ',':
  case ']':
  case '}':
  case ':':
    return true;
  default:
    return false;
  }
}

bool JsonCursor::literal(llvm::StringRef word) {
  const char *begin = text_ + index_[at_];
  llvm::StringRef rest(begin, static_cast<size_t>(end_ - begin));
  if (!ir::starts_with(rest, word) || !ends_scalar(begin + word.size())) {
    syntax("a value");
    return false;
  }
  ++at_;
  return true;
}

std::optional<bool> JsonCursor::boolean() {
  char c = peek();
  if (c != 't' && c != 'f') {
    mismatch("a boolean");
    return std::nullopt;
  }
  if (!literal(c == 't' ? "true" : "false"))
    return std::nullopt;
  return c == 't';
}

bool JsonCursor::null() { return peek() == 'n' && literal("null"); }

} // namespace spmd::ir
