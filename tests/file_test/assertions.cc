// Reads assertions line by line. Knows of the text format only where comments begin: outside of
// strings.
#include "tests/file_test/assertions.h"

#include "ir/support/strings.h"
#include "ir/text/comments.h"
#include "tests/file_test/test_case.h"

#include <fmt/format.h>

#include <optional>

namespace spmd::tests {
namespace {

constexpr std::string_view kWords[] = {"error", "warning", "info",  "suppressed", "note",
                                       "fix",   "type",    "shape", "input-error"};

bool is_named(Assertion::Form form) {
  return form <= Assertion::Form::Suppressed || form == Assertion::Form::InputError;
}

std::optional<Assertion::Form> form_of(llvm::StringRef word) {
  for (size_t i = 0; i < std::size(kWords); ++i)
    if (word == llvm::StringRef(kWords[i]))
      return static_cast<Assertion::Form>(i);
  return std::nullopt;
}

class CommentReader {
public:
  explicit CommentReader(Comments &out) : out_(out) {}

  void line(llvm::StringRef line) {
    ++line_;
    size_t start = ir::comment_start(line);
    bool code = !line.substr(0, start).trim().empty();
    if (code)
      for (; pending_ < out_.assertions.size(); ++pending_)
        out_.assertions[pending_].line = line_;
    seen_code_ |= code;
    while (start != llvm::StringRef::npos) {
      size_t next = line.find("//", start + 2);
      comment(line.slice(start, next), start);
      start = next;
    }
    if (code)
      for (; pending_ < out_.assertions.size(); ++pending_)
        out_.assertions[pending_].line = line_;
  }

private:
  // One comment, from its `//` up to the next one.
  void comment(llvm::StringRef text, size_t start) {
    llvm::StringRef body = text.drop_front(2).trim();
    if (!seen_code_ && ir::starts_with(body, "not checked"))
      out_.only_read = true;
    auto [word, rest] = body.split(':');
    if (word == "golden")
      return list(rest, [&](llvm::StringRef name) { out_.goldens.push_back(name.str()); });
    if (word == "options")
      return list(rest, [&](llvm::StringRef name) { option(name); });
    std::optional<Assertion::Form> form = form_of(word);
    if (!form || word.size() == body.size())
      return;
    Assertion made{
        .form = *form, .comment_line = line_, .begin = start, .end = start + text.rtrim().size()};
    rest = rest.trim();
    if (is_named(*form) && !take_name(rest, made.name))
      return problem(fmt::format("`{}:` needs a name in brackets", word.str()));
    made.text = rest.str();
    out_.assertions.push_back(std::move(made));
  }

  static bool take_name(llvm::StringRef &text, std::string &name) {
    if (!text.consume_front("[") || !text.contains(']'))
      return false;
    auto [inner, rest] = text.split(']');
    name = inner.trim().str();
    text = rest.trim();
    return true;
  }

  template <class F> void list(llvm::StringRef text, F &&take) {
    while (!text.empty()) {
      auto [item, rest] = text.split(',');
      take(item.trim());
      text = rest;
    }
  }

  void option(llvm::StringRef name) {
    if (name == "permissive")
      out_.options.permissive = true;
    else if (name == "infer-partial")
      out_.options.infer_partial = true;
    else if (name == "local")
      out_.options.mode = ir::Mode::Local;
    else if (name == "global")
      out_.options.mode = ir::Mode::Global;
    else
      problem(fmt::format("no option `{}`", name.str()));
  }

  void problem(const std::string &what) {
    out_.problems.push_back(fmt::format("{}: {}", line_, what));
  }

  Comments &out_;
  unsigned line_ = 0;
  size_t pending_ = 0; // the first assertion that has no statement yet
  bool seen_code_ = false;
};

} // namespace

Comments read_comments(llvm::StringRef text) {
  Comments comments;
  CommentReader reader(comments);
  for (llvm::StringRef line : lines_of(text))
    reader.line(line);
  return comments;
}

std::string print(Assertion::Form form, llvm::StringRef name, llvm::StringRef text) {
  std::string out = fmt::format("// {}:", kWords[static_cast<unsigned>(form)]);
  if (is_named(form))
    out += fmt::format(" [{}]", name.str());
  if (!text.empty())
    out += " " + text.str();
  return out;
}

} // namespace spmd::tests
