// Which code points are visible, and the escapes of those that are not.
#include "ir/support/escape.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ConvertUTF.h"

#include <fmt/format.h>

#include <iterator>

namespace spmd::ir {
namespace {

// Ends included. Unicode: Cc, Cf, Zl, Zp, Default_Ignorable_Code_Point, and noncharacters.
struct Range {
  uint32_t first, last;
};
constexpr Range kInvisible[] = {
    {0x00, 0x1F},       {0x7F, 0x9F},       {0xAD, 0xAD},       {0x34F, 0x34F},
    {0x600, 0x605},     {0x61C, 0x61C},     {0x6DD, 0x6DD},     {0x70F, 0x70F},
    {0x890, 0x891},     {0x8E2, 0x8E2},     {0x115F, 0x1160},   {0x17B4, 0x17B5},
    {0x180B, 0x180F},   {0x200B, 0x200F},   {0x2028, 0x202E},   {0x2060, 0x206F},
    {0x2800, 0x2800},   {0x3164, 0x3164},   {0xD800, 0xDFFF},   {0xFDD0, 0xFDEF},
    {0xFE00, 0xFE0F},   {0xFEFF, 0xFEFF},   {0xFFA0, 0xFFA0},   {0xFFF0, 0xFFFB},
    {0x110BD, 0x110BD}, {0x110CD, 0x110CD}, {0x13430, 0x1343F}, {0x1BCA0, 0x1BCA3},
    {0x1D173, 0x1D17A}, {0xE0000, 0xE0FFF},
};

bool is_plain_ascii(char c) { return c >= 0x20 && c < 0x7F; }

// Takes one code point off the text; none, and one byte less, where it is not UTF-8.
bool take_code_point(llvm::StringRef &text, uint32_t &code) {
  const auto *at = reinterpret_cast<const llvm::UTF8 *>(text.data());
  const llvm::UTF8 *end = at + text.size();
  llvm::UTF32 made = 0;
  if (llvm::convertUTF8Sequence(&at, end, &made, llvm::strictConversion) != llvm::conversionOK) {
    text = text.drop_front();
    return false;
  }
  text = text.drop_front(static_cast<size_t>(at - text.bytes_begin()));
  code = made;
  return true;
}

void append_escape(std::string &out, uint32_t code) {
  static constexpr llvm::StringLiteral kLetters = "bfnrt", kMeans = "\b\f\n\r\t";
  if (size_t row = code < 0x80 ? kMeans.find(static_cast<char>(code)) : llvm::StringRef::npos;
      row != llvm::StringRef::npos)
    out += {'\\', kLetters[row]};
  else if (code < 0x10000)
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", code);
  else
    fmt::format_to(std::back_inserter(out), "\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10),
                   0xDC00 + ((code - 0x10000) & 0x3FF));
}

// `kept`: ASCII characters that stay although they are not visible; `marked`: those that get a
// backslash.
void append(std::string &out, llvm::StringRef text, llvm::StringRef kept, llvm::StringRef marked) {
  while (!text.empty()) {
    size_t plain = 0;
    while (plain < text.size() && (is_plain_ascii(text[plain]) || kept.contains(text[plain])) &&
           !marked.contains(text[plain]))
      ++plain;
    out.append(text.data(), plain);
    text = text.drop_front(plain);
    if (text.empty())
      return;
    llvm::StringRef rest = text;
    uint32_t code = 0;
    if (!take_code_point(text, code))
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(rest[0]));
    else if (code < 0x80 && marked.contains(static_cast<char>(code)))
      out += {'\\', static_cast<char>(code)};
    else if (is_visible(code))
      out.append(rest.data(), rest.size() - text.size());
    else
      append_escape(out, code);
  }
}

} // namespace

bool is_visible(uint32_t code) {
  if (code >= 0x20 && code < 0x7F)
    return true;
  const Range *at = llvm::partition_point(kInvisible, [&](Range row) { return row.last < code; });
  bool listed = at != std::end(kInvisible) && at->first <= code;
  return !listed && code < 0x110000 && (code & 0xFFFE) != 0xFFFE;
}

std::string printable(llvm::StringRef text) {
  std::string out;
  append(out, text, "", "");
  return out;
}

std::string printable_lines(llvm::StringRef text) {
  std::string out;
  append(out, text, "\n", "");
  return out;
}

void append_string(std::string &out, llvm::StringRef text) { append(out, text, "", "\"\\"); }

} // namespace spmd::ir
